"""How configurations are laid out in the leaderboard's columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.widgets.leaderboard import knob_table

CONFIGS = [
    {"row_threads": 128, "rows": 1, "vector": 4, "reg_cap": 0},
    {"row_threads": 32, "rows": 2, "vector": 4, "reg_cap": 64},
]


def test_a_column_a_knob_with_names_as_long_as_there_is_room_for() -> None:
    assert knob_table(CONFIGS, 40) == (
        "row_threads rows vector reg_cap",
        ["        128    1      4       0", "         32    2      4      64"],
    )
    heading, rows = knob_table(CONFIGS, 16)
    assert heading == "r_t row vec r_ca"
    assert rows[1] == " 32   2   4   64"


def test_without_room_for_names_the_values_alone() -> None:
    assert knob_table(CONFIGS, 10) == ("config", ["128,1,4,0", "32,2,4,64"])


def test_configurations_of_different_knobs_carry_their_names() -> None:
    heading, rows = knob_table([{"a": 1}, {"b": 2}], 20)
    assert (heading, rows) == ("config", ["a=1", "b=2"])
    assert knob_table([], 20) == ("config", [])


@given(
    st.lists(st.lists(st.integers(0, 4096), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_rows_are_as_wide_as_their_heading(values: list[list[int]], width: int) -> None:
    configs: list[dict[str, int]] = [
        dict(zip(("tile_m", "tile_n", "unroll"), row, strict=True)) for row in values
    ]
    heading, rows = knob_table(configs, width)
    assert all(len(row) <= width for row in rows)
    if heading != "config":
        assert {len(row) for row in rows} == {len(heading)}
        assert [row.split() for row in rows] == [[str(v) for v in row] for row in values]

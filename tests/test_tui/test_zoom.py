"""The window of a plot stays inside the data, whatever is pressed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.zoom import LEAST_SPAN, View

ENDS = (1.0, 1000.0)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("zoomed"), st.sampled_from([-1, 1])),
        st.tuples(st.just("panned"), st.sampled_from([-1, 1])),
        st.tuples(st.just("edge"), st.sampled_from([-1, 1])),
        st.tuples(st.just("showing"), st.floats(1, 1000)),
    ),
    max_size=25,
)


@given(moves)
def test_no_keys_leave_the_data(pressed: list[tuple[str, float]]) -> None:
    view = View()
    for name, value in pressed:
        view = view.zoomed(int(value), ENDS, None) if name == "zoomed" else getattr(view, name)(value, ENDS)
        low, high = view.window or ENDS
        assert ENDS[0] - 1e-6 <= low < high <= ENDS[1] + 1e-6
        assert high - low >= LEAST_SPAN - 1e-6


def test_zooming_keeps_the_centre_where_it_is() -> None:
    view = View().zoomed(1, ENDS, 250.75)
    assert view.window == (125.875, 625.375)
    assert view.zoomed(-1, ENDS, 250.75) == View()


def test_at_the_end_it_follows_and_elsewhere_it_stays() -> None:
    followed = View().zoomed(1, ENDS, None).edge(1, ENDS)
    assert followed.following
    assert followed.grown((1.0, 1100.0)).window == (600.5, 1100.0)
    assert followed.zoomed(1, ENDS, None).window == (750.25, 1000.0)
    stayed = followed.panned(-1, ENDS)
    assert not stayed.following and stayed.grown((1.0, 1100.0)) == stayed

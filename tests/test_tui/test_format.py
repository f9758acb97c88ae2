"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.sessions.entries import RunInfo
from warpdeck.sessions.state import RunState
from warpdeck.tui import format as f
from warpdeck.tui import view


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0123456, "12.35 µs"),
        (0.0009, "0.900 µs"),
        (1.0, "1.000 ms"),
        (123.456, "123.5 ms"),
        (2500.0, "2.500 s"),
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 µs"),
    ],
)
def test_time_text(ms: float | None, text: str) -> None:
    assert f.time_text(ms) == text


def test_times_beside_each_other_share_a_unit() -> None:
    assert f.time_text(1.25, like=0.9) == "1250 µs"
    assert f.time_text(0.9, like=1.25) == "0.900 ms"


@pytest.mark.parametrize(
    ("s", "text"), [(0, "0:00"), (42.9, "0:42"), (725, "12:05"), (11052, "3:04:12"), (-1, "–")]
)
def test_duration(s: float, text: str) -> None:
    assert f.duration(s) == text


def test_factors_and_intervals() -> None:
    assert f.ratio(1.4217) == "1.42×"
    assert f.ratio(1234.5) == "1234×" or f.ratio(1234.5) == "1235×"
    assert f.ratio(None) == "–"
    assert f.ratio(12.345) == "12.3×"
    assert f.speedup(1.0061) == "1.006×"
    assert f.interval((1.4, 14.44)) == "[1.400, 14.44]"
    assert f.interval(None) == ""
    assert f.percent(0.375) == "38%"
    assert f.size_text(150_000_000_000) == "139.7 GiB"


def test_configurations_as_words_and_flags() -> None:
    config = {"block_size": 256, "reg_cap": 0}
    assert f.config_text(config) == "block_size=256 reg_cap=0"
    assert f.config_flags(config) == "--knob block_size=256 --knob reg_cap=0"


@given(st.one_of(st.none(), st.floats()))
def test_no_number_breaks_a_format(value: float | None) -> None:
    for function in (f.time_text, f.ratio, f.percent, f.duration):
        assert isinstance(function(value), str)


@given(st.text(), st.integers(0, 50))
def test_clip_never_exceeds(text: str, width: int) -> None:
    assert len(f.clip(text, width)) <= max(width, 1)


def test_long_configurations_keep_every_value_and_shorten_their_names() -> None:
    config = {"tile_m": 128, "tile_n": 256, "thread_m": 8, "unroll": 2}
    assert f.short_config(config, 80) == "tile_m=128 tile_n=256 thread_m=8 unroll=2"
    assert f.short_config(config, 26) == "t_m=128 t_n=256 th_m=8 u=2"
    assert f.short_config(config, 12) == "t_m=128 t_n…"


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(_[a-z]{1,8})?", fullmatch=True), st.integers(0, 512), max_size=9
    ),
    st.integers(0, 120),
)
def test_shortened_names_stay_different(config: dict[str, int], width: int) -> None:
    text = f.short_config(config, width)
    assert len(text) <= max(width, 1)
    if "…" not in text and config:
        names, values = zip(*(pair.split("=") for pair in text.split()), strict=True)
        assert len(set(names)) == len(config)
        assert values == tuple(map(str, config.values()))


def test_a_training_has_no_size_in_its_title() -> None:
    state = RunState(info=RunInfo({"workload": "softmax", "agent": "ppo"}))
    assert view.title_line(state, "", 80).startswith("softmax · ppo · ")
    assert "size" not in view.title_line(state, "", 80)

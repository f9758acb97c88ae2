"""The footer's room: what is left out, and what never is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.widgets.footer import KEPT, _Entry, fitting

entries = st.builds(
    _Entry,
    st.sampled_from("abcxyz"),
    st.sampled_from(["a", "space", "←→", "⏎", "^p"]),
    st.text("abcdefgh", max_size=12),
    st.just(""),
    st.sampled_from([*sorted(KEPT), "pause", "step(1)", "source"]),
    st.booleans(),
)


@given(st.lists(entries, max_size=14), st.integers(1, 200))
def test_what_fits(found: list[_Entry], width: int) -> None:
    shown = fitting(found, width)
    missed = list(found)
    for entry in shown:  # in order, each once
        while missed and missed[0] is not entry:
            missed.pop(0)
        assert missed.pop(0) is entry
    needed = sum(entry.width + 1 for entry in shown) - 1
    assert needed <= width or all(entry.action in KEPT for entry in shown)
    assert [e for e in shown if e.action in KEPT] == [e for e in found if e.action in KEPT]
    # The last that can be missed is left out first. By identity: entries may be equal.
    places = [any(entry is one for one in shown) for entry in found]
    if not all(places):
        after = found[places.index(False) :]
        assert all(entry.action in KEPT for entry in after if any(entry is one for one in shown))

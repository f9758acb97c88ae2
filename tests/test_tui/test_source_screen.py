"""The Source screen: any two versions of a run, what changed, and where they may be read from."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import llm_logs
import pytest

from warpdeck.core.errors import UsageError
from warpdeck.kernels import load_workload
from warpdeck.sessions.state import reduce_all
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.screens.source import SourceScreen
from warpdeck.tui.source_files import MOST_BYTES, launch_words, load, read_below, sources_of
from warpdeck.tui.widgets.diff import DiffPane


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llm_logs.write_sources(tmp_path)
    return tmp_path


@asynccontextmanager
async def opened(
    kit: Any, folder: Path, new: int = 2, old: int | None = None, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Any]:
    state = reduce_all(llm_logs.llm_events())
    screen = SourceScreen(
        lambda: sources_of(state, folder), f"attempt {new}", None if old is None else f"attempt {old}"
    )
    async with kit.show(screen, size) as console:
        await console.settle()
        yield console


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("split", [False, True])
async def test_snapshots(
    kit: Any, folder: Path, size: tuple[int, int], split: bool, snapshot_text: Any
) -> None:
    async with opened(kit, folder, 4, 2, size) as console:
        if split:
            await console.press("v")
        snapshot_text(f"source-{'split' if split else 'unified'}-{size[0]}x{size[1]}", console.text)


async def test_the_header_tells_what_became_of_both(kit: Any, folder: Path) -> None:
    async with opened(kit, folder, 4) as console:
        assert "attempt 3 → attempt 4 of 6 · +1 −1 lines" in console.lines[0]
        assert "− attempt 3 · compile error · not kept" in console.lines[1]
        assert "+ attempt 4 · ok · 68.80 µs · 27.91× [27.52, 28.30] · kept: win" in console.lines[2]
        assert "row_sum<<<1024, 256>>>" in console.lines[2]


async def test_signs_colours_and_words(kit: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with opened(kit, folder, 4) as console:
        pane = console.screen.query_one(DiffPane)
        rows = [list(pane.render_line(y)) for y in range(pane.size.height)]
        texts = ["".join(segment.text for segment in row) for row in rows]
        old = next(i for i, text in enumerate(texts) if "−" in text)
        assert "float4 v = row4[i]" in texts[old] and "+" in texts[old + 1]
        grounds = [
            {s.style.bgcolor for s in rows[i] if s.style and "float4" in s.text} for i in (old, old + 1)
        ]
        assert grounds[0] and grounds[1] and grounds[0] != grounds[1]
        semicolon = [s for s in rows[old + 1] if s.text == ";"]
        assert len(semicolon) == 1 and semicolon[0].style and semicolon[0].style.bold
        assert semicolon[0].style.bgcolor not in grounds[1]
        keyword = next(s for row in rows for s in row if s.text == "for")
        plain = next(s for row in rows for s in row if s.text.strip() == "sum" or "sum = warp_sum" in s.text)
        assert keyword.style and plain.style and keyword.style.color != plain.style.color


async def test_versions_are_chosen_by_brackets(kit: Any, folder: Path) -> None:
    async with opened(kit, folder, 2) as console:
        await console.press("right_square_bracket")
        assert "attempt 2 → attempt 3" in console.lines[0]
        await console.press("right_square_bracket", "right_square_bracket")
        assert "attempt 4 → attempt 5" in console.lines[0]
        await console.press("left_curly_bracket", "left_curly_bracket")
        assert "attempt 2 → attempt 5" in console.lines[0]
        await console.press("x")
        assert "attempt 5 → attempt 2" in console.lines[0]
        await console.press("left_square_bracket", "left_square_bracket")
        assert "no earlier version" in console.text


async def test_any_two_of_the_table(kit: Any, folder: Path) -> None:
    source = kit.source(llm_logs.llm_events())
    source.folder = folder
    async with kit.open(source) as console:
        for _ in range(5):
            await console.poll()
        await console.press("g", "m")
        assert "◆1" in console.text
        await console.press("G", "s")
        await console.settle()
        assert "attempt 1 → attempt 6" in console.lines[0]
        await console.press("q", "g", "m", "G", "s")
        await console.settle()
        assert "attempt 4 → attempt 6" in console.lines[0]


async def test_a_run_that_goes_on_brings_new_versions(kit: Any, folder: Path) -> None:
    events = llm_logs.llm_events(asking=False)
    states = [reduce_all(events[:count]) for count in (len(events) - 8, len(events))]
    screen = SourceScreen(lambda: sources_of(states[0], folder), "attempt 5")
    async with kit.show(screen) as console:
        await console.settle()
        states[0] = states[1]
        await console.press("right_square_bracket")
        assert "attempt 6 of 6" in console.lines[0]


async def test_changes_and_matches(kit: Any, folder: Path) -> None:
    async with opened(kit, folder, 2) as console:
        assert "change 1 of 4" in console.text
        await console.press("n")
        assert "change 2 of 4" in console.text
        await console.press("N", "N")
        assert "change 4 of 4" in console.text
        await console.press("slash", *"LANE")
        await console.press("enter")
        assert "/LANE: no matches" in console.text
        await console.press("slash", *"lane", "enter")
        assert "/lane: 1 of 4 matches" in console.text
        await console.press("m", "m")
        assert "/lane: 3 of 4 matches" in console.text
        await console.press("M", "escape")
        assert "/lane" not in console.text
        await console.press("slash", "escape")
        assert not console.screen.query_one("#prompt").display


async def test_wrapping_shows_whole_lines(kit: Any, folder: Path) -> None:
    long = "int total = " + " + ".join(f"value{i}" for i in range(30)) + ";"
    (folder / llm_logs.source_path(2)).write_text(f"{llm_logs.NAIVE}{long}\n")
    async with opened(kit, folder, 2, size=(80, 24)) as console:
        assert "value29" not in console.text
        await console.press("w")
        assert "value29;" in console.text and "wrapped" in console.text
        await console.press("v", "n")
        assert all(len(line) == 80 for line in console.lines[4:22])
        news = "".join(line[40:78].strip() for line in console.lines[4:22] if "│" in line[30:45])
        assert "value 28" in news.replace("value28", "value 28") and "+ int total" in news
        await console.press("v", "w", "l", "l")
        assert console.screen.query_one(DiffPane).max_scroll_x > 0


async def test_what_has_no_room_is_folded(kit: Any, folder: Path) -> None:
    body = "\n".join(f"int v{i} = {i};" for i in range(300))
    for number, tail in ((1, "// old"), (2, "// new")):
        (folder / llm_logs.source_path(number)).write_text(f"{body}\n{tail}\n{body}\n")
    async with opened(kit, folder, 2) as console:
        assert console.text.count("297 unchanged lines") == 2
        pane = console.screen.query_one(DiffPane)
        assert pane.virtual_size.height == 10
        await console.press("slash", *"v250", "enter")
        assert "int v250" in console.text and "/v250: 1 of 2" in console.text
        assert pane.virtual_size.height == 602


async def test_a_large_source_paints_only_what_is_visible(
    kit: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"float v{i} = x[{i}] * {i}.0f; // line {i}" for i in range(5000)]
    (folder / llm_logs.source_path(1)).write_text("\n".join(lines))
    lines[::50] = [line.replace("float", "double") for line in lines[::50]]
    (folder / llm_logs.source_path(2)).write_text("\n".join(lines))
    painted = []
    render = DiffPane.render_line
    monkeypatch.setattr(DiffPane, "render_line", lambda pane, y: painted.append(y) or render(pane, y))
    async with opened(kit, folder, 2) as console:
        assert "change 1 of 100" in console.text
        await console.press("f")
        painted.clear()
        await console.press("n")
        assert 0 < len(painted) <= 4 * 40
        await console.press("N", "N")
        assert "change 100 of 100" in console.text and "4951" in console.text


async def test_help_copy_and_back(kit: Any, folder: Path) -> None:
    async with opened(kit, folder, 2) as console:
        await console.press("y")
        assert console.app.clipboard == llm_logs.WARP
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen) and "go from match to match" in console.dialog
        await console.press("escape")
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert {"The next change", "Wrap long lines, or scroll sideways"} <= set(titles)
        for owner in (SourceScreen, DiffPane):
            assert all(binding.id for binding in owner.__dict__["BINDINGS"])
        await console.press("q")
        assert console.app._exit


async def test_a_missing_or_strange_source_is_told(kit: Any, folder: Path) -> None:
    (folder / llm_logs.source_path(2)).unlink()
    (folder / llm_logs.source_path(3)).write_bytes(b"int \x1b[2Ja\xff;\n")
    async with opened(kit, folder, 2) as console:
        assert f"can't read {llm_logs.source_path(2)}: No such file or directory" in console.text
        await console.press("right_curly_bracket", "right_curly_bracket", "x", "left_square_bracket")
        assert console.app.is_running
    async with opened(kit, folder, 4) as console:
        assert "\x1b" not in console.text and "int \N{REPLACEMENT CHARACTER}[2Ja" in console.text


async def test_an_attempt_without_a_source_is_told(kit: Any, folder: Path) -> None:
    events = [
        e._replace(data={**e.data, "source": None, "variant": ""})
        if e.kind == "attempt" and e.data["attempt"] == 3
        else e
        for e in llm_logs.llm_events()
    ]
    sources = sources_of(reduce_all(events), folder)
    async with kit.show(SourceScreen(lambda: sources, "attempt 3")) as console:
        await console.settle()
        assert "attempt 3 has no source: none of it was kept" in console.text
        await console.press("a")
        await console.settle()
        assert "attempt 3 has no source: none of it was kept" in " ".join(console.text.split())


async def test_resizing(kit: Any, folder: Path) -> None:
    async with opened(kit, folder, 2) as console:
        for width, height in ((60, 16), (200, 60), (40, 8), (80, 24)):
            await console.pilot.resize_terminal(width, height)
            await console.settle()
            assert len(console.lines) == height
        assert "warp_sum" in console.text


def test_only_files_below_the_session_are_read(tmp_path: Path) -> None:
    session, outside = tmp_path / "session", tmp_path / "secret.cu"
    session.mkdir()
    outside.write_text("secret")
    (session / "link.cu").symlink_to(outside)
    (session / "loop.cu").symlink_to(session / "loop.cu")
    os.mkfifo(session / "pipe.cu")
    (session / "large.cu").write_bytes(b" " * (MOST_BYTES + 1))
    (session / "good.cu").write_text("fine")
    assert read_below(session, "good.cu") == "fine"
    assert read_below(session, "../session/good.cu") == "fine"
    for path in (
        "../secret.cu",
        str(outside),
        "link.cu",
        "loop.cu",
        "pipe.cu",
        "large.cu",
        ".",
        "none.cu",
        "a\0b",
    ):
        with pytest.raises(UsageError):
            read_below(session, path)


def classic(tmp_path: Path) -> Any:
    """A state and a session of a classic run of softmax."""
    workload = load_workload("softmax")
    events = llm_logs.begun("tpe", llm_logs.GPU, 3)
    start = events.events[1]
    data = {
        **start.data,
        "workload": "softmax",
        "cases": [{"name": "1024", "params": {"m": 1024, "n": 1024}}],
    }
    events.events[1] = start._replace(data=data)
    for number, config in enumerate(workload.space("classic").configs()[:2]):
        candidate = workload.candidate("classic", config)
        judged = llm_logs.judged(number + 1, "ok", "", 1.0 - 0.1 * number)
        judged |= {"candidate": candidate.id, "variant": candidate.variant, "config": dict(config)}
        events.add("evaluation" if number else "baseline", **judged)
    with SessionStore.create(tmp_path, "softmax-1", {"workload": "softmax"}) as store:
        store.append_many([(e.kind, e.data, e.t) for e in events.events])
    return reduce_all(events.events), tmp_path / "softmax-1"


async def test_a_classic_run_compares_the_best_with_the_baseline(kit: Any, tmp_path: Path) -> None:
    state, folder = classic(tmp_path)
    screen = SourceScreen(lambda: sources_of(state, folder))
    async with kit.show(screen) as console:
        await console.settle()
        assert "baseline → rank 1 of 2" in console.lines[0]
        assert "+ rank 1 · ok · 900.0 µs · 1.111×" in console.lines[2] and "<<<" in console.lines[2]
        assert "the configuration's knobs" in console.text and "changed since" not in console.text


def test_a_source_that_changed_since_is_told(tmp_path: Path) -> None:
    state, folder = classic(tmp_path)
    sources = sources_of(state, folder)
    version = sources.versions[1]
    assert load(sources, version).note == ""
    old = version.__class__(**{**version.__dict__, "candidate": "another"})
    assert "was changed since rank 1 was measured" in load(sources, old).note


def test_launches_in_words() -> None:
    one = {"entry": "k", "grid": [64, 8, 1], "block": [256, 1, 1], "shared": 512}
    assert launch_words({"a": [one], "b": []}, "b") == "k<<<64×8, 256, 512 B>>>"
    assert (
        launch_words({"a": [one, {**one, "shared": 0}]}, "a") == "k<<<64×8, 256, 512 B>>>; k<<<64×8, 256>>>"
    )
    assert launch_words({}, "a") == launch_words({"a": "?"}, "a") == launch_words({"a": [3]}, "a") == ""

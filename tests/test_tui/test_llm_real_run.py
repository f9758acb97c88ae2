"""The screens over what the real agent tells: the real client, a local server, known times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llm_runs import Run, propose
from llm_server import LlmServer
from llm_steps import answer, status

from warpdeck.sessions.events import Event
from warpdeck.sessions.state import reduce_all
from warpdeck.tui.screens.source import SourceScreen
from warpdeck.tui.source_files import sources_of


def events_of(run: Run) -> list[Event]:
    """The agent's events after a start, a second apart."""
    device = run.bench.device.to_json()
    cases = [{"name": case.name, "params": dict(case.params)} for case in run.bench.cases]
    start = {"workload": "gemm", "agent": "llm", "device": device, "cases": cases, "steps": 5}
    log = [("state", {"state": "running"}), ("start", start), *run.events]
    return [Event(i, 1000.0 + i, kind, data) for i, (kind, data) in enumerate(log, 1)]


def tuned(folder: Path, *, emulated: bool = False) -> Run:
    with LlmServer() as server:
        server.say(
            status(500),
            answer(propose("takes 400 us", idea="tile it"), reasoning="shared memory is near"),
            answer(propose("fails to compile", idea="vectorise")),
            answer(propose("takes 200 us", idea="vectorise, mended")),
        )
        run = Run(folder, server, emulated=emulated, retries=1)
        run.search(4)
    return run


async def test_the_run_and_its_sources(kit: Any, tmp_path: Path) -> None:
    events = events_of(tuned(tmp_path))
    state = reduce_all(events)
    llm = state.llm
    assert llm is not None
    assert [a.status for a in llm.attempts] == ["ok", "ok", "compile_error", "ok"]
    assert [(a.parent, a.repairs, a.kept) for a in llm.attempts[1:]] == [
        (1, None, True),
        (2, None, False),
        (2, 3, True),
    ]
    assert all(a.entry is not None and a.entry.candidate == a.candidate for a in llm.attempts)
    assert (llm.sent, llm.retries, llm.requests, llm.usage.answers) == (3, 1, (), 3)
    assert llm.usage.input > 0 and llm.usage.output > 0 and llm.reasoning == "shared memory is near"
    assert {"initialise", "propose", "evaluate", "refine", "repair"} <= set(llm.nodes)
    assert state.best is not None and state.best.candidate == llm.attempts[-1].candidate
    source = kit.source(events)
    source.folder = tmp_path
    async with kit.open(source) as console:
        for _ in range(5):
            await console.poll()
        assert "Attempts, 4 · 3 kept · 1 failed" in console.text and "vectorise, mended" in console.text
        await console.press("s")
        await console.settle()
        assert "attempt 3 → attempt 4 of 4" in console.lines[0]
        assert "// fails to compile" in console.text and "// takes 200 us" in console.text


async def test_without_times(kit: Any, tmp_path: Path) -> None:
    state = reduce_all(events_of(tuned(tmp_path, emulated=True)))
    assert state.llm is not None and state.best is None
    screen = SourceScreen(lambda: sources_of(state, tmp_path), "attempt 4", "attempt 1")
    async with kit.show(screen) as console:
        await console.settle()
        assert "+ attempt 4 · ok · kept" in console.lines[2] and " ms" not in console.text
        assert "tile<<<" in console.lines[2]

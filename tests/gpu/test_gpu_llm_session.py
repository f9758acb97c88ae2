"""Whole runs of the LLM agent on a real GPU, each in a process of its own.

No test here has a device open: a run measures nothing while another process has a context on its GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from llm_kernels import COALESCED, TWICE, proposal, unrolled
from llm_server import LlmServer
from llm_steps import Asked, Step, answer, call

from warpdeck.core.errors import ExitCode
from warpdeck.core.model import Status
from warpdeck.sessions import launch
from warpdeck.sessions.events import Kind
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.state import RunState
from warpdeck.sessions.store import SessionStore

pytestmark = pytest.mark.gpu


def finished(folder: Path, server: LlmServer, *, steps: int, **options: object) -> tuple[RunState, list[str]]:
    """Run the agent on gemm 256; its state at the end, and the tools' results."""
    asked = {"model": "instant", "base_url": server.url, "stagnation": 0, **options}
    spec = RunSpec("gemm", "llm", "cuda:0", "ladder", (256,), steps=steps, options=asked, finalists=2)
    run = launch.launch_run(spec, sessions=folder)
    try:
        assert run.wait(90) is ExitCode.OK, run.last_words()
    finally:
        launch.stop_run(run.folder, process=run.process, grace_s=0)
    with SessionStore.open(run.folder) as store:
        return store.state(), [str(event.data["result"]) for event in store.events(kinds=[Kind.TOOL])]


def test_it_judges_and_times_generated_kernels(tmp_path: Path) -> None:
    with LlmServer(*(answer(proposal(s)) for s in (COALESCED, TWICE)), models=["instant"]) as server:
        state, _ = finished(tmp_path, server, steps=3)
    assert state.counts == {Status.OK: 3}
    assert state.best is not None and state.best.variant == "attempt-002"


def test_drafts_are_evaluated_within_the_turns_of_a_beam(tmp_path: Path) -> None:
    def model(asked: Asked) -> Step:
        if "different ideas" in str(asked.messages[1]["content"]):
            return answer({"ideas": [{"idea": f"idea {asked.number} {i}", "why": ""} for i in (1, 2)]})
        kernel = proposal(unrolled(asked.number))
        drafted = any(message["role"] == "tool" for message in asked.messages)
        return answer(kernel) if drafted else call("evaluate", kernel)

    with LlmServer(default=model, models=["instant"]) as server:
        state, told = finished(tmp_path, server, steps=9, strategy="beam", drafts=1)
    assert state.counts == {Status.OK: 9}
    assert len(told) >= 4 and all("of the physical floor's speed" in text for text in told)
    assert state.best is not None and state.best.variant.startswith("attempt-")

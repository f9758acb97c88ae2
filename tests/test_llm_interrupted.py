"""The LLM agent interrupted anywhere: nothing is paid or evaluated twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from llm_runs import SIGNATURE, Run, beam_answer, failing_beam_answer, propose
from llm_server import LlmServer
from llm_steps import answer, hang

from warpdeck.core.errors import UsageError
from warpdeck.core.model import Evaluation
from warpdeck.sessions.launch import launch_run, resume_run
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def server():
    with LlmServer() as found:
        yield found


def interrupted(run: Run, kind: str, nth: int) -> list[tuple[str, Mapping[str, Any]]]:
    """The events up to the nth of a kind, that one included."""
    seen = 0
    for i, (k, _) in enumerate(run.events):
        seen += k == kind
        if seen == nth:
            return run.events[: i + 1]
    raise AssertionError(f"only {seen} {kind} events")


def _faster(asked):
    number = asked.messages[-1]["content"].count("attempt ")
    best = asked.messages[-1]["content"].partition("takes ")[2].partition(" us")[0]
    us = float(best or 800) * 0.8
    return answer(propose(f"takes {us:.1f} us", idea=f"from {number} attempts to {us:.1f}"))


@pytest.mark.parametrize(
    ("strategy", "model"),
    [("linear", _faster), ("beam", beam_answer), ("beam", failing_beam_answer)],
    ids=["linear", "beam", "beam that repairs"],
)
@pytest.mark.parametrize(
    ("kind", "nth"),
    [("response", 1), ("response", 3), ("attempt", 5), ("evaluation", 2), ("evaluation", 4), ("request", 4)],
)
def test_a_run_killed_anywhere_repeats_no_paid_request_and_no_evaluation(
    tmp_path, strategy, model, kind, nth
):
    with LlmServer(default=model) as server:
        first = Run(tmp_path, server, strategy=strategy, stagnation=0)
        first.search(6)
        whole = {a["attempt"]: (a["idea"], a["kept"]) for a in first.attempts}
        past = interrupted(first, kind, nth)
        answered = sum(k == "response" for k, _ in past)
        evaluated = [d for k, d in past if k == "evaluation"]
        before = len(server.asked)
        again = Run(tmp_path, server, strategy=strategy, stagnation=0, past=past)
        known = [Evaluation.from_json(d) for d in evaluated]
        again.bench.restore([Evaluation.from_json(d) for k, d in past if k == "baseline"], known)
        report = again.search(6, told=[(e.candidate, e) for e in known])
        paid = len(server.asked) - before
    assert report.steps == 6
    total = sum(k == "response" for k, _ in first.events)
    assert paid == total - answered
    done = [d["variant"] for d in again.of("evaluation")]
    assert not set(done) & {d["variant"] for d in evaluated}
    if strategy == "linear":  # beam's made-up ideas depend on the order in which requests arrive
        assert whole == _merged(past, again)


def _merged(past, again: Run) -> dict[int, tuple[str, bool]]:
    events = [*past, *again.events]
    return {d["attempt"]: (d["idea"], d["kept"]) for k, d in events if k == "attempt"}


def test_a_source_that_is_gone_is_refused_plainly(tmp_path, server):
    server.say(answer(propose("takes 100 us")))
    first = Run(tmp_path, server)
    first.search(2)
    (tmp_path / "artifacts/attempts/attempt-002.cu").unlink()
    with pytest.raises(UsageError, match=r"attempt-002\.cu"):
        Run(tmp_path, server, past=first.events)


# -- whole runs in processes of their own ----------------------------------------------------------------


BODY = """ {
    const long long row = blockIdx.y * 16LL + threadIdx.y, col = blockIdx.x * 16LL + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}
"""


def real(source: str) -> dict[str, Any]:
    """A proposal of a real kernel."""
    return {**propose("x"), "source": source}


@pytest.mark.skipif(shutil.which("g++") is None, reason="the device cpu needs g++")
def test_a_run_on_the_cpu_killed_in_mid_request_goes_on_without_paying_twice(tmp_path):
    good = SIGNATURE + BODY
    with LlmServer(
        answer(real(f"{SIGNATURE} {{ undefined = 1; }}\n")),
        answer(real(good.replace("i * n + col", "i * n"))),
        hang(),
        default=lambda asked: answer(real(f"// request {asked.number}\n{good}")),
    ) as server:
        options = {"base_url": server.url}
        spec = RunSpec(
            "gemm", agent="llm", device="cpu", space="ladder", sizes=(32,), steps=5, options=options
        )
        run = launch_run(spec, sessions=tmp_path)
        server.wait_for(3, timeout_s=120)  # the third request hangs: the first two are paid
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        asked = len(server.asked)
        again = resume_run(run.folder)
        again.wait(120)
        prompts_sent = [a.messages[-1]["content"] for a in server.asked]
    with SessionStore.open(run.folder) as store:
        events = list(store.events())
    assert asked == 3 and len(prompts_sent) == 5  # the third again, then one for each attempt left
    assert prompts_sent[2] == prompts_sent[3] and len(set(prompts_sent)) == 4
    evaluations = [e.data["variant"] for e in events if e.kind == "evaluation"]
    assert evaluations == ["naive", *(f"attempt-{n:03d}" for n in range(2, 6))]
    statuses = [e.data["status"] for e in events if e.kind == "evaluation"]
    assert statuses == ["ok", "compile_error", "incorrect", "ok", "ok"]
    attempts = {e.data["attempt"]: e.data for e in events if e.kind == "attempt"}
    assert [attempts[n]["repairs"] for n in (3, 4, 5)] == [2, 3, None]
    (result,) = [e.data for e in events if e.kind == "result"]
    assert result["best"]["variant"] == "attempt-005" and result["best"]["score_ms"] is None

"""The LLM agent on a real GPU: verdicts from paired samples, drafts within a turn, and tools that look into
generated kernels. (Whole runs: test_gpu_llm_session, which no device may be open beside.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from llm_kernels import COALESCED, TWICE, proposal, unrolled
from llm_runs import Run
from llm_server import LlmServer
from llm_steps import Asked, Step, answer, call

from warpdeck.core.devices import Device
from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.telemetry import sanitizer
from warpdeck.telemetry.ncu import run as ncu
from warpdeck.telemetry.ncu.errors import NcuError

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = CudaDevice(0)
    yield opened
    opened.close()


def test_a_faster_kernel_is_kept_and_the_same_again_is_a_tie(device: Device, tmp_path: Path) -> None:
    first, second = map(proposal, (COALESCED, TWICE))
    with LlmServer(answer(first), answer(second)) as server:
        run = Run(tmp_path, server, device=device, stagnation=0)
        assert run.search(3).steps == 3
        prompt = server.asked[1].messages[-1]["content"]
    assert [a["kept"] for a in run.attempts] == [True, True, False]
    assert [a["verdict"] for a in run.attempts[1:]] == ["win", "tie"]
    assert "times as fast as attempt 1" in run.attempts[1]["reason"]
    assert "of the physical floor's speed" in prompt and "occupancy" in prompt


def test_a_compile_error_s_log_reaches_the_repair(device: Device, tmp_path: Path) -> None:
    broken = COALESCED.replace("float sum", "float summ")
    proposals = map(proposal, (broken, COALESCED))
    with LlmServer(*map(answer, proposals)) as server:
        run = Run(tmp_path, server, device=device)
        run.search(3)
        repair = server.asked[1].messages[-1]["content"]
    assert run.attempts[2]["repairs"] == 2 and run.attempts[2]["kept"]
    assert "attempt-002.cu" in repair and 'identifier "sum" is undefined' in repair


def test_tools_look_into_generated_kernels(device: Device, tmp_path: Path) -> None:
    one = {"attempt": 2}
    code = {"kind": "sass", "kernel": "tile", "contains": "FFMA", "first": 1, "count": 9}
    with LlmServer(
        answer(proposal(COALESCED)),
        call("timeline", {**one, "case": "256"}, "resources", one),
        call("machine_code", {**one, **code}),
        answer(proposal(TWICE)),
    ) as server:
        run = Run(tmp_path, server, device=device)
        run.search(3)
    timeline, resources, sass = (data["result"] for data in run.of("tool"))
    assert "multiply" in timeline and "of the warps' time" in timeline
    assert "tile: " in resources and "occupancy" in resources
    assert "FFMA" in sass or "nvdisasm" in sass


def test_the_sanitizer_finds_what_a_generated_kernel_does_wrong(device: Device, tmp_path: Path) -> None:
    try:
        sanitizer.find()
    except sanitizer.SanitizerError as error:
        pytest.skip(str(error))
    wrong = COALESCED.replace("row < m && col < n) c[", "row <= m && col < n) c[")
    with LlmServer(
        answer(proposal(wrong)),
        call("sanitize", {"attempt": 2}),
        answer(proposal(COALESCED)),
    ) as server:
        run = Run(tmp_path, server, device=device)
        run.search(3)
    (tool,) = run.of("tool")
    assert not run.attempts[1]["kept"] and run.attempts[2]["kept"]
    assert "memcheck: incorrect" in tool["result"]


def test_counters_of_each_valid_attempt_are_kept_and_told(device: Device, tmp_path: Path) -> None:
    try:
        ncu.find()
    except NcuError as error:
        pytest.skip(str(error))
    with LlmServer(
        answer(proposal(COALESCED)),
        call("counters", {"attempt": 2, "case": "256"}),
        answer(proposal(TWICE)),
    ) as server:
        run = Run(tmp_path, server, device=device, counters=True)
        run.search(3)
        prompt = server.asked[1].messages[-1]["content"]
    diagnosis = run.attempts[1]["diagnosis"]
    if diagnosis and diagnosis[0].startswith("no counters"):
        pytest.skip(diagnosis[0])
    assert diagnosis[0].startswith("counters, case 256") and diagnosis[1] in prompt
    assert (tmp_path / "artifacts/attempts/attempt-002.ncu-rep").stat().st_size > 0
    assert "counters, case 256" in run.of("tool")[0]["result"]


def test_a_draft_is_timed_and_ranked_within_the_turn(device: Device, tmp_path: Path) -> None:
    first, second = proposal(COALESCED), proposal(TWICE)
    broken = proposal(COALESCED.replace("float sum", "float summ"))
    with LlmServer(call("evaluate", broken), call("evaluate", first), answer(second)) as server:
        run = Run(tmp_path, server, device=device, stagnation=0)
        assert run.search(4).steps == 4
    failed, timed = (tool["result"] for tool in run.of("tool"))
    assert "compile_error" in failed and 'identifier "sum" is undefined' in failed
    assert "of the physical floor's speed" in timed and "kept" in timed
    assert [(a["draft"], a["verdict"]) for a in run.attempts[1:]] == [
        (True, None),
        (True, "win"),
        (False, "tie"),
    ]


def test_turns_that_draft_and_look_at_the_same_time_do_not_disturb_what_is_timed(
    device: Device, tmp_path: Path
) -> None:
    def model(asked: Asked) -> Step:
        if "different ideas" in str(asked.messages[1]["content"]):
            return answer({"ideas": [{"idea": f"idea {asked.number} {i}", "why": ""} for i in (1, 2)]})
        done = sum(message["role"] == "tool" for message in asked.messages)
        if done == 0 and asked.number % 2:  # compute-sanitizer has contexts of its own on the GPU
            return call("sanitize", {"attempt": 1})
        kernel = proposal(unrolled(asked.number))
        return answer(kernel) if "evaluate" in str(asked.messages[2:]) else call("evaluate", kernel)

    with LlmServer(default=model) as server:
        run = Run(tmp_path, server, device=device, strategy="beam", stagnation=0, drafts=1)
        assert run.search(7).steps == 7
    evaluations, tools = run.of("evaluation"), run.of("tool")
    assert [(e["status"], e["message"]) for e in evaluations] == [("ok", "")] * 7
    assert len({e["candidate"] for e in evaluations}) == 7
    assert not any(e["same_as"] for e in evaluations)  # each was measured
    assert {tool["name"] for tool in tools} == {"sanitize", "evaluate"}
    assert all("of the physical floor's speed" in t["result"] for t in tools if t["name"] == "evaluate")
    assert sum(a["draft"] for a in run.attempts) >= 2
    best = run.bench.finish().to_json()["best"]
    assert best["status"] == "ok" and best["speedup_ci"][0] > 1

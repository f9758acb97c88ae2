"""The LLM agent on a real GPU: verdicts from paired samples, and tools that look into generated kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from llm_runs import SIGNATURE, Run, propose
from llm_server import LlmServer
from llm_steps import answer, call

from warpdeck.core.devices import Device
from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.core.errors import ExitCode
from warpdeck.sessions import launch
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry import sanitizer
from warpdeck.telemetry.ncu import run as ncu
from warpdeck.telemetry.ncu.errors import NcuError

pytestmark = pytest.mark.gpu

HEAD = "#include <warpdeck/trace.cuh>\nWD_STAGES(multiply, store)\n"
MARKED = SIGNATURE.replace("long long k)", "long long k WD_TRACE_PARAM)")
BODY = """ {
    WD_TRACE_BEGIN();
    const long long row = blockIdx.y * 16LL + threadIdx.y, col = blockIdx.x * 16LL + threadIdx.x;
    float sum = 0.0f;
    WD_PUSH(multiply);
    if (row < m && col < n)
        for (long long i = 0; i < k; ++i) sum = fmaf(a[row * k + i], b[i * n + col], sum);
    WD_PIN(sum);
    WD_POP(multiply);
    WD_PUSH(store);
    if (row < m && col < n) c[row * n + col] = sum;
    WD_POP(store);
    WD_TRACE_END();
}
"""
COALESCED = HEAD + MARKED + BODY
TWICE = COALESCED.replace("float sum = 0.0f;", "float sum = 0.0f;  // the same machine code")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = CudaDevice(0)
    yield opened
    opened.close()


# First in this file: a run has a process of its own, which `device` would keep from the GPU.
def test_a_whole_session_judges_and_times_generated_kernels(tmp_path: Path, monkeypatch) -> None:
    proposals = [{**propose("x"), "source": source} for source in (COALESCED, TWICE)]
    with LlmServer(*(answer(p) for p in proposals), models=["instant"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = {"model": "instant", "stagnation": 0}
        spec = RunSpec("gemm", "llm", "cuda:0", "ladder", (256,), steps=3, options=options, finalists=2)
        run = launch.launch_run(spec, sessions=tmp_path)
        assert run.wait(90) is ExitCode.OK
    with SessionStore.open(run.folder) as store:
        state = store.state()
    assert state.counts == {"ok": 3}
    assert state.best is not None and state.best.variant.startswith("attempt-")


def test_a_faster_kernel_is_kept_and_the_same_again_is_a_tie(device: Device, tmp_path: Path) -> None:
    first, second = ({**propose("x"), "source": source} for source in (COALESCED, TWICE))
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
    proposals = [{**propose("x"), "source": source} for source in (broken, COALESCED)]
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
        answer({**propose("x"), "source": COALESCED}),
        call("timeline", {**one, "case": "256"}, "resources", one),
        call("machine_code", {**one, **code}),
        answer({**propose("x"), "source": TWICE}),
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
        answer({**propose("x"), "source": wrong}),
        call("sanitize", {"attempt": 2}),
        answer({**propose("x"), "source": COALESCED}),
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
        answer({**propose("x"), "source": COALESCED}),
        call("counters", {"attempt": 2, "case": "256"}),
        answer({**propose("x"), "source": TWICE}),
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

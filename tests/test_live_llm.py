"""The LLM agent on a live device, on workers that need no GPU: a fresh one for each kernel of a model."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from imitation import Imitation
from llm_runs import SIGNATURE, propose
from llm_server import LlmServer
from llm_steps import Asked, Step, answer

from warpdeck.core.devices import cuda
from warpdeck.core.errors import ExitCode
from warpdeck.kernels import load_workload
from warpdeck.sessions import launch
from warpdeck.sessions.runner import run_sessions
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

pytest.importorskip("cuda.bindings.nvrtc", reason="live runs compile")
pytest.importorskip("openai", reason="needs the llm extra")

BODY = "{ if (threadIdx.x == %d) c[%d] = a[0]; %s}\n"
SLOW = "c[0] = " + " + ".join(f"sinf(a[{i}])" for i in range(100)) + ";"  # takes the compiler seconds


class Model:
    """Has two ideas for each parent, and a new kernel for each idea; the first takes the compiler seconds."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, asked: Asked) -> Step:
        if '"ideas"' in str(asked.body.get("response_format")).replace("'", '"'):
            return answer({"ideas": [{"idea": f"idea {i}", "why": "to see"} for i in range(2)]})
        self.count += 1
        first = "\nidea 0 (" in asked.messages[-1]["content"] and self.count <= 2
        more = SLOW if first else ""
        return answer({**propose(""), "source": SIGNATURE + BODY % (self.count, self.count, more)})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Imitation, Path]:
    """The workers' log of a run of six steps, and its session."""
    workload = load_workload("gemm")
    reference = workload.reference_module().reference
    imitation = Imitation({frozenset(a.name for a in workload.arguments): reference}, torch=False)
    home = tmp_path_factory.mktemp("home")
    options = {"model": "instant", "strategy": "beam", "parents": 2, "ideas": 2, "stagnation": 0}
    spec = RunSpec("gemm", "llm", "cuda:0", "ladder", (64,), steps=6, options=options, finalists=2)
    with LlmServer(default=Model(), models=["instant"]) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "ForkServer", lambda: imitation)
        patch.setattr(cuda, "_require_driver", lambda: None)
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("WARPDECK_HOME", str(home))
        patch.setenv("WARPDECK_LOCK_DIR", str(home))
        with launch.create(spec) as store:
            folder = store.folder
        assert run_sessions([folder]) is ExitCode.OK
    return imitation, folder


def jobs_of(imitation: Imitation) -> dict[int, list[tuple[str, dict[str, Any]]]]:
    found: dict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for worker, job, payload in imitation.log:
        found[worker].append((job, payload))
    return found


def test_each_kernel_of_a_model_has_a_worker_and_a_pair_of_kernels_another(
    run: tuple[Imitation, Path],
) -> None:
    imitation, folder = run
    with SessionStore.open(folder) as store:
        state = store.state()
    assert state.counts == {"ok": 6}
    measured, compared, again = [], [], []
    for jobs in jobs_of(imitation).values():
        kinds = {job for job, _ in jobs}
        loaded = {payload["code"] for job, payload in jobs if job == "load"}
        if "pair" in kinds:
            compared.append(loaded)
            assert not kinds & {"run", "time", "floors"}
        elif any(payload["poison"] for job, payload in jobs if job == "run"):  # of code of others
            (measured if "time" in kinds else again).append(loaded)
    assert len(measured) == 5 and all(len(codes) == 1 for codes in measured)
    assert len(set.union(*measured)) == 5
    assert compared and all(len(codes) == 2 for codes in compared)
    assert again and all(len(codes) == 1 for codes in again)  # the result, on data that no verdict told about


def test_what_is_compiled_is_judged_first_and_told_in_order(run: tuple[Imitation, Path]) -> None:
    imitation, folder = run
    with SessionStore.open(folder) as store:
        told = [event.data for event in store.events() if event.kind == "evaluation"]
    assert [data["variant"] for data in told[1:]] == [f"attempt-{n:03d}" for n in range(2, 7)]
    timed = [payload["code"] for _, job, payload in imitation.log if job == "time" and payload["poison"]]
    assert sorted(timed) == sorted(data["candidate"] for data in told[1:])
    assert timed[:2] == [told[2]["candidate"], told[1]["candidate"]]  # the first one compiles for long


def test_no_context_is_created_while_a_kernel_is_timed(run: tuple[Imitation, Path]) -> None:
    imitation, _ = run
    assert imitation.count("open") > 6 and imitation.count("time") > 5
    assert not imitation.overlaps


def test_what_a_run_spent_on_measuring_is_in_its_log(run: tuple[Imitation, Path]) -> None:
    with SessionStore.open(run[1]) as store:
        events = list(store.events())
    judged = [event.data for event in events if event.kind == "evaluation"]
    assert judged[0]["check_s"] == 0  # the initial kernel is the baseline, which was measured just before
    assert all(data["check_s"] > 0 and data["time_s"] > 0 for data in judged[1:])
    (result,) = [event.data for event in events if event.kind == "result"]
    assert result["compared_s"] > 0
    spent = sum(data["check_s"] + data["time_s"] for data in judged) + result["compared_s"]
    assert spent < events[-1].t - events[0].t

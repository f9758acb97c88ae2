"""Runs on a live device, on workers that need no GPU: what is shared, what is fresh, what waits for what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imitation import Imitation

from warpdeck.core.devices import cuda
from warpdeck.core.errors import ExitCode
from warpdeck.kernels import load_workload
from warpdeck.sessions import launch
from warpdeck.sessions.runner import run_sessions
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

NAMES = ("gemm", "reduction", "softmax")
pytest.importorskip("numba", reason="live runs compile")
pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def imitate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Imitation]:
    def start(**options: Any) -> Imitation:
        workloads = [load_workload(name) for name in NAMES]
        references = {
            frozenset(a.name for a in w.arguments): w.reference_module().reference for w in workloads
        }
        server = Imitation(references, **options)
        monkeypatch.setattr(cuda, "ForkServer", lambda: server)
        monkeypatch.setattr(cuda, "_require_driver", lambda: None)
        return server

    return start


def sweeps(*names: str, **changes: Any) -> list[Path]:
    spec = {"agent": "sweep", "device": "cuda:0", "space": "classic", "sizes": (64,), "steps": 100, **changes}
    folders = []
    for name in names:
        with launch.create(RunSpec(name, **spec)) as store:
            folders.append(store.folder)
    return folders


def events(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    with SessionStore.open(folder) as store:
        return [(event.kind, dict(event.data)) for event in store.events()]


def test_the_runs_of_a_sweep_share_a_device(imitate: Callable[..., Imitation]) -> None:
    server = imitate()
    folders = sweeps(*NAMES)
    assert run_sessions(folders) is ExitCode.OK
    for folder in folders:
        kinds = [kind for kind, _ in events(folder)]
        assert kinds.count("evaluation") == 9 and kinds.count("vendor") == kinds.count("result") == 1
        with SessionStore.open(folder) as store:
            state = store.state()
        assert state.result is not None and state.result["vendor_ratio"] > 0.5
        assert all(e.vendor_ratio for e in state.leaderboard) and state.exit_code == 0
    assert server.count("floors") == server.count("vendor_import") == 1
    assert server.count("vendor_start") == 3 and server.count("vendor") == 3
    # One context to measure and one to compare for each, and the vendor's.
    assert server.count("open") == 7
    assert not server.overlaps and server.closed


def test_contexts_that_compare_ran_nothing_else(imitate: Callable[..., Imitation]) -> None:
    server = imitate()
    assert run_sessions(sweeps("softmax")) is ExitCode.OK
    jobs: dict[int, set[str]] = {}
    for worker, job, _ in server.log:
        jobs.setdefault(worker, set()).add(job)
    comparing = [done for done in jobs.values() if "pair" in done]
    assert len(comparing) == 1 and not comparing[0] & {"run", "time", "vendor", "floors"}


def test_a_run_does_not_wait_for_the_vendors_library(imitate: Callable[..., Imitation]) -> None:
    server = imitate(import_until="time")
    (folder,) = sweeps("reduction")
    assert run_sessions([folder]) is ExitCode.OK
    kinds = [kind for kind, _ in events(folder) if kind in ("start", "baseline", "vendor", "result")]
    assert kinds[:2] == ["start", "baseline"] and kinds[-1] == "result" and "vendor" in kinds
    order = [job for _, job, _ in server.log]
    assert order.index("vendor_import") < order.index("floors")


def test_without_the_vendors_library_a_run_says_so_once(imitate: Callable[..., Imitation]) -> None:
    imitate(torch=False)
    folders = sweeps("softmax", "reduction")
    assert run_sessions(folders) is ExitCode.OK
    for folder in folders:
        log = events(folder)
        said = [data["text"] for kind, data in log if kind == "message"]
        assert said == ["the vendor's time is missing: no vendor time: no torch"]
        result = next(data for kind, data in log if kind == "result")
        assert result["vendor_ratio"] is None and result["best"] is not None
        assert "vendor" not in [kind for kind, _ in log]


def test_the_first_run_that_fails_ends_the_sweep(imitate: Callable[..., Imitation]) -> None:
    server = imitate(wrong=True)
    folders = sweeps("softmax", "reduction")
    assert run_sessions(folders) is ExitCode.RUN_FAILED
    assert events(folders[1]) == [] and server.closed

"""The run process's side of jobs on a case, against a worker at the other end of a real socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

from warpdeck.core.check import POOL, CheckPlan
from warpdeck.core.model import Case, Launch, Role, Status
from warpdeck.core.toolchain import Compiled, KernelInfo
from warpdeck.core.worker import ForkServer, WorkerHandle, Workers, wire
from warpdeck.core.worker.session import Code, Session
from warpdeck.core.worker.watch import Watch
from warpdeck.kernels import load_workload
from warpdeck.kernels.scaffold import new_workload


def serve(sock: socket.socket, jobs: list[str]) -> None:
    """A worker whose memory runs out in its first run; it knows only the draws that it was told of."""
    channel = wire.Channel(sock)
    draws: set[int] = set()
    while True:
        try:
            message = channel.receive()
        except wire.Closed:
            return
        job, payload = message["job"], message["payload"]
        jobs.append(job)
        reply: dict[str, Any] = {"result": {"damage": "so far", "seed": payload.get("seed")}}
        if job == "bind":
            draws = {int(seed) for seed in payload["seeds"]}
        elif job == "seed":
            draws.add(payload["seed"])
        elif job == "run" and jobs.count("run") == 1:
            reply = {"fault": {"status": str(Status.OUT_OF_MEMORY), "message": "full", "fatal": False}}
        elif job == "run" and payload["seed"] not in draws:
            reply = {"fault": {"status": str(Status.UNSUPPORTED), "message": "isn't bound", "fatal": False}}
        channel.send(reply)


def test_out_of_memory_is_tried_again_with_the_same_draw(tmp_path: Path) -> None:
    new_workload(tmp_path / "axpy", "cuda")
    workload = load_workload(tmp_path / "axpy")
    case = Case("small", Role.CORRECTNESS, {"n": 100})
    ours, theirs = socket.socketpair()
    jobs: list[str] = []
    threading.Thread(target=serve, args=(theirs, jobs), daemon=True).start()
    info = KernelInfo("axpy", 8, 0, 0, 0, 0, 64)
    code = Code(
        "k",
        "kernel",
        Compiled("cuda", (9, 0), b"", {"axpy": info}, "hash"),
        {"small": (Launch("axpy", (1, 1, 1), (128, 1, 1)),)},
    )
    handle = WorkerHandle(ForkServer(), 0, ours)
    with CheckPlan(workload, [case], seed=1) as plan:
        session = Session(Workers(lambda: handle, lambda handle: None), workload, plan, Watch("GPU-none"))
        draw = POOL + 1  # partly changed: none of those a worker is bound with
        assert draw not in session.draws(case)
        found = session.check(session.warm(), code, case, draw)
        assert (found.status, found.reason) == (Status.INCORRECT, "so far")
        assert jobs[-5:] == ["run", "release", "bind", "seed", "run"]
        session.close()
    theirs.close()

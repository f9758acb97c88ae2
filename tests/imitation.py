"""Workers without a GPU: they answer the jobs of live devices, with right outputs and made-up times.

All above the workers' sockets (devices, compilers, checks, ranking, sessions) is the real thing.
"""

from __future__ import annotations

import inspect
import itertools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from warpdeck.core.worker import WorkerHandle, wire

UUID = "GPU-0"
FACTS = {
    "name": "Imitation",
    "uuid": UUID,
    "compute_capability": (9, 0),
    "sm_count": 4,
    "l2_bytes": 1 << 20,
    "memory_bytes": 1 << 30,
    "free_bytes": 1 << 30,
    "cuda_version": 13000,
    "sm_clock_max_mhz": 1000.0,
    "dram_gbs": 1e6,
    "fp32_tflops": 1e3,
    "max_threads": 1024,
    "max_shared_bytes": 227 << 10,
    "clock": "imitated",
    "cupti_error": None,
}
FLOORS = {"launch_ms": 1e-4, "l2_read_gbs": 1e6, "dram_read_gbs": 4500.0, "fp32_tflops": 60.0}
MEASURING = ("time", "pair", "vendor", "floors")  # no context may be created beside one


class Imitation:
    """Stands in for the fork server. `log` holds (worker, job, payload) in order.

    Args:
        references: of the workloads in play, by the names of their arguments.
        torch: whether the vendor's library imports.
        import_until: the job before whose first start the vendor's library isn't imported; None: at once.
        wrong: whether kernels compute something else.
    """

    def __init__(
        self,
        references: Mapping[frozenset[str], Callable[..., Any]],
        *,
        torch: bool = True,
        import_until: str | None = None,
        wrong: bool = False,
    ) -> None:
        self.references = references
        self.torch = torch
        self.import_until = import_until
        self.wrong = wrong
        self.log: list[tuple[int, str, dict[str, Any]]] = []
        self.overlaps: list[list[str]] = []
        self.closed = False
        self._numbers = itertools.count(1)
        self._busy: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Imitation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True

    def first(self, device: int) -> WorkerHandle:
        """A worker that nobody began to start."""
        return self.fork()

    def library(self) -> Any:
        """A worker for the vendor's library, which nobody began to import."""
        return self.fork()

    def fork(self) -> WorkerHandle:
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        threading.Thread(target=self._serve, args=(theirs, number), daemon=True).start()
        return WorkerHandle(self, number, ours)  # pyright: ignore[reportArgumentType]

    def reap(self, pid: int, *, kill: bool, wait_s: float = 0) -> tuple[bool, int | None]:
        return True, 0

    def last_words(self) -> str:
        return ""

    def count(self, job: str) -> int:
        """How often a job was done."""
        return sum(done == job for _, done, _ in self.log)

    def _serve(self, sock: socket.socket, number: int) -> None:
        channel = wire.Channel(sock)
        worker = _Worker(self, number)
        while True:
            try:
                message = channel.receive()
                job, payload = message["job"], message["payload"]
                with self._lock:
                    self.log.append((number, job, payload))
                    pairs = [{job, other} for other in self._busy]
                    self.overlaps += [sorted(p) for p in pairs if "open" in p and p & set(MEASURING)]
                    self._busy.append(job)
                try:
                    reply = worker.do(job, payload)
                finally:
                    self._busy.remove(job)
                channel.send(reply)
            except wire.Closed:
                return


class _Worker:
    def __init__(self, server: Imitation, number: int) -> None:
        self._server = server
        self._bound: dict[str, dict[str, Any]] = {}
        self._rng = np.random.default_rng(number)

    def do(self, job: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The reply to a job."""
        if job == "vendor_import":
            until = self._server.import_until
            while until and not self._server.count(until):
                time.sleep(0.002)
            if not self._server.torch:
                fault = {"status": "unsupported", "message": "no vendor time: no torch", "fatal": False}
                return {"fault": fault}
        if job in MEASURING or job == "open":
            time.sleep(0.2 if job == "open" else 0.005)
        return {"result": getattr(self, f"_{job}", lambda payload: {})(payload)}

    def _init(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {"uuid": UUID}

    def _open(self, payload: dict[str, Any]) -> dict[str, Any]:
        return FACTS

    def _floors(self, payload: dict[str, Any]) -> dict[str, Any]:
        return FLOORS

    def _bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._bound[payload["key"]] = payload
        return {}

    def _seed(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._bound[payload["key"]]["seeds"][str(payload["seed"])] = payload["inputs"]
        return {}

    def _run(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._compute(self._bound[payload["key"]], payload["seed"])
        return {"damage": None, "seed": payload["seed"]}

    def _time(self, payload: dict[str, Any]) -> dict[str, Any]:
        bound = self._bound[payload["key"]]
        seed = int(next(iter(bound["seeds"])))
        self._compute(bound, seed)
        return {**self._samples(payload["code"], 40), "damage": None, "seed": seed}

    def _pair(self, payload: dict[str, Any]) -> dict[str, Any]:
        a, b = (self._draw(payload[side]["code"], 2 * payload["blocks"]).reshape(-1, 2) for side in "ab")
        return {"clock": FACTS["clock"], "a_ms": a.tolist(), "b_ms": b.tolist()}

    def _vendor(self, payload: dict[str, Any]) -> dict[str, Any]:
        return self._samples("vendor", 40)

    def _samples(self, code: str, count: int) -> dict[str, Any]:
        return {"samples_ms": self._draw(code, count).tolist(), "clock": FACTS["clock"]}

    def _draw(self, code: str, count: int) -> np.ndarray:
        """10 to 12 µs, the same for a code wherever it runs, give or take 0.5%."""
        centre = 0.01 + 0.002 * (sum(code.encode()) % 97) / 97
        return centre * np.exp(self._rng.normal(0, 0.005, count))

    def _compute(self, bound: dict[str, Any], seed: int) -> None:
        arguments = {a["name"]: a for a in bound["arguments"]}
        reference = self._server.references[frozenset(arguments)]
        values: dict[str, Any] = {}
        for name, place in bound["seeds"][str(seed)].items():
            a = arguments[name]
            array = np.memmap(place["path"], dtype=a["dtype"], mode="r", shape=tuple(a["shape"]))
            values[name] = array.astype(np.float64)
        values |= {name: a["value"] for name, a in arguments.items() if a["kind"] == "scalar"}
        accepted = inspect.signature(reference).parameters
        found = reference(**{name: value for name, value in values.items() if name in accepted})
        for name, place in bound["outputs"].items():
            a = arguments[name]
            result = found[name] if isinstance(found, Mapping) else found
            written = np.memmap(place["path"], dtype=a["dtype"], mode="r+", shape=tuple(a["shape"]))
            written[...] = result + self._server.wrong

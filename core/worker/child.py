"""The worker: one process, one CUDA context, jobs over a socket until it closes.

Forked from the fork server, which has imported this module; CUDA starts in the `init` job. Jobs and their
payloads are the methods called `job_…`; `client.WorkerHandle` is their caller.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import traceback
from collections.abc import Mapping
from typing import Any

from ..model import CacheMode, Protocol, Status
from . import wire
from .buffers import Binding
from .clocks import CuptiClock
from .cupti import CuptiError, KernelRecords
from .faults import WorkerFault
from .floors import floors, limits
from .gpu import Gpu, load_driver
from .lane import HELPER_ENTRIES, Lane
from .measure import Meter, Subject
from .trace import NOT_TRACED, Tracer, trace_once

_FAULT_EXIT = 3


def preload() -> None:
    """Import, before the fork, what every worker needs. Touches neither CUDA nor CUPTI's library."""
    with contextlib.suppress(WorkerFault):  # the `init` job says so
        load_driver()


def main(sock: socket.socket) -> int:
    """Serve jobs. Returns the process's exit code."""
    channel = wire.Channel(sock)
    worker = Worker(channel)
    while True:
        try:
            message = channel.receive()
        except wire.Closed:
            return 0
        fatal = False
        try:
            job = getattr(worker, f"job_{message['job']}", None)
            if job is None:
                raise WorkerFault(Status.UNSUPPORTED, f"no job {message['job']!r}")
            reply: dict[str, Any] = {"result": job(message.get("payload") or {})}
        except WorkerFault as fault:
            fatal = fault.fatal
            reply = {"fault": {"status": str(fault.status), "message": fault.message, "fatal": fatal}}
        except Exception as error:  # noqa: BLE001 - a bug of ours: tell, with its place, and end
            fatal = True
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({place.name}, {place.filename}:{place.lineno})"
            reply = {"fault": {"status": str(Status.RUNTIME_ERROR), "message": text, "fatal": True}}
            traceback.print_exc()
        try:
            channel.send(reply)
        except wire.Closed:
            return 0
        if fatal:
            return _FAULT_EXIT


class Worker:
    """State of one worker: the context, loaded code, bindings."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._gpu: Gpu | None = None
        self._meter: Meter | None = None
        self._progress = 0  # number of the item that a long job is at
        self._languages: dict[str, str] = {}
        self._bindings: dict[str, Binding] = {}
        self._subjects: dict[str, Any] = {}  # Subject, by code|key|launches
        self._tracer: Tracer | None = None

    def _tick(self) -> None:
        self._channel.send({"tick": self._progress})

    @property
    def gpu(self) -> Gpu:
        """The context. Raises WorkerFault before `init`."""
        if self._gpu is None:
            raise WorkerFault(Status.UNSUPPORTED, "the worker has no context yet")
        return self._gpu

    @property
    def meter(self) -> Meter:
        """What measures. Raises WorkerFault where the helper kernels weren't loaded."""
        if self._meter is None:
            raise WorkerFault(Status.UNSUPPORTED, "the worker has no helper kernels yet")
        return self._meter

    def job_ping(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing; for liveness, also of the context if there is one."""
        if self._gpu is not None and self._gpu.stream is not None:
            self._gpu.synchronize()
        return {"payload": payload.get("payload")}

    def job_init(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Start CUDA, without a context yet. {device, clock: auto|cupti|event} -> uuid"""
        self._cupti, self._cupti_error = None, None
        if payload.get("clock", "auto") != "event":
            try:
                self._cupti = CuptiClock(KernelRecords())
            except CuptiError as error:  # absent, too old for the driver, or taken by a profiler
                self._cupti_error = str(error)
                if payload.get("clock") == "cupti":
                    raise WorkerFault(Status.UNSUPPORTED, str(error), fatal=True) from None
        self._gpu = Gpu(int(payload["device"]))
        return {"uuid": self._gpu.uuid}

    def job_open(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Create the context. -> device facts, `clock`, `cupti_error`"""
        self.gpu.open()
        self._info = self.gpu.info()
        clock = "cupti" if self._cupti else "event"
        return {**self._info, "clock": clock, "cupti_error": self._cupti_error}

    def job_helpers(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Load our own kernels. {cubin}"""
        self.gpu.load("helpers", base64.b64decode(payload["cubin"]), HELPER_ENTRIES)
        lane = Lane(self.gpu, self._cupti, self._info["l2_bytes"])
        self._meter = Meter(lane, self._info["sm_clock_max_mhz"], self._tick)
        return {}

    def job_load(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Load a candidate. {code, cubin, entries: [symbol], language} -> kernels {symbol: attributes}"""
        kernels = self.gpu.load(payload["code"], base64.b64decode(payload["cubin"]), payload["entries"])
        self._languages[payload["code"]] = payload["language"]
        return {"kernels": kernels}

    def job_unload(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Forget a candidate. {code}"""
        self._subjects = {k: s for k, s in self._subjects.items() if not k.startswith(payload["code"] + "|")}
        self.gpu.unload(payload["code"])
        return {}

    def job_bind(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a case's buffers. {key, arguments, seeds, outputs}; memory is taken when first used.

        `seeds` {draw: {argument: {path, offset}}}, `outputs` {argument: {path, offset}}.
        """
        self._release(payload["key"])
        self._bindings[payload["key"]] = Binding(self.gpu, payload)
        return {}

    def job_seed(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Offer one more draw of a case's inputs. {key, seed, inputs: {argument: {path, offset}}}"""
        self._bindings[payload["key"]].add_seed(int(payload["seed"]), payload["inputs"])
        return {}

    def job_release(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Free a case's memory. {key}"""
        self._release(payload["key"])
        return {}

    def _release(self, key: str) -> None:
        self._subjects = {k: s for k, s in self._subjects.items() if k.split("|")[1] != key}
        binding = self._bindings.pop(key, None)
        if binding:
            binding.free()

    def _subject(self, payload: Mapping[str, Any]) -> Subject:
        code, key, poison = payload["code"], payload["key"], bool(payload.get("poison"))
        name = f"{code}|{key}|{payload['launches']}|{poison}"
        if name not in self._subjects:
            if key not in self._bindings:
                raise WorkerFault(Status.UNSUPPORTED, f"case {key!r} isn't bound")
            self._subjects[name] = Subject(
                self.meter.lane,
                self._bindings[key],
                code,
                self._languages.get(code, "cuda"),
                payload["launches"],
                poison=poison,
            )
        return self._subjects[name]

    def job_run(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One checked launch. {code, key, launches, seed, download=true} -> {damage: null | what, seed}

        Outputs are poisoned before and lie in the shared files after.
        """
        subject = self._subject(payload)
        binding = subject.binding
        target = binding.ensure_sets(1)[0]
        binding.fill(target, int(payload["seed"]))
        for operation in (*target.poison(), *subject.prepare(0), *subject.launches(0)):
            operation.queue()
        self.gpu.synchronize()
        return self._verdict(subject, 0, download=payload.get("download", True))

    def _verdict(self, subject: Subject, index: int, *, download: bool) -> dict[str, Any]:
        target = subject.binding.sets[index]
        damage = subject.binding.intact(target)
        if download and damage is None:
            subject.binding.download(target)
        return {"damage": damage, "seed": target.seed}

    def job_clock(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Read times from another clock from now on. {clock: cupti|event}"""
        self.meter.lane.use_clock(payload["clock"])
        return {}

    def job_time(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Measure. {code, key, launches, protocol} -> samples_ms, sm_clock_mhz, clock, damage, seed, …

        The shared files then hold the outputs of a set whose contents changed before a random one of the last
        batch's launches; `seed` says to what.
        """
        subject = self._subject(payload)
        timed = self.meter.measure(subject, _protocol(payload["protocol"]))
        return {
            **timed.to_json(self.meter.lane),
            **self._verdict(subject, timed.swapped, download=payload.get("download", True)),
        }

    def job_pair(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A B B A. {key, a: {code, launches}, b: …, poison, cache, blocks, warmup} -> {a,b}_ms [block][2]

        With `poison` also `damage` and `seed`: the shared files then hold outputs of b, launched after a.
        """
        shared = {"key": payload["key"], "poison": payload.get("poison")}
        a, b = (self._subject({**shared, **payload[which]}) for which in ("a", "b"))
        cache = CacheMode(payload["cache"])
        paired = self.meter.pair(a, b, cache, int(payload["blocks"]), int(payload["warmup"]))
        if not payload.get("poison"):
            return paired
        return {**paired, **self._verdict(b, self.meter.beside(a, b, cache), download=True)}

    def job_rounds(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One measuring round over many candidates, in the order given.

        {key, items: [{code, launches}], caches, samples, warmup} ->
        {items: [{cache: {samples_ms, sm_clock_mhz}} | {fault}]}. Ticks carry the number of the item at work.
        """
        answers: list[dict[str, Any]] = []
        warmup, samples = int(payload["warmup"]), int(payload["samples"])
        for number, item in enumerate(payload["items"]):
            self._progress = number
            self._tick()
            answer: dict[str, Any] = {}
            try:
                subject = self._subject({"key": payload["key"], **item})
                for cache in payload["caches"]:
                    protocol = Protocol(CacheMode(cache), warmup, samples, samples, False)
                    timed = self.meter.measure(subject, protocol)
                    answer[cache] = {"samples_ms": timed.samples_ms, "sm_clock_mhz": timed.sm_clock_mhz}
            except WorkerFault as fault:
                if fault.fatal:
                    raise
                answer = {"fault": {"status": str(fault.status), "message": fault.message}}
            answers.append(answer)
        return {"items": answers, "clock": self.meter.lane.clock}

    def job_quick(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's protocol. {code, key, launches, cache, samples} -> samples_ms"""
        subject = self._subject(payload)
        samples = self.meter.quick(subject, CacheMode(payload["cache"]), int(payload["samples"]))
        return {"samples_ms": samples.tolist()}

    def job_trace(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One traced, checked launch. {code, key, launches, launch, seed, cache, anchor_blocks, files, rows,
        capacity, cta_first, cta_stride, cta_count, warp_mask} -> as `trace_once` and `run`; `launches`

        `files` are those of `rows` and `anchors`. `launches` then record into the same rows again, in any
        job, until the next `trace`.
        """
        if self._tracer is not None:
            self._tracer.free()
            self._tracer = None
        self._tracer = tracer = Tracer(self.gpu, payload)
        launches = [[*launch[:4], NOT_TRACED] for launch in payload["launches"]]
        launches[int(payload["launch"])][4] = tracer.descriptor
        subject = self._subject({**payload, "launches": launches})
        traced = trace_once(self.meter, subject, tracer, payload)
        return {**traced, "launches": launches, **self._verdict(subject, 0, download=True)}

    def job_floors(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """What the device can do at best, on this clock; only what every run needs, if `brief`."""
        return (limits if payload.get("brief") else floors)(self.meter.lane)

    def job_vendor_import(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Import torch, before `init`: a worker that does may take its seconds while others measure."""
        # Loaded eagerly, as a candidate must be, torch's thousands of kernels take seconds and a gigabyte;
        # a vendor call runs several times before it is timed.
        os.environ["CUDA_MODULE_LOADING"] = "LAZY"
        from .vendor import import_torch

        return {"torch": str(import_torch().__version__)}

    def job_vendor_start(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Load a workload's `vendor` function. {path} -> library"""
        from .vendor import Library

        self._library = Library(payload["path"], self.gpu)
        return {"library": self._library.name}

    def job_vendor(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The vendor library's time. {key, protocol} -> as `time`, with `kernels`"""
        from .vendor import VendorSubject, time_vendor

        key = payload["key"]
        name = f"vendor|{key}|"
        if name not in self._subjects:
            self._subjects[name] = VendorSubject(self.meter.lane, self._bindings[key], self._library)
        return time_vendor(self.meter, self._subjects[name], _protocol(payload["protocol"]))


def _protocol(data: Mapping[str, Any]) -> Protocol:
    return Protocol(
        CacheMode(data["cache"]), data["warmup"], data["samples"], data["min_samples"], data["adaptive"]
    )

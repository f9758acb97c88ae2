"""Tracing one launch on a live device: size the rows, launch, check, time against the untraced kernel."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...telemetry.trace import layout
from ...telemetry.trace.timeline import RawTrace
from ..errors import UsageError, VerificationError, WarpdeckError
from ..model import CacheMode, Candidate, Case, DeviceInfo, Launch, Resources, Status
from ..stats import paired_speedup
from ..tracing import ALL_WARPS, TraceOptions
from ..worker import WorkerFault, WorkerHandle
from ..worker.buffers import GUARD_BYTE
from ..worker.exchange import view
from ..worker.session import Code, Session
from ..worker.trace import anchor_blocks, anchors_bytes, row_bytes, watch_bytes
from ..workload import Workload
from .codes import Codes

_CHUNK_BYTES = 32 << 20
_PAIR_S = 3.0  # for timing both kernels
_EVERYWHERE_S = 1.0  # the same where every CTA records
_SMALL_CODE = 24 << 10  # bytes: on an H200 two bodies of up to that ran well side by side, larger ones not
_EVERYWHERE_BYTES = 256 << 20  # of rows, for no more than a time
_PAIR_BLOCKS = (20, 128)
_PAIR_WARMUP = 10
_SIZINGS = 3


@dataclass(frozen=True)
class Selection:
    """Which warps record: CTAs first + i · stride for i < count, and in each the warps of the mask."""

    first: int
    stride: int
    count: int
    warp_mask: int
    of: int  # CTAs of the launch
    followed: bool  # others start when these have ended: the launch doesn't wait for what they take longer

    @property
    def rows(self) -> int:
        """Warps that record."""
        return self.count * self.warp_mask.bit_count()


def select(launch: Launch, options: TraceOptions, sms: int = 0, each: int = 0) -> Selection:
    """The CTAs and warps of a launch that the options ask for. Raises UsageError if no warp is left.

    `sms`: how many SMs there are, and `each`: how many CTAs of the launch run at a time on one; 0 if that
    isn't known. CTAs go round the SMs, so that with a stride of a quarter of them the same four would record
    all. Of a launch of more than one wave those are chosen that others follow: what one takes longer because
    it records must not delay the launch's end. Of one of exactly two waves they are the first one's later
    CTAs: the grid's last ones follow these, and have less to do where CTAs take their work in strides.
    """
    total, warps = math.prod(launch.grid), -(-math.prod(launch.block) // 32)
    mask = (ALL_WARPS if options.warp_mask is None else options.warp_mask) & ((1 << warps) - 1)
    if not mask:
        raise UsageError(f"no such warp: a CTA of {launch.entry} has {warps}, numbered from 0")
    if total >> 32:
        raise UsageError(f"{launch.entry} has {total:,} CTAs; a trace numbers up to 2^32 - 1")
    count = total if options.ctas is None else min(options.ctas, total)
    wave = sms * each
    followed = total - wave if wave else 0
    room = followed if followed >= count else total
    late = 2 * count <= room == followed == wave
    stride = max(1, (room - room // 2 if late else room) // count)
    while stride % 2 == 0 or sms // math.gcd(stride, sms or 1) < min(count, sms):
        stride -= 1  # an even one has no inverse
    first = room - 1 - (count - 1) * stride if late else 0
    return Selection(first, stride, count, mask, total, count < total and (not wave or followed >= count))


def splits(selection: Selection, plain: Resources) -> bool:
    """Whether the launch gets faster if CTAs that don't record run the untraced code.

    Where all CTAs run side by side it is as slow as those that record, and large code makes these slower
    beside others that run another body (the SM's instruction cache, we think).
    """
    return selection.followed or (selection.count < selection.of and plain.code_bytes <= _SMALL_CODE)


class Probe:
    """Traces candidates of one workload. See `Backend.trace`."""

    def __init__(self, workload: Workload, info: DeviceInfo, session: Session, codes: Codes) -> None:
        self._workload = workload
        self._info = info
        self._session = session
        self._codes = codes

    def trace(self, candidate: Candidate, case: Case, options: TraceOptions) -> RawTrace:
        """Trace one launch in a fresh worker. Raises as `core.tracing.trace`."""
        plain = self._codes.get(candidate, [case])
        launches = plain.launches[case.name]
        if not 0 <= options.launch < len(launches):
            raise UsageError(f"there is no launch {options.launch}: the candidate has {len(launches)}")
        launch = launches[options.launch]
        fit = plain.compiled.occupancy(launch)
        selection = select(launch, options, self._info.sm_count or 0, fit.blocks if fit else 0)
        split = splits(selection, plain.compiled.resources) if options.split is None else options.split
        blocks = None
        if split and selection.count < selection.of:
            x, y, z = (*launch.grid, 1, 1)[:3]
            blocks = (selection.first, selection.stride, selection.count, x, y, z)
        traced = self._codes.get(candidate, [case], trace=True, split=blocks)
        problem = self._codes.problem(traced, [case])
        if problem:
            raise UsageError(f"{self._workload.name}, case {case.name}: can't be traced: {problem}")
        handle = self._session.fresh()
        try:
            run = _Run(self._session, handle, traced, case, options, selection)
            capacity, headers, records, anchors = run.sized()
            meta = self._meta(candidate, case, launch, selection, options)
            meta |= {"capacity": capacity, "anchored_sms": len(np.unique(anchors["sm"]))}
            meta |= resources_of(plain, traced, launch)
            if options.overhead:
                self._check(handle, plain, case)
                meta["overhead"] = run.overhead(plain, headers)
                if capacity and selection.count < selection.of:
                    meta["overhead"] |= self._everywhere(handle, candidate, case, options, plain, capacity)
        except WorkerFault as fault:
            raise WarpdeckError(
                f"tracing {self._workload.name}, case {case.name}: {fault.status}: {fault.message}"
            ) from None
        finally:
            self._session.retire(handle)
        return RawTrace(headers, records, anchors, traced.compiled.stages, meta)

    def _check(self, handle: WorkerHandle, plain: Code, case: Case) -> None:
        verdict = self._session.check(handle, plain, case, self._session.any_draw(case))
        if verdict.status is not Status.OK:
            raise VerificationError(f"case {case.name}: the untraced kernel is wrong: {verdict.reason}")

    def _everywhere(
        self,
        handle: WorkerHandle,
        candidate: Candidate,
        case: Case,
        options: TraceOptions,
        plain: Code,
        capacity: int,
    ) -> dict[str, Any]:
        """`recording`: what a CTA that records pays, by the time of a launch in which all do; {} where that
        takes too much memory."""
        launch = plain.launches[case.name][options.launch]
        every = replace(options, ctas=None, capacity=capacity)
        selection = select(launch, every)
        if selection.rows * row_bytes(capacity) > min(_EVERYWHERE_BYTES, options.limit_bytes):
            return {}
        traced = self._codes.get(candidate, [case], trace=True)
        run = _Run(self._session, handle, traced, case, every, selection)
        headers = run.launch(capacity)[0]
        cost = run.overhead(plain, headers, _EVERYWHERE_S)
        kept = ("untraced_ms", "traced_ms", "ratio", "ci", "blocks")
        return {"recording": {key: cost[key] for key in kept}}

    def _meta(
        self, candidate: Candidate, case: Case, launch: Launch, selection: Selection, options: TraceOptions
    ) -> dict[str, Any]:
        return {
            "workload": self._workload.name,
            "variant": candidate.variant,
            "language": self._workload.variant(candidate.variant).language,
            "source_hash": candidate.source_hash,
            "config": dict(candidate.config),
            "case": case.name,
            "params": dict(case.params),
            "kernel": launch.entry,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "instance": options.launch,
            "cache": str(options.cache),
            "device": self._info.to_json(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "ctas": {
                "traced": selection.count,
                "of": selection.of,
                "first": selection.first,
                "stride": selection.stride,
            },
            "warp_mask": selection.warp_mask,
        }


class _Run:
    """The launches of one trace, in one worker."""

    def __init__(
        self,
        session: Session,
        handle: WorkerHandle,
        code: Code,
        case: Case,
        options: TraceOptions,
        selection: Selection,
    ) -> None:
        self._session, self._handle = session, handle
        self._code, self._case = code, case
        self._options, self._selection = options, selection
        self._draw = session.any_draw(case)
        self._launches: list[Any] = []  # as last traced

    def sized(self) -> tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The capacity, and what `launch` gives with it: the options' own, or as large as needed."""
        if self._options.capacity is not None:
            return self._options.capacity, *self.launch(self._options.capacity)
        # A warp's count may differ from launch to launch: the last block to arrive may have more to do.
        capacity = int(self.launch(0)[0]["count"].max())
        for _ in range(_SIZINGS):
            found = self.launch(capacity)
            most = int(found[0]["count"].max())
            if most <= capacity:
                return capacity, *found
            capacity = most
        return capacity, *self.launch(capacity)

    def launch(self, capacity: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Launch once, check the outputs, and read headers, records and anchors.

        Raises WorkerFault, UsageError over the byte limit, VerificationError for wrong outputs.
        """
        chosen, options = self._selection, self._options
        nbytes = chosen.rows * row_bytes(capacity)
        if nbytes > options.limit_bytes:
            raise UsageError(
                f"the trace takes {nbytes / 1e6:,.0f} MB ({chosen.rows:,} warps, up to {capacity:,} records "
                f"each), over the limit of {options.limit_bytes / 1e6:,.0f} MB: trace fewer CTAs or warps, "
                "or give a smaller capacity"
            )
        blocks = anchor_blocks(self._handle.info)
        sizes = {"anchors": anchors_bytes(blocks), "watch": watch_bytes(int(self._handle.info["sm_count"]))}
        job = {
            "launch": options.launch,
            "cache": str(options.cache),
            "rows": chosen.rows,
            "capacity": capacity,
            "cta_first": chosen.first,
            "cta_stride": chosen.stride,
            "cta_count": chosen.count,
            "warp_mask": chosen.warp_mask,
            "anchor_blocks": blocks,
            "bytes": {"rows": nbytes, **sizes},
        }
        answer, verdict, files = self._session.trace(self._handle, self._code, self._case, self._draw, job)
        damage = answer["trace_damage"]
        if damage is not None:
            raise WarpdeckError(f"case {self._case.name}: {damage}: nothing of this trace can be trusted")
        if verdict.status is not Status.OK:
            raise VerificationError(
                f"case {self._case.name}: the traced kernel is wrong, its trace is refused: {verdict.reason}"
            )
        self._launches = answer["launches"]
        headers, records = read_rows(files["rows"], chosen.rows, capacity)
        read = [np.array(view(files[k], (n // layout.ANCHOR.itemsize,), "V24")) for k, n in sizes.items()]
        anchors = np.concatenate(read).view(layout.ANCHOR)
        return headers, records, anchors[anchors["time"] > 0]

    def overhead(self, plain: Code, headers: NDArray[Any], seconds: float = _PAIR_S) -> dict[str, Any]:
        """Time the untraced kernel against the traced one, interleaved in this context, so long at most."""
        case, session = self._case, self._session
        closed = headers[headers["magic"] == layout.MAGIC_CLOSED]
        span_s = float(closed["time_end"].max() - closed["time_begin"].min()) / 1e9 if len(closed) else 0.0
        each_s = span_s + (1e-4 if self._options.cache is CacheMode.COLD else 1e-5)
        low, high = _PAIR_BLOCKS
        untraced = session.payload(self._handle, plain, case)
        job = {
            "key": case.name,
            "a": {"code": self._code.key, "launches": self._launches},
            "b": {k: untraced[k] for k in ("code", "launches")},
            "cache": str(self._options.cache),
            "blocks": max(low, min(high, int(seconds / (4 * each_s)))),
            "warmup": _PAIR_WARMUP,
        }
        (answer,), labels = session.watched(self._handle, "pair", [(job, case)])
        traced_ms, untraced_ms = np.asarray(answer["a_ms"]), np.asarray(answer["b_ms"])
        cost = paired_speedup(traced_ms, untraced_ms)
        return {
            "untraced_ms": float(np.median(untraced_ms)),
            "traced_ms": float(np.median(traced_ms)),
            "ratio": cost.ratio,
            "ci": [cost.lo, cost.hi],
            "blocks": cost.blocks,
            "clock": answer["clock"],
            "throttle": list(labels),
        }


def read_rows(path: Path, rows: int, capacity: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Headers [n] and records [n, capacity] of the n warps that began, from a file of guarded rows.

    What wasn't written is zero. Raises WarpdeckError if a byte that no warp had to write no longer holds the
    guard's value, or if no warp began.
    """
    size, begin = row_bytes(capacity), layout.HEADER_BYTES
    headers = np.zeros(rows, layout.HEADER)
    records = np.zeros((rows, capacity), layout.RECORD)
    step = max(1, _CHUNK_BYTES // size)
    for first in range(0, rows, step):
        data = np.array(view(path, (min(step, rows - first), size), "u1", first * size))
        part = slice(first, first + len(data))
        found = np.ascontiguousarray(data[:, :begin]).view(layout.HEADER)[:, 0]
        began = np.isin(found["magic"], (layout.MAGIC_OPEN, layout.MAGIC_CLOSED))
        body = data[:, begin:]
        used = np.where(began, np.minimum(found["count"], capacity), 0)
        for i in np.flatnonzero(found["magic"] == layout.MAGIC_OPEN):  # the warp never wrote its end
            for name in ("time_end", "clock_end", "count", "gap_end"):
                found[name][i] = 0
            untouched = (body[i].reshape(-1, layout.RECORD_BYTES) == GUARD_BYTE).all(axis=1)
            used[i] = min(int(np.argmax(untouched)), capacity)
        free = np.arange(body.shape[1]) >= layout.RECORD_BYTES * used[:, None]
        spoiled = (free & (body != GUARD_BYTE)).any(axis=1)
        if spoiled.any():
            where = found[int(np.argmax(spoiled))]
            raise WarpdeckError(
                f"the trace of CTA {where['cta']}, warp {where['warp']} goes beyond its row: nothing of it "
                "can be trusted"
            )
        headers[part] = np.where(began, found, headers[part])
        kept = np.where(free, 0, body)[:, : layout.RECORD_BYTES * capacity]
        records[part] = np.ascontiguousarray(kept).view(layout.RECORD).reshape(len(data), capacity)
    began = headers["magic"] != 0
    if not began.any():
        raise WarpdeckError("the kernel recorded nothing: no selected warp reaches its first marker")
    return headers[began], records[began]


def resources_of(plain: Code, traced: Code, launch: Launch) -> dict[str, Any]:
    """What tracing took from the kernel: `resources` of both, and `warnings` where it matters."""
    before, after = (code.compiled.with_launches([launch]).resources for code in (plain, traced))
    whole = traced.compiled.unsplit
    notes = [f"CTAs that aren't traced run the stage markers too: {whole}"] if whole else []
    return {
        "resources": {"traced": after.to_json(), "untraced": before.to_json()},
        "warnings": [*changes(before, after), *notes],
    }


def changes(before: Resources, after: Resources) -> list[str]:
    """In words, how a traced kernel differs from the untraced one in more than its markers."""
    found = []
    if before.occupancy is not None and after.occupancy is not None and after.occupancy != before.occupancy:
        found.append(
            f"tracing changes the occupancy from {before.occupancy:.0%} to {after.occupancy:.0%} "
            f"({before.registers} to {after.registers} registers): the traced kernel behaves differently"
        )
    if after.spill_bytes > before.spill_bytes:
        found.append(
            f"tracing spills {after.spill_bytes} bytes of registers to memory, {before.spill_bytes} without: "
            "stages with spills look longer than they are"
        )
    return found

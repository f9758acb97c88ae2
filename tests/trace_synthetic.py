"""Traces made up from a described program: the bytes that a GPU would have written. Never shipped.

`Machine` has SMs whose cycle counters start anywhere and run at one rate, and a timer that steps. `Builder`
collects warps; a `Warp` writes records as it goes through its program:

    builder = Builder(("load", "compute"), Machine(sms=4))
    with builder.warp(cta=0, warp=0, sm=2, at_ns=100) as w:
        w.begin("load", 0).step(300).end("load").mark("compute", 7)
    raw = builder.build()

`loops` is the same for a million events, vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.timeline import RawTrace

EPOCH = 1_764_400_000_000_000_000  # globaltimer counts nanoseconds from 1970


class Machine:
    """Clocks of a made-up GPU. Times are true nanoseconds from the epoch above, of any precision.

    `changes`: (ns, GHz) pairs, from when on the SM clock has another rate. `dips`: one (ns, depth, tau) for
    each clock domain, to which SMs belong in pairs by turns; from that time on its clock is slower by `depth`
    of its rate and recovers exponentially. `ends`: end records carry readings of the timer, up to 8 cycles
    late, or, a share `late` of them, up to 250.
    """

    def __init__(
        self,
        sms: int = 4,
        *,
        ghz: float = 1.98,
        tick: int = 32,
        gap: int = 12,
        jitter: int = 0,
        position: float = 0.5,
        changes: Sequence[tuple[float, float]] = (),
        dips: Sequence[tuple[float, float, float]] = (),
        ends: bool = False,
        late: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.sms, self.tick, self.gap, self.jitter, self.position = sms, tick, gap, jitter, position
        self.offsets = self.rng.integers(1 << 33, 1 << 45, sms)  # cycles; well over 2^32
        self.dips, self.ends, self.late = tuple(dips), ends, late
        self.starts = np.array([0.0, *(at for at, _ in changes)])
        self.rates = np.array([ghz, *(rate for _, rate in changes)])
        self.before = np.concatenate([[0.0], np.cumsum(np.diff(self.starts) * self.rates[:-1])])

    def lost(self, ns: float, sm: int) -> float:
        """Nanoseconds' worth of cycles that an SM's dip has cost until then."""
        if not self.dips:
            return 0.0
        at, depth, tau = self.dips[sm // 2 % len(self.dips)]
        return depth * tau * -float(np.expm1(-max(ns - at, 0.0) / tau))

    def cycles(self, ns: float, sm: int = 0) -> float:
        """An SM's cycles since time 0."""
        ns -= self.lost(ns, sm)
        i = max(int(np.searchsorted(self.starts, ns, "right")) - 1, 0)
        return float(self.before[i] + (ns - self.starts[i]) * self.rates[i])

    def ns(self, cycles: float, sm: int = 0) -> float:
        """The inverse of `cycles`."""
        i = max(int(np.searchsorted(self.before, cycles, "right")) - 1, 0)
        undipped = float(self.starts[i] + (cycles - self.before[i]) / self.rates[i])
        ns = undipped
        for _ in range(8 if self.dips else 0):  # a dip of 3 % leaves 3 % of the error
            ns = undipped + self.lost(ns, sm)
        return ns

    def end_payload(self, sm: int, cycle: int) -> int:
        """What an end record carries whose clock was read at a cycle."""
        if not self.ends:
            return 0
        delay = self.rng.uniform(9, 250) if self.rng.random() < self.late else self.rng.uniform(2, 8)
        time = EPOCH + int(self.ns(cycle + float(delay), sm) // 1)
        return (time // self.tick * self.tick >> layout.TIME_SHIFT) & layout.PAYLOAD_MASK

    def read(self, sm: int, cycle: int) -> tuple[int, int, int]:
        """(time, clock, gap) of a reading of both clocks that starts at a cycle since time 0."""
        extra = int(self.rng.integers(0, self.jitter + 1)) if self.jitter else 0
        at = cycle + self.gap * self.position + (float(self.rng.uniform(0, extra)) if extra else 0.0)
        time = (EPOCH + int(self.ns(at, sm) // 1)) // self.tick * self.tick
        return time, int(self.offsets[sm]) + cycle, self.gap + extra

    def anchors(self, each: int, at_ns: float, spacing_ns: float, sms: Sequence[int] | None = None) -> Any:
        """What a calibration kernel would write: `each` readings an SM, the first ones at `at_ns`."""
        made = []
        for sm in range(self.sms) if sms is None else sms:
            at = at_ns
            for _ in range(each):
                time, clock, gap = self.read(sm, round(self.cycles(at, sm)))
                made.append((time, clock, sm, gap))
                at += spacing_ns * float(self.rng.uniform(0.5, 1.5))
        return np.array(made, layout.ANCHOR)

    def steps(self, at_ns: float, until_ns: float, spacing_ns: float, off_ns: float = 0.0) -> Any:
        """Readings just before and just after steps of the timer, each up to `off_ns` off, on every SM."""
        made = []
        for sm in range(self.sms):
            at = at_ns + spacing_ns * float(self.rng.uniform(0, 1))
            while at < until_ns:
                number = (EPOCH + int(at)) // self.tick + 1
                step = number * self.tick - EPOCH + off_ns * float(self.rng.uniform(-1, 1))
                after = round(self.cycles(step, sm)) + int(self.rng.integers(0, 4))
                for time, clock in ((number - 1, after - 4), (number, after)):
                    made.append((time * self.tick, int(self.offsets[sm]) + clock, sm, 4))
                at += self.tick + spacing_ns * float(self.rng.uniform(0.5, 1.5))
        return np.array(made, layout.ANCHOR)


class Warp:
    """One warp's program. `now` is the cycle, since the machine's time 0, of the next record."""

    def __init__(self, builder: Builder, cta: int, warp: int, sm: int, warps: int, now: int) -> None:
        self.builder, self.sm, self.now = builder, sm, now
        self.header: Any = np.zeros((), layout.HEADER)
        self.records: list[tuple[int, int]] = []
        time, clock, gap = builder.machine.read(sm, now)
        for name, value in (
            *(("magic", layout.MAGIC_OPEN), ("sm", sm), ("cta", cta), ("warp", warp), ("warps", warps)),
            *(("time_begin", time), ("clock_begin", clock), ("gap_begin", gap)),
        ):
            self.header[name] = value
        self.begun = now

    def __enter__(self) -> Warp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, cycles: int = 10) -> Warp:
        """Let time pass."""
        self.now += cycles
        return self

    def record(self, kind: int, name: str | int, payload: int = 0) -> Warp:
        """Any record; the following ones are 10 cycles later unless `step` says otherwise."""
        id = name if isinstance(name, int) else self.builder.stages.index(name) + 1
        clock = (int(self.builder.machine.offsets[self.sm]) + self.now) & 0xFFFFFFFF
        self.records.append((clock, layout.word(kind, id, payload)))
        self.now += 10
        return self

    def extended(self, name: str | int, sub: int, argument: int = 0) -> Warp:
        """A record of the fourth kind."""
        return self.record(layout.KIND_EXTENDED, name, sub << layout.SUB_SHIFT | argument)

    def begin(self, name: str, payload: int = 0) -> Warp:
        return self.record(layout.KIND_BEGIN, name, payload)

    def end(self, name: str) -> Warp:
        return self.record(layout.KIND_END, name, self.builder.machine.end_payload(self.sm, self.now))

    def mark(self, name: str, payload: int = 0) -> Warp:
        return self.record(layout.KIND_MARK, name, payload)

    def start(self, name: str, token: int) -> Warp:
        return self.extended(name, layout.SUB_START, token)

    def stop(self, name: str, token: int) -> Warp:
        return self.extended(name, layout.SUB_STOP, token)

    def issue(self, name: str, flow: int) -> Warp:
        return self.extended(name, layout.SUB_ISSUE, flow)

    def done(self, name: str, flow: int) -> Warp:
        return self.extended(name, layout.SUB_DONE, flow)

    def value(self, name: str, x: int | float | np.float32) -> Warp:
        """Unsigned if a non-negative int, signed if negative, else float32."""
        if isinstance(x, (float, np.floating)):
            sub, bits = layout.SUB_VALUE_F32, int(np.float32(x).view(np.uint32))
        else:
            sub, bits = (layout.SUB_VALUE_U32, x) if x >= 0 else (layout.SUB_VALUE_I32, x & 0xFFFFFFFF)
        self.extended(name, sub)
        return self.raw(bits)

    def raw(self, bits: int) -> Warp:
        """A value's second record."""
        self.records.append((bits, layout.word(layout.KIND_EXTENDED, 0, layout.SUB_RAW << layout.SUB_SHIFT)))
        return self

    def close(self) -> None:
        """The end marker. A warp never closed stays open, as one that returned early."""
        time, clock, gap = self.builder.machine.read(self.sm, self.now)
        for name, value in (
            *(("magic", layout.MAGIC_CLOSED), ("count", len(self.records))),
            *(("time_end", time), ("clock_end", clock), ("gap_end", gap)),
        ):
            self.header[name] = value


class Builder:
    """Collects warps into a RawTrace."""

    def __init__(self, stages: Sequence[str], machine: Machine | None = None) -> None:
        self.stages, self.machine = tuple(stages), machine or Machine()
        self.warps: list[Warp] = []

    def warp(
        self, cta: int = 0, warp: int = 0, sm: int = 0, at_ns: float = 0.0, *, warps: int | None = None
    ) -> Warp:
        """A warp that begins at a true time. `warps`: of its CTA, by default as many as are built."""
        made = Warp(self, cta, warp, sm, warps or 0, round(self.machine.cycles(at_ns, sm)))
        self.warps.append(made)
        return made

    def build(
        self, capacity: int | None = None, anchors: Any = None, meta: dict[str, Any] | None = None
    ) -> RawTrace:
        """Rows in the order in which warps were made, and one row in which no warp began."""
        if capacity is None:
            capacity = max((len(w.records) for w in self.warps), default=0)
        headers: Any = np.zeros(len(self.warps) + 1, layout.HEADER)
        records = np.zeros((len(self.warps) + 1, capacity), layout.RECORD)
        ctas = [int(w.header["cta"]) for w in self.warps]
        for i, w in enumerate(self.warps):
            headers[i] = w.header
            if not headers[i]["warps"]:
                headers[i]["warps"] = ctas.count(ctas[i])
            mine = np.array(w.records[:capacity], layout.RECORD)
            records[i, : mine.size] = mine
        none = np.zeros(0, layout.ANCHOR)
        return RawTrace(headers, records, none if anchors is None else anchors, self.stages, meta or {})

    def true_ns(self, warp: Warp, cycle: int) -> float:
        """When a cycle of a warp's program is, from the first warp's begin."""
        return self.machine.ns(cycle, warp.sm) - min(self.machine.ns(w.begun, w.sm) for w in self.warps)


SHAPES = ("flat", "nested", "tokens", "values", "async", "mixed")


def loops(
    ctas: int = 16,
    warps: int = 4,
    iterations: int = 50,
    shape: str = "nested",
    *,
    seed: int = 0,
    capacity: int | None = None,
    sms: int = 132,
    ghz: float = 1.98,
    tick: int = 32,
    gap: int = 12,
) -> RawTrace:
    """Many warps that go through one loop; vectorised. `shape` is one of SHAPES.

    A CTA's warps share an SM; CTAs beyond the number of SMs run in later waves.
    """
    k, e = layout, layout.KIND_EXTENDED
    stages = ("load", "wait", "compute", "store")
    L, W, C, S = 1, 2, 3, 4
    raw_word = (e, 0, k.SUB_RAW << k.SUB_SHIFT)
    flat = [(k.KIND_BEGIN, L, "i"), (k.KIND_END, L, 0), (k.KIND_BEGIN, C, "i"), (k.KIND_END, C, 0)]
    token = [(e, L, (k.SUB_START, "i")), (e, L, (k.SUB_STOP, "previous"))]
    value = [(e, C, k.SUB_VALUE_F32 << k.SUB_SHIFT), raw_word]
    flow = [(e, L, (k.SUB_ISSUE, "i")), (e, L, (k.SUB_DONE, "i"))]
    nest = [
        (k.KIND_BEGIN, S, "i"),
        *flat[:2],
        (k.KIND_BEGIN, C, "i"),
        (k.KIND_BEGIN, W, 0),
        (k.KIND_END, W, 0),
    ]
    nest += [(k.KIND_END, C, 0), (k.KIND_END, S, 0)]
    mark = [(k.KIND_MARK, W, "i")]
    body: list[tuple[int, int, Any]] = {
        "flat": flat,
        "nested": nest,
        "tokens": [*token, *flat],
        "values": [*flat, *value, *mark],
        "async": [*flow, *flat],
        "mixed": [*nest, *token, *value, *flow, *mark],
    }[shape]
    i = np.arange(iterations, dtype=np.int64)
    words = np.empty((iterations, len(body)), np.uint32)
    for column, (kind, name, what) in enumerate(body):
        sub, what = what if isinstance(what, tuple) else (0, what)
        argument = {"i": i, "previous": np.maximum(i - 1, 0)}.get(what, np.full(iterations, what))  # type: ignore
        argument = argument & (k.ARGUMENT_MASK if sub else k.PAYLOAD_MASK)
        words[:, column] = (kind << 30) | (name << 20) | (sub << k.SUB_SHIFT) | argument
    words = words.reshape(-1)
    if "previous" in [w[1] for _, _, w in body if isinstance(w, tuple)]:
        # the first iteration's stop of "token -1" becomes a mark, the last token ends behind the loop
        stop = next(n for n, b in enumerate(body) if isinstance(b[2], tuple) and b[2][1] == "previous")
        words[stop] = k.word(k.KIND_MARK, W)
        last = k.word(e, L, k.SUB_STOP << k.SUB_SHIFT | (iterations - 1) & k.ARGUMENT_MASK)
        words = np.append(words, np.uint32(last))
    rng = np.random.default_rng(seed)
    rows, count = ctas * warps, words.size
    cta, warp = np.divmod(np.arange(rows), warps)
    sm = cta % sms
    typical = rng.integers(20, 600, count)
    deltas = (typical * rng.uniform(0.8, 1.3, (rows, count))).astype(np.int64)
    offsets = rng.integers(1 << 33, 1 << 45, sms)
    length = int(typical.sum() * 1.4) + 200
    begin = 10_000 + cta // sms * length + rng.integers(0, 2000, ctas)[cta] + warp * 7
    at = begin[:, None] + gap + 8 + np.cumsum(deltas, axis=1)
    end = (at[:, -1] if count else begin) + 30
    keep = count if capacity is None else capacity
    records: Any = np.zeros((rows, keep), k.RECORD)
    stored = min(keep, count)
    records["clock"][:, :stored] = ((at + offsets[sm][:, None]) & 0xFFFFFFFF)[:, :stored]
    records["word"][:, :stored] = words[:stored]
    bits = rng.normal(size=(rows, stored)).astype(np.float32).view(np.uint32)
    is_raw = words[:stored] == k.word(*raw_word)
    records["clock"][:, :stored][:, is_raw] = bits[:, is_raw]
    headers: Any = np.zeros(rows, k.HEADER)

    def timer(cycle: Any) -> Any:
        return (EPOCH + np.floor((cycle + gap / 2) / ghz).astype(np.int64)) // tick * tick

    for name, column in (
        *(("magic", k.MAGIC_CLOSED), ("sm", sm), ("cta", cta), ("warp", warp), ("warps", warps)),
        *(("time_begin", timer(begin)), ("clock_begin", begin + offsets[sm]), ("gap_begin", gap)),
        *(("time_end", timer(end)), ("clock_end", end + offsets[sm]), ("gap_end", gap), ("count", count)),
    ):
        headers[name] = column
    used, each = np.unique(sm), 32
    anchors: Any = np.zeros(used.size * each * 2, k.ANCHOR)
    anchors["sm"] = np.repeat(used, each * 2)
    both = np.concatenate([np.zeros(each), np.full(each, float(end.max()) + 5000)])
    reading = (np.tile(both, used.size) + rng.integers(0, 5000, anchors.size)).astype(np.int64)
    anchors["clock"], anchors["time"], anchors["gap"] = reading + offsets[anchors["sm"]], timer(reading), gap
    meta = {"workload": "synthetic", "variant": shape, "kernel": "loops", "grid": [ctas, 1, 1]}
    meta |= {"block": [32 * warps, 1, 1], "case": "test", "params": {"n": iterations}, "capacity": keep}
    return RawTrace(headers, records, anchors, stages, meta)

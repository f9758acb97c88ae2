"""The timing protocols: one candidate, two interleaved, the environment's quick one. Worker only."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import CacheMode, Protocol, Status
from ..stats import AdaptiveStop
from .buffers import Binding, BufferSet
from .faults import WorkerFault
from .gpu import Operation
from .lane import Batch, Lane

_MORE = 32  # warm-ups, at most, of code of others
_WARMUP_S = 0.5  # a kernel so slow that its warm-ups take longer gets fewer (never none)
_BATCH_S = 1.0  # at most, so that a hang shows early and adaptive stopping can act
_SHORT_S = 0.005  # measuring at once is cheaper than another batch
_SLOW_CLOCK = 0.75  # of the default SM clock: below it a batch is discarded
_TRIES = 3


def split_blocks(samples_ms: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A's and B's samples, each [blocks, 2], from those of alternating A B B A and B A A B blocks.

    The first launch of a block is the first to touch its buffers; alternating gives that cost to both.
    """
    data = samples_ms.reshape(-1, 4)
    even = (np.arange(len(data)) % 2 == 0)[:, None]
    outer, inner = data[:, [0, 3]], data[:, [1, 2]]
    return np.where(even, outer, inner), np.where(even, inner, outer)


class Subject:
    """One candidate on one case: its packed launches for each buffer set, made when first used.

    A launch is [symbol, grid, block, shared memory], of a traced kernel also its descriptor. `poison`: the
    outputs are made wrong before every launch, untimed, so that a kernel finds no earlier result in them.
    """

    def __init__(
        self,
        lane: Lane,
        binding: Binding,
        code: str,
        language: str,
        launches: Sequence[Sequence[Any]],
        *,
        poison: bool = False,
    ) -> None:
        self._lane = lane
        self.binding = binding
        self._code, self._language = code, language
        self._launches = [tuple(launch) for launch in launches]
        self.poisons = poison
        self._packed: dict[int, list[Operation]] = {}
        self.batches: dict[tuple[CacheMode, int], Batch] = {}  # those that may be run again as they are

    def launches(self, index: int) -> list[Operation]:
        """The timed operations on a set."""
        if index not in self._packed:
            self._packed[index] = [
                self._lane.gpu.launch(
                    self._code,
                    entry,
                    grid,
                    block,
                    shared,
                    self.binding.parameters(self._language, index, *trace),
                )
                for entry, grid, block, shared, *trace in self._launches
            ]
        return self._packed[index]

    @property
    def changes(self) -> bool:
        """Whether what precedes a launch depends on the inputs that a set holds just then."""
        return any(target.inout for target in self.binding.sets)

    def prepare(self, index: int) -> list[Operation]:
        """What precedes each launch, untimed."""
        target = self.binding.sets[index]
        poison = target.poison() if self.poisons else []
        return [*poison, *target.prepare(self.binding.master(target.seed))]


@dataclass
class Timed:
    """What a protocol measured. `swapped`: the set whose contents changed before an unpredictable launch, and
    whose outputs were poisoned before its last one."""

    samples_ms: list[float] = field(default_factory=list)
    sm_clock_mhz: float | None = None
    discarded: int = 0
    swapped: int = 0

    def to_json(self, lane: Lane) -> dict[str, Any]:
        """The job's answer."""
        return {
            "samples_ms": self.samples_ms,
            "sm_clock_mhz": self.sm_clock_mhz,
            "discarded": self.discarded,
            "clock": lane.clock,
            "event_floor_ms": lane.event_floor_ms,
        }


class Meter:
    """Measures by the protocols of one lane. `tick` is called while it works, between batches."""

    def __init__(self, lane: Lane, default_clock_mhz: float, tick: Callable[[], None]) -> None:
        self.lane = lane
        self._default_clock_mhz = default_clock_mhz
        self._tick = tick
        self._random = random.SystemRandom()

    def sets(self, binding: Binding, cache: CacheMode) -> list[BufferSet]:
        """The sets a mode uses: one when hot, a rotation when cold."""
        wanted = binding.rotation(self.lane.l2_bytes) if cache is CacheMode.COLD else 1
        return binding.ensure_sets(wanted)

    def warm_up(self, subject: Subject, sets: int, count: int) -> float:
        """Launch `count` times (fewer if it is very slow). Returns seconds a launch takes, roughly."""
        self.lane.untimed([*subject.prepare(0), *subject.launches(0)])
        self._tick()
        started, done = time.perf_counter(), 0
        while done < max(count - 1, 1):
            chunk = 1 if done == 0 else max(count - 1 - done, 1)
            operations: list[Operation] = []
            for i in range(done, done + chunk):
                operations += [*subject.prepare(i % sets), *subject.launches(i % sets)]
            self.lane.untimed(operations)
            done += chunk
            spent = time.perf_counter() - started
            if spent / done * count > _WARMUP_S:
                break
            self._tick()
        return (time.perf_counter() - started) / done

    def measure(self, subject: Subject, protocol: Protocol) -> Timed:
        """Sample by the design's protocol. Raises WorkerFault (throttled) if the clock never holds."""
        sets = self.sets(subject.binding, protocol.cache)
        # Code of others doesn't know which launch will be its last: whatever it kept until then shows.
        more = self._random.randrange(_MORE) if subject.poisons else 0
        each_s = self.warm_up(subject, len(sets), protocol.warmup + more)
        if protocol.cache is CacheMode.COLD:
            each_s += 1e-4
        stop = AdaptiveStop(protocol)
        result = Timed()
        clocks: list[float] = []
        while len(result.samples_ms) < protocol.samples:
            have = len(result.samples_ms)
            wanted = protocol.samples - have
            if protocol.adaptive and wanted * each_s > _SHORT_S:
                wanted = min(wanted, max(protocol.min_samples - have, 20))
            wanted = max(1, min(wanted, int(_BATCH_S / max(each_s, 1e-6))))
            samples, mhz = self._steady(
                partial(self._batch, subject, protocol.cache, sets, wanted, result, have), result
            )
            result.samples_ms += samples.tolist()
            if mhz:
                clocks.append(mhz)
            self._tick()
            if protocol.adaptive and stop.enough(result.samples_ms):
                break
        result.sm_clock_mhz = statistics.median(clocks) if clocks else None
        return result

    def _steady(self, build: Callable[[], Batch], result: Timed) -> tuple[NDArray[np.float64], float | None]:
        """One batch at a steady clock."""
        pause, mhz = 0.05, None
        for _ in range(_TRIES):
            samples, mhz = self.lane.run(build)
            if mhz is None or mhz >= _SLOW_CLOCK * self._default_clock_mhz:
                return samples, mhz
            result.discarded += len(samples)
            self._tick()
            time.sleep(pause)
            pause *= 3
        raise WorkerFault(
            Status.THROTTLED,
            f"the SM clock stayed at {mhz:.0f} MHz, under 75% of {self._default_clock_mhz:.0f} MHz",
        )

    def _batch(
        self,
        subject: Subject,
        cache: CacheMode,
        sets: list[BufferSet],
        wanted: int,
        result: Timed,
        turn: int,
    ) -> Batch:
        batch = Batch(self.lane)
        if cache is CacheMode.HOT:
            # New contents at the same addresses: what an earlier block left behind is of no use to this one.
            self._change(batch, subject, sets, 0)
            batch.add([*subject.prepare(0), *subject.launches(0)])
        wanted = max(1, min(wanted, (batch.room - self._swap_cost(subject)) // self._cost(subject, cache)))
        swap = self._random.randrange(wanted)
        # The last launch on that set is judged. It finds nothing right there, so that a kernel that stops
        # working anywhere before it is found out.
        judged = wanted - 1 - (wanted - 1 - swap) % len(sets)
        for i in range(wanted):
            index = (turn + i) % len(sets)
            if i == swap:
                self._change(batch, subject, sets, index)
                result.swapped = index
                if cache is CacheMode.HOT:
                    batch.add([*subject.prepare(index), *subject.launches(index)])
            if i == judged:
                batch.add(sets[index].poison())
            self._sample(batch, subject, index, cache)
        return batch

    def _sample(self, batch: Batch, subject: Subject, index: int, cache: CacheMode) -> None:
        batch.add(subject.prepare(index))
        if cache is CacheMode.COLD:
            batch.add([self.lane.sweep])
        batch.sample(subject.launches(index))

    def _cost(self, subject: Subject, cache: CacheMode) -> int:
        """Operations of one sample."""
        around = (cache is CacheMode.COLD) + (2 if self.lane.events else 0)
        return len(subject.prepare(0)) + len(subject.launches(0)) + around

    def _swap_cost(self, subject: Subject) -> int:
        target = subject.binding.sets[0]
        changed = len(target.inputs) + len(target.inout) + len(target.outputs)
        return changed + self._cost(subject, CacheMode.HOT)

    def _change(self, batch: Batch, subject: Subject, sets: list[BufferSet], index: int) -> None:
        target, binding = sets[index], subject.binding
        others = [seed for seed in binding.seeds if seed != target.seed]
        if not others:
            return
        seed = self._random.choice(others)
        batch.add(target.contents(binding.master(seed)))
        target.seed = seed

    def pair(self, a: Subject, b: Subject, cache: CacheMode, blocks: int, warmup: int) -> dict[str, Any]:
        """`blocks` times A B B A or B A A B, every sample as in `measure`. Samples: [block][2] for each."""
        sets = self.sets(a.binding, cache)
        each_s = max(self.warm_up(a, len(sets), warmup), self.warm_up(b, len(sets), warmup))
        result = Timed()
        clocks: list[float] = []
        while len(result.samples_ms) < 4 * blocks:
            done = len(result.samples_ms) // 4
            wanted = max(1, min(blocks - done, int(_BATCH_S / max(4 * each_s, 1e-6))))
            samples, mhz = self._steady(partial(self._pair_batch, a, b, cache, sets, wanted, done), result)
            result.samples_ms += samples.tolist()
            if mhz:
                clocks.append(mhz)
            self._tick()
        a_ms, b_ms = split_blocks(np.array(result.samples_ms))
        return {
            **result.to_json(self.lane),
            "samples_ms": [],
            "a_ms": a_ms.tolist(),
            "b_ms": b_ms.tolist(),
            "sm_clock_mhz": statistics.median(clocks) if clocks else None,
        }

    def beside(self, a: Subject, b: Subject, cache: CacheMode) -> int:
        """One more launch of each, on other data and untimed, which they can't tell from those of `pair`.

        Returns the index of the set that then holds b's outputs.
        """
        sets = self.sets(a.binding, cache)
        index = self._random.randrange(len(sets))
        batch = Batch(self.lane)
        self._change(batch, a, sets, index)
        for subject in (a, b):
            batch.add(subject.prepare(index))
            if cache is CacheMode.COLD:
                batch.add([self.lane.sweep])
            batch.add(subject.launches(index))
        self.lane.untimed(batch.operations)
        return index

    def _pair_batch(
        self, a: Subject, b: Subject, cache: CacheMode, sets: list[BufferSet], blocks: int, done: int
    ) -> Batch:
        batch = Batch(self.lane)
        if cache is CacheMode.HOT:
            self._change(batch, a, sets, 0)
            batch.add([*b.prepare(0), *b.launches(0), *a.prepare(0), *a.launches(0)])
        for block in range(
            max(1, min(blocks, batch.room // (2 * (self._cost(a, cache) + self._cost(b, cache)))))
        ):
            for subject in (a, b, b, a) if (done + block) % 2 == 0 else (b, a, a, b):
                # A and B meet every set equally often: the block's four launches share one.
                self._sample(batch, subject, (done + block) % len(sets), cache)
        return batch

    def quick(self, subject: Subject, cache: CacheMode, samples: int) -> NDArray[np.float64]:
        """One warm-up and `samples` launches, queued; no clock check."""
        batch = subject.batches.get((cache, samples)) if self.lane.cupti else None
        if batch is None:
            batch = self._quick_batch(subject, cache, samples)
            if not subject.changes:
                subject.batches[cache, samples] = batch
        return self.lane.run(lambda: batch, with_clock=False, quick=True)[0]

    def _quick_batch(self, subject: Subject, cache: CacheMode, samples: int) -> Batch:
        sets = self.sets(subject.binding, cache)
        batch = Batch(self.lane)
        batch.add([*subject.prepare(0), *subject.launches(0)])
        for i in range(samples):
            self._sample(batch, subject, (i + 1) % len(sets), cache)
        return batch

"""The (workload, size) pairs that an environment, a training run or a rollout draws episodes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from ..core.bench import Bench
from ..core.devices.base import Device
from ..core.devices.recorded import RecordedDevice
from ..core.errors import UsageError
from ..core.model import CacheMode, Case, Config, Protocol
from ..core.space import SearchSpace
from ..kernels.loader import load_workload
from ..kernels.recordings import open_device
from .readings import CounterReader, NvmlReader

SIZES = (256, 512, 1024)  # the source's, where no recording says which sizes there are


@dataclass(frozen=True)
class Task:
    """One episode's subject. Tasks of one workload share its bench."""

    kernel: str
    size: int
    case: Case
    bench: Bench


class TaskSet:
    """Tasks over spaces with the same knobs, on one device. Close it when done.

    Args:
        tasks: At least one.
        close: Releases what they were opened with.

    Raises:
        UsageError: no tasks, or two whose knobs differ.
    """

    def __init__(self, tasks: Sequence[Task], close: Callable[[], None] = lambda: None) -> None:
        if not tasks:
            raise UsageError("no workload and size to work on")
        self.tasks = tuple(tasks)
        self._close = close
        self._readers: dict[object, NvmlReader] = {}
        self._counters: dict[float, CounterReader] = {}
        self.space: SearchSpace = tasks[0].bench.space
        for task in tasks:
            if dict(task.bench.space.knobs) != dict(self.space.knobs):
                raise UsageError(
                    f"{tasks[0].kernel} and {task.kernel} have different knobs in space '{self.space.name}';"
                    " choose one workload, or the space 'classic'"
                )

    @property
    def label(self) -> str:
        """The device, as shown beside its numbers."""
        return self.tasks[0].bench.device.label

    @property
    def baseline(self) -> tuple[int, ...]:
        """Indices of the baseline in the knobs; all zero where another space holds it."""
        config: Config = self.tasks[0].bench.baseline_candidate.config
        if config.keys() != self.space.knobs.keys():
            return (0,) * len(self.space.knobs)
        return self.space.encode(config)

    def find(self, kernel: str | None, size: int | None) -> tuple[Task, ...]:
        """Tasks of a workload, a size, or both. UsageError if there is none."""
        found = tuple(
            t for t in self.tasks if kernel in (None, t.kernel) and (size is None or t.size == size)
        )
        if not found:
            have = ", ".join(f"{t.kernel} {t.size}" for t in self.tasks)
            raise UsageError(f"no task '{kernel or 'any'}' of size {size or 'any'}; there are: {have}")
        return found

    def reader(self, task: Task) -> NvmlReader:
        """What reads the NVML slots: of a live device one reader, on a recorded one its task's own."""
        info = task.bench.device
        key = (task.kernel, task.size) if info.recorded else info.uuid
        if key not in self._readers:
            self._readers[key] = NvmlReader(task)
        return self._readers[key]

    def counters(self, timeout_s: float) -> CounterReader:
        """What reads the counter slots; one for all environments, so that nothing is profiled twice."""
        return self._counters.setdefault(timeout_s, CounterReader(timeout_s))

    def close(self) -> None:
        """Release benches and devices."""
        self._close()


class TaskSettings(Interface):
    """What training and rollouts are configured with alike."""

    @property
    def workloads(self) -> Sequence[str]: ...
    @property
    def sizes(self) -> Sequence[int]: ...
    @property
    def device(self) -> str: ...
    @property
    def space(self) -> str: ...
    @property
    def cache(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def allow_shared(self) -> bool: ...


def tasks_of(config: TaskSettings) -> TaskSet:
    """`open_tasks` from a configuration."""
    return open_tasks(
        config.workloads,
        config.sizes,
        device=config.device,
        space=config.space,
        cache=CacheMode(config.cache),
        seed=config.seed,
        allow_shared=config.allow_shared,
    )


def open_tasks(
    workloads: Sequence[str],
    sizes: Sequence[int] = (),
    *,
    device: str = "auto",
    space: str = "classic",
    cache: CacheMode = CacheMode.COLD,
    seed: int = 0,
    allow_shared: bool = False,
) -> TaskSet:
    """Open a bench for every workload.

    Args:
        workloads: Names or folders.
        sizes: Sizes of each; empty means every recorded size of the space, on a live device 256, 512 and
            1024.
        device: As `--device`.
        space: Name of the search space.
        cache: State of the L2 cache before each launch.
        seed: Of inputs and drawn samples.
        allow_shared: Measure although other processes use the GPU.

    Raises:
        UsageError: an unknown name, a size that isn't recorded, or workloads whose knobs differ.
    """
    opened: list[Callable[[], None]] = []
    tasks: list[Task] = []

    def close() -> None:
        while opened:
            opened.pop()()

    try:
        source = open_device(device, allow_shared=allow_shared)
        opened.append(source.close)
        for name in dict.fromkeys(workloads):
            workload = load_workload(name)
            chosen = tuple(dict.fromkeys(sizes)) or _default_sizes(source, workload.name, space)
            cases = [workload.size_case(n) for n in chosen]
            bench = Bench(
                workload,
                source,
                space=space,
                cases=cases,
                protocol=Protocol(cache=cache),
                seed=seed,
                allow_shared=allow_shared,
            )
            opened.append(bench.close)
            tasks += [Task(workload.name, n, c, bench) for n, c in zip(chosen, cases, strict=True)]
        return TaskSet(tasks, close)
    except BaseException:
        close()
        raise


def _default_sizes(source: Device, workload: str, space: str) -> tuple[int, ...]:
    if not isinstance(source, RecordedDevice):
        return SIZES
    sizes = sorted(int(r.case) for r in source.recordings(workload, space) if r.case.isdigit())
    if not sizes:
        have = ", ".join(sorted({r.space for r in source.recordings(workload)})) or "nothing"
        raise UsageError(
            f"{workload}: space '{space}' is not recorded on {source.info.name}; recorded: {have}"
        )
    return tuple(dict.fromkeys(sizes))

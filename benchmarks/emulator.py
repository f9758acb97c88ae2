"""What emulating a kernel on the CPU costs: compiling it, running it, and a whole evaluation.

    python benchmarks/emulator.py [SIZE]

Every CUDA C++ variant of the bundled workloads that can be emulated, in its first configuration, on the
performance case of that size (default 128). `checked` has ASan and UBSan, `races` finds races in shared
memory. A compile is one, in processor seconds; a run the fastest of five, in milliseconds of wall time,
inputs and outputs included; `evaluation` is the wall time of one with its programs in the cache: a process,
every correctness case, three draws of the performance case, and a run of the second build.

Measured on two cores of a cloud Xeon that were busy with other work (load 3 to 6), g++ 12.2, Python 3.11;
the emulator's own code took 2.2 and 1.6 s:

| workload | variant | compile, checked | compile, races | run, checked | run, races | evaluation |
|---|---|---|---|---|---|---|
| gemm | cuda | 0.39 s | 0.19 s | 28.9 ms | 32.7 ms | 0.75 s |
| gemm | naive | 0.15 s | 0.16 s | 22.7 ms | 48.7 ms | 1.03 s |
| gemm | coalesced | 0.15 s | 0.14 s | 18.8 ms | 40.2 ms | 1.02 s |
| gemm | shared | 0.18 s | 0.15 s | 38.0 ms | 81.9 ms | 1.34 s |
| gemm | register_1d | 0.19 s | 0.15 s | 15.5 ms | 43.3 ms | 0.91 s |
| gemm | register_2d | 0.22 s | 0.19 s | 18.2 ms | 15.8 ms | 0.66 s |
| gemm | vectorised | 0.30 s | 0.18 s | 17.1 ms | 18.4 ms | 0.56 s |
| gemm | warptiled | 0.37 s | 0.18 s | 18.1 ms | 12.8 ms | 0.63 s |
| gemm | asynchronous | 0.35 s | 0.20 s | 19.4 ms | 16.6 ms | 0.62 s |
| layernorm | thread | 0.15 s | 0.14 s | 0.7 ms | 0.9 ms | 0.07 s |
| layernorm | block | 0.17 s | 0.14 s | 25.7 ms | 28.0 ms | 0.48 s |
| layernorm | welford | 0.21 s | 0.15 s | 72.1 ms | 56.2 ms | 1.21 s |
| layernorm | registers | 0.27 s | 0.17 s | 51.5 ms | 37.1 ms | 0.90 s |
| reduction | cuda | 0.22 s | 0.15 s | 5.1 ms | 4.5 ms | 0.31 s |
| reduction | atomics | 0.15 s | 0.13 s | 1.4 ms | 2.0 ms | 0.31 s |
| reduction | tree | 0.17 s | 0.13 s | 12.0 ms | 6.9 ms | 0.76 s |
| reduction | shuffles | 0.18 s | 0.15 s | 17.2 ms | 7.3 ms | 0.94 s |
| reduction | vectors | 0.21 s | 0.15 s | 1.2 ms | 0.8 ms | 0.14 s |
| reduction | workspace | 0.22 s | 0.15 s | 1.3 ms | 1.0 ms | 0.15 s |
| reduction | ticket | 0.22 s | 0.16 s | 1.3 ms | 1.0 ms | 0.14 s |
| softmax | cuda | 0.23 s | 0.17 s | 22.6 ms | 17.6 ms | 0.47 s |
| softmax | thread | 0.15 s | 0.15 s | 0.7 ms | 0.8 ms | 0.07 s |
| softmax | block | 0.18 s | 0.16 s | 26.2 ms | 27.3 ms | 0.53 s |
| softmax | online | 0.20 s | 0.16 s | 58.7 ms | 44.6 ms | 1.06 s |
| softmax | vectors | 0.24 s | 0.18 s | 58.4 ms | 43.3 ms | 1.19 s |
| softmax | registers | 0.25 s | 0.20 s | 58.4 ms | 60.8 ms | 1.33 s |
| softmax | one-barrier | 0.25 s | 0.18 s | 56.3 ms | 36.6 ms | 1.34 s |
| transpose | naive | 0.16 s | 0.15 s | 1.6 ms | 1.8 ms | 0.27 s |
| transpose | tile | 0.17 s | 0.14 s | 1.1 ms | 2.2 ms | 0.30 s |
| transpose | padded | 0.17 s | 0.15 s | 1.3 ms | 2.1 ms | 0.31 s |
| transpose | wide-tile | 0.17 s | 0.15 s | 2.3 ms | 1.5 ms | 0.28 s |
| transpose | vectors | 0.23 s | 0.17 s | 0.7 ms | 1.0 ms | 0.26 s |
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from warpdeck.core.devices.cpu import CpuDevice
from warpdeck.core.emulator import Build, Built, Job, Process, collect
from warpdeck.core.model import Protocol, Status, Trust
from warpdeck.kernels.loader import list_workloads, load_workload

REPEATS = 5


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WARPDECK_EMULATOR_CACHE"] = folder
        device = CpuDevice()
        try:
            own = [f"{build} {processor_s(device.builder.base, build)[0]:.1f} s" for build in Build]
            print(f"the emulator's own code, once: {', '.join(own)}\n")
            columns = ["compile, checked", "compile, races", "run, checked", "run, races", "evaluation"]
            print("|", " | ".join(["workload", "variant", *columns]), "|\n|" + "---|" * 7)
            for name in list_workloads():
                for row in rows(device, name, size):
                    print("|", " | ".join(row), "|", flush=True)
        finally:
            device.close()


def processor_s(action: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """What the processes took that an action started and waited for, and its result."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = action(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def rows(device: CpuDevice, name: str, size: int) -> Iterator[list[str]]:
    workload = load_workload(name)
    case = workload.size_case(size)
    for variant, about in workload.variants.items():
        if about.language != "cuda" or about.precision or variant == "pipelined":  # the last two need PTX
            continue
        space = workload.space_of(variant)
        candidate = workload.candidate(space.name, next(iter(space.configs(case.params))))
        entries = tuple(dict.fromkeys(launch.entry for launch in about.launches))
        source = collect(about.file, entries, candidate.config)
        backend = device.prepare(workload, space=space.name, cases=[case], seed=1)
        try:
            compiles: list[str] = []
            runs: list[str] = []
            for build in Build:
                seconds, built = processor_s(device.builder.build, source, build, Trust.BUNDLED)
                compiles.append(f"{seconds:.2f} s")
                runs.append(f"{run_ms(built, entries, backend.job(candidate, case, 0, 0)):.1f} ms")
            started = time.perf_counter()
            found = backend.evaluate(candidate, [case], Protocol())
            evaluation = f"{time.perf_counter() - started:.2f} s"
            assert found.status is Status.OK, found.message
        finally:
            backend.close()
        yield [name, variant, *compiles, *runs, evaluation]


def run_ms(built: Built, entries: tuple[str, ...], job: Job) -> float:
    """The fastest of a few runs in one process."""
    process = Process(built, entries, Trust.BUNDLED)
    try:
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            process.run(job)
            times.append(time.perf_counter() - started)
        return min(times) * 1e3
    finally:
        process.close()


if __name__ == "__main__":
    main()

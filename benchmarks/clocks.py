"""Three clocks on the same kernels, alternating in one run: ours (CUPTI), event pairs, and Nsight Compute.

    python benchmarks/clocks.py [--alternations 20] [--csv FILE]

Each alternation measures every kernel by CUPTI, by queued event pairs, and under `ncu --clock-control none
--cache-control none` in a plain process without CUPTI, hot and cold: there, too, the L2 is swept before each
launch by reading twice its size. Every other alternation goes the other way round. Goals: for kernels up to
20 µs, hot, `ncu - cupti` and `event - cupti` are each one constant ±0.3 µs over kernels and sizes. For longer
ones, and cold, the ratios are printed with the 95% interval of their median. An alternation takes some 8 s;
SIGTERM ends the run early, with what there is.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from warpdeck.core import worker
from warpdeck.core.bench import performance_cases
from warpdeck.core.model import CacheMode, Candidate, Case, Protocol
from warpdeck.core.stats import median_ci
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

Subject = tuple[str, Any, Candidate, Case, dict[str, Any]]  # label, backend, what, where, what ncu launches
Found = defaultdict[tuple[str, CacheMode, str], list[float]]  # medians, µs, by label, cache and clock
COLUMNS = ["event-cupti", "ncu-cupti", "event/cupti", "low", "high", "ncu/cupti", "low", "high"]

KERNELS = [
    ("softmax", "classic", {"block_size": 256, "reg_cap": 0}, (256, 512, 1024, 4096)),
    ("reduction", "classic", {"block_size": 256, "reg_cap": 0}, (256, 1024, 2048, 8192)),
    ("gemm", "classic", {"block_size": 256, "reg_cap": 0}, (256, 1024)),
]
LAUNCHES = 4  # of each kernel in an alternation, hot and cold; the profiler takes 30 ms for each,
UNUSED = 1  # and its first one is a warm-up
WARMUP = 10  # of our own clocks
HELPERS = Path(worker.__file__).with_name("helpers.cu")
POOL = 1 << 20  # random numbers, repeated to fill a buffer: the profiler's process starts 20 times


def workload_launch(workload: Workload, space: str, config: dict[str, Any], size: int) -> dict[str, Any]:
    """What the plain process needs to launch a candidate."""
    case = workload.size_case(size)
    launch = workload.launches(workload.candidate(space, config), case)[0]
    return {
        "entry": launch.entry,
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.shared,
        "shapes": {k: list(v) for k, v in workload.shapes(case).items()},
        "scalars": dict(workload.scalars(case)),
    }


def launch_all(path: Path) -> None:
    """The process that `ncu` watches: every kernel `LAUNCHES` times on the same data, hot, then cold."""
    from warpdeck.core.toolchain.abi import pack_arguments
    from warpdeck.core.worker import gpu as gpu_module
    from warpdeck.core.worker.gpu import Gpu, check
    from warpdeck.core.worker.lane import HELPER_ENTRIES, Lane

    gpu = Gpu(0)
    gpu.open()
    gpu.load("helpers", path.with_name("helpers.cubin").read_bytes(), HELPER_ENTRIES)
    sweep = Lane(gpu, None, gpu.info()["l2_bytes"]).sweep
    d = gpu_module.driver
    numbers = np.random.default_rng(0).standard_normal(POOL, dtype=np.float32)
    for item in json.loads(path.read_text()):
        workload = load_workload(item["workload"])
        pointers = {}
        for argument in workload.arguments:
            if argument.kind == "scalar":
                continue
            shape = item["shapes"][argument.name]
            host = np.zeros(shape, dtype=np.float32)
            if argument.is_input:
                host[...] = np.resize(numbers, shape)
            pointers[argument.name] = int(check(d.cuMemAlloc(max(host.nbytes, 16)), "memory"))
            check(d.cuMemcpyHtoD(pointers[argument.name], host.ctypes.data, host.nbytes), "upload")
        gpu.load(item["symbol"], Path(item["cubin"]).read_bytes(), [item["symbol"]])
        packed = pack_arguments(
            item["language"], workload.arguments, pointers, item["shapes"], item["scalars"]
        )
        launch = gpu.launch(
            item["symbol"], item["symbol"], item["grid"], item["block"], item["shared"], packed
        )
        for cold in (False, True):
            for _ in range(LAUNCHES):
                if cold:
                    sweep.queue()
                launch.queue()
        gpu.synchronize()
        for pointer in pointers.values():
            d.cuMemFree(pointer)


def ncu(spec: Path) -> list[float]:
    """Microseconds of every kernel launch of the plain process, in order, sweeps left out."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw"]
        command += ["--metrics", "gpu__time_duration.sum", "--print-units", "base"]
        command += [sys.executable, __file__, "--launch", str(spec)]
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, check=False
        )
    start = done.stdout.find('"ID"')
    if start < 0:
        raise SystemExit(f"ncu: {done.stdout[-1500:]} {done.stderr[-1500:]}")
    rows = list(csv.DictReader(io.StringIO(done.stdout[start:])))[1:]
    own = [row for row in rows if not row["Kernel Name"].startswith("wd_")]
    return [float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3 for row in own]


def helpers(device: Any) -> bytes:
    """The cubin of the kernels that the worker measures with."""
    compiled = device.pool.submit_cuda(HELPERS.read_text(encoding="utf-8"), HELPERS.name, device.cc)
    return compiled.result().cubin


def ours(subjects: list[Subject], clock: str, found: Found) -> None:
    """Medians by one of our own clocks, cold and hot, µs."""
    for label, backend, candidate, case, _ in subjects:
        backend.use_clock(clock)
        (samples,), _ = backend.rounds([candidate], case, samples=LAUNCHES, warmup=WARMUP)
        for cache, times in samples.items():
            found[label, cache, clock].append(float(np.median(times)) * 1e3)


def profiled(subjects: list[Subject], spec: Path, found: Found) -> None:
    """Medians by Nsight Compute, hot and cold, µs."""
    launches = ncu(spec)
    if len(launches) != 2 * LAUNCHES * len(subjects):
        raise SystemExit(f"ncu saw {len(launches)} launches, not {2 * LAUNCHES * len(subjects)}")
    times = iter(launches)
    for label, *_ in subjects:
        for cache in (CacheMode.HOT, CacheMode.COLD):
            mine = [next(times) for _ in range(LAUNCHES)]
            found[label, cache, "ncu"].append(float(np.median(mine[UNUSED:])))


def report(labels: list[str], found: Found, done: int) -> list[list[Any]]:
    """Print medians over the alternations, and the goals; returns the rows."""
    lines = []
    print(f"\nmedians over {done} alternations, µs; ratios with the 95% interval of the median")
    print(
        f"{'kernel':16} cache {'cupti':>9} {'event':>9} {'ncu':>9} {'ev-cu':>7} {'ncu-cu':>7}"
        f" {'event / cupti':>22} {'ncu / cupti':>22}"
    )
    for label in labels:
        for cache in (CacheMode.COLD, CacheMode.HOT):
            c, e, n = (np.array(found[label, cache, k]) for k in ("cupti", "event", "ncu"))
            row = [float(np.median(x)) for x in (c, e, n, e - c, n - c)]
            ratios = [(float(np.median(x / c)), *median_ci(x / c)) for x in (e, n)]
            lines.append([label, str(cache), *row, *ratios[0], *ratios[1]])
            print(f"{label:16} {cache:5} " + " ".join(f"{x:9.2f}" for x in row[:3]), end=" ")
            print(f"{row[3]:7.2f} {row[4]:7.2f}", *(f"{r:8.4f} {lo:.4f}-{hi:.4f}" for r, lo, hi in ratios))
    short = [line for line in lines if line[1] == "hot" and line[2] <= 20]
    for what, column in (("event - cupti", 5), ("ncu - cupti", 6)):
        values = np.array([line[column] for line in short], dtype=float)
        middle = (float(np.min(values)) + float(np.max(values))) / 2
        worst = float(np.max(np.abs(values - middle)))
        print(f"up to 20 µs, hot: {what} = {middle:.2f} µs, worst deviation {worst:.2f} µs (goal: 0.3)")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="three clocks on the same kernels")
    parser.add_argument("--alternations", type=int, default=20)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch_all(options.launch)
        return
    device = open_device("cuda:0")
    print(device.info.label)
    work = Path(tempfile.mkdtemp())
    subjects: list[Subject] = []
    for name, space, config, sizes in KERNELS:
        workload = load_workload(name)
        cases = performance_cases(workload, sizes)
        backend: Any = device.prepare(workload, space=space, cases=cases, seed=1)
        candidate = workload.candidate(space, config)
        evaluation = backend.evaluate(candidate, cases, Protocol(samples=30))
        print(name, evaluation.status, evaluation.message)
        compiled = backend.compiled(candidate)
        cubin = work / f"{name}.cubin"
        cubin.write_bytes(compiled.cubin)
        for case, size in zip(cases, sizes, strict=True):
            item = workload_launch(workload, space, config, size)
            item |= {"workload": name, "cubin": str(cubin), "language": compiled.language}
            item["symbol"] = compiled.entries[item["entry"]]
            subjects.append((f"{name} {size}", backend, candidate, case, item))
    (work / "helpers.cubin").write_bytes(helpers(device))
    spec = work / "launches.json"
    spec.write_text(json.dumps([s[4] for s in subjects]))
    found: Found = defaultdict(list)
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))  # told to end: report what there is
    done, started = 0, time.perf_counter()
    while done < options.alternations and not stop:
        parts = [partial(ours, subjects, clock, found) for clock in ("cupti", "event")]
        parts.append(partial(profiled, subjects, spec, found))
        for part in parts if done % 2 == 0 else reversed(parts):
            part()
        done += 1
        print(f"alternation {done}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    lines = report([s[0] for s in subjects], found, done)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kernel", "cache", "cupti_us", "event_us", "ncu_us", *COLUMNS])
            writer.writerows(lines)
    for backend in {id(s[1]): s[1] for s in subjects}.values():
        backend.close()
    device.close()


if __name__ == "__main__":
    main()

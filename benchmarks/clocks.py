"""Three clocks on the same kernels, alternating in one run: ours (CUPTI), event pairs, and Nsight Compute.

    python benchmarks/clocks.py [--alternations 20] [--csv FILE]

Each alternation measures every kernel by CUPTI, by queued event pairs, and under `ncu --clock-control none`
in a plain process without CUPTI; hot (`--cache-control none`) and cold (`all`, which flushes by its own
means). Goals: for kernels up to 20 µs, hot, `ncu - cupti` and `event - cupti` are each one constant ±0.3 µs
over kernels and sizes. For longer ones, and cold, the ratios are printed.
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
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from warpdeck.core.bench import performance_cases
from warpdeck.core.model import CacheMode, Protocol
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

KERNELS = [
    ("softmax", "classic", {"block_size": 256, "reg_cap": 0}, (256, 512, 1024, 4096)),
    ("reduction", "classic", {"block_size": 256, "reg_cap": 0}, (256, 1024, 2048, 8192)),
    ("gemm", "classic", {"block_size": 256, "reg_cap": 0}, (256, 1024)),
]
LAUNCHES = 8  # of each kernel in an alternation; the profiler takes 30 ms for each


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
    """The process that `ncu` watches: every kernel `LAUNCHES` times on the same data."""
    from warpdeck.core.toolchain.abi import pack_arguments
    from warpdeck.core.worker import gpu as gpu_module
    from warpdeck.core.worker.gpu import Gpu, check

    gpu = Gpu(0)
    gpu.open()
    d = gpu_module.driver
    rng = np.random.default_rng(0)
    for item in json.loads(path.read_text()):
        workload = load_workload(item["workload"])
        pointers = {}
        for argument in workload.arguments:
            if argument.kind == "scalar":
                continue
            shape = item["shapes"][argument.name]
            host = rng.standard_normal(shape, dtype=np.float32)
            if not argument.is_input:
                host[...] = 0
            pointers[argument.name] = int(check(d.cuMemAlloc(max(host.nbytes, 16)), "memory"))
            check(d.cuMemcpyHtoD(pointers[argument.name], host.ctypes.data, host.nbytes), "upload")
        gpu.load(item["symbol"], Path(item["cubin"]).read_bytes(), [item["symbol"]])
        packed = pack_arguments(
            item["language"], workload.arguments, pointers, item["shapes"], item["scalars"]
        )
        launch = gpu.launch(
            item["symbol"], item["symbol"], item["grid"], item["block"], item["shared"], packed
        )
        for _ in range(LAUNCHES):
            launch.queue()
        gpu.synchronize()
        for pointer in pointers.values():
            d.cuMemFree(pointer)


def ncu(spec: Path, cache: str) -> list[float]:
    """Microseconds of every kernel launch of the plain process, in order."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["ncu", "--clock-control", "none", "--cache-control", cache, "--csv", "--page", "raw"]
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
    return [float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3 for row in rows]


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
    subjects = []
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
    spec = work / "launches.json"
    spec.write_text(json.dumps([s[4] for s in subjects]))
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))  # told to end: report what there is
    done = 0
    while done < options.alternations and not stop:
        for cache in (CacheMode.COLD, CacheMode.HOT):
            for clock in ("cupti", "event"):
                for label, backend, candidate, case, _ in subjects:
                    backend.use_clock(clock)
                    protocol = Protocol(cache, samples=LAUNCHES, min_samples=LAUNCHES, adaptive=False)
                    measured = backend.evaluate(candidate, [case], protocol).measurements[0]
                    found[label, str(cache), clock].append(measured.median_ms * 1e3)
            times = ncu(spec, "all" if cache is CacheMode.COLD else "none")
            for index, (label, *_) in enumerate(subjects):
                mine = times[index * LAUNCHES : (index + 1) * LAUNCHES]
                found[label, str(cache), "ncu"].append(float(np.median(mine[2:])))
        done += 1
        print(f"alternation {done}", file=sys.stderr)
    lines = []
    print(f"\nmedians over {done} alternations, µs")
    print(
        f"{'kernel':16} cache {'cupti':>9} {'event':>9} {'ncu':>9} {'ev-cu':>7} {'ncu-cu':>7} {'ncu/cu':>7}"
    )
    for label, *_ in subjects:
        for cache in (CacheMode.COLD, CacheMode.HOT):
            c, e, n = (np.array(found[label, str(cache), k]) for k in ("cupti", "event", "ncu"))
            row = [float(np.median(x)) for x in (c, e, n, e - c, n - c, n / c)]
            lines.append([label, str(cache), *row])
            print(f"{label:16} {cache:5} " + " ".join(f"{x:9.2f}" for x in row[:3]), end=" ")
            print(f"{row[3]:7.2f} {row[4]:7.2f} {row[5]:7.3f}")
    short = [line for line in lines if line[1] == "hot" and line[2] <= 20]
    for what, column in (("event - cupti", 5), ("ncu - cupti", 6)):
        values = np.array([line[column] for line in short], dtype=float)
        middle = float(np.median(values))
        worst = float(np.max(np.abs(values - middle)))
        print(f"up to 20 µs, hot: {what} = {middle:.2f} µs, worst deviation {worst:.2f} µs (goal: 0.3)")
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["kernel", "cache", "cupti_us", "event_us", "ncu_us", "event-cupti", "ncu-cupti", "ratio"]
            )
            writer.writerows(lines)
    for backend in {id(s[1]): s[1] for s in subjects}.values():
        backend.close()
    device.close()


if __name__ == "__main__":
    main()

"""How near the bundled kernels come to what the memory and cuBLAS reach, in one run and on one clock.

    python benchmarks/bandwidth.py

Ceilings are read before and after each workload. Goals on an H200 for the best of `full`: reduction at 8192²
90% of the DRAM read rate, softmax at 8192² 90% of the copy rate, gemm at 4096 45% of cuBLAS SGEMM.
"""

from __future__ import annotations

from typing import Any

from warpdeck.core.bench import performance_cases
from warpdeck.core.model import CacheMode, Protocol, Status
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

SIZES = {"reduction": 8192, "softmax": 8192, "gemm": 4096}
CEILINGS = ("dram_read_gbs", "dram_copy_kernel_gbs", "dram_copy_memcpy_gbs")
FINALISTS = 4


def recorded_best(name: str, size: int) -> list[Any]:
    """The fastest candidates of the recording, which this run measures afresh."""
    device = open_device("recorded:h200")
    workload = load_workload(name)
    cases = performance_cases(workload, [size])
    backend = device.prepare(workload, space="full", cases=cases, seed=1)
    candidates = [workload.candidate("full", c) for c in workload.space("full").configs(cases[0].params)]
    found = backend.evaluate_many(candidates, cases, Protocol())
    ok = [e for e in found if e.status is Status.OK]
    backend.close()
    return [e.candidate for e in sorted(ok, key=lambda e: e.score_ms or 1e9)[:FINALISTS]]


def main() -> None:
    finalists = {name: recorded_best(name, size) for name, size in SIZES.items()}
    device: Any = open_device("cuda:0")
    print(f"{device.info.name}, clock {device.clock}; GB/s, fastest of 15; times cold, median of 100")
    for name, size in SIZES.items():
        workload = load_workload(name)
        cases = performance_cases(workload, [size])
        backend = device.prepare(workload, space="full", cases=cases, seed=1)
        before = _ceilings(device)
        protocol = Protocol(CacheMode.COLD, samples=100, min_samples=100, adaptive=False)
        evaluations = [backend.evaluate(c, cases, protocol) for c in finalists[name]]
        vendor = backend.vendor(cases[0], CacheMode.COLD)
        after = _ceilings(device)
        best = min((e for e in evaluations if e.score_ms), key=lambda e: e.score_ms)
        ms = best.score_ms
        print(f"{name} {size}: {ms * 1e3:.2f} µs, {dict(best.candidate.config)}")
        if vendor is not None:
            print(f"  vendor {vendor.median_ms * 1e3:.2f} µs, vendor / ours {vendor.median_ms / ms:.3f}")
        gbs = (workload.min_bytes(cases[0]) or 0) / ms / 1e6
        for key in CEILINGS:
            ceiling = max(before[key], after[key])
            print(f"  {key} {before[key]:.0f} and {after[key]:.0f}: {gbs:.0f} GB/s is {gbs / ceiling:.1%}")
        backend.close()
    device.close()


def _ceilings(device: Any) -> dict[str, float]:
    worker = device.spawn()
    found: dict[str, float] = worker.call("floors", {}, 60.0)
    worker.close()
    return found


if __name__ == "__main__":
    main()

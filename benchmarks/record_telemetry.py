"""Record what `trace` and `profile` show on a recorded device, on a live GPU; prints what it found.

    python benchmarks/record_telemetry.py [--size 1024] [--out kernels] [--traces | --peaks]

For every bundled workload and variant: a trace (16 CTAs, its cost measured) and a profile with the set
`full`. Of the spaces that are recorded the best configuration of the recording is taken (of `classic` the
baseline), of the others the best of 12 drawn ones, timed here beside the vendor's library. With `--traces`
only the traces are recorded again, of the configurations that they have; with `--peaks` the recorded profiles
get the roofs as they are measured now, with the date.
"""

from __future__ import annotations

import argparse
import datetime
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bandwidth import recorded_best

from warpdeck.core.devices.stored_counters import load, save
from warpdeck.core.model import CacheMode, Candidate, Case, Evaluation, Protocol
from warpdeck.core.profiling import profile
from warpdeck.core.tracing import TraceOptions, decoded, record, recorded_traces
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.loader import BUNDLED
from warpdeck.kernels.recorder import short_name
from warpdeck.kernels.recordings import open_device
from warpdeck.sessions.profiles import keep
from warpdeck.telemetry.ncu.counters import Counters

MARKED = ("gemm", "reduction", "softmax")  # workloads whose kernels have stage markers
DRAWN = 12
QUICK = Protocol(CacheMode.COLD, warmup=3, samples=30, min_samples=30, adaptive=False)


def chosen(workload: Workload, case: Case, backend: Any, size: int) -> dict[str, Candidate]:
    """A candidate for each space, by name. Prints those that are timed here."""
    found: dict[str, Candidate] = {}
    for name, space in workload.spaces.items():
        if workload.variant(space.variant).ladder is not None:
            continue  # its kernels have no stage markers
        if name == "classic":
            found[name] = workload.baseline(name)
        elif name == "full":
            found[name] = recorded_best(workload.name, size)[0]
        else:
            configs = space.configs(case.params)
            picked = np.random.default_rng(1).permutation(len(configs))[:DRAWN]
            candidates = [workload.candidate(name, configs[i]) for i in picked]
            evaluations: list[Evaluation] = [
                e for e in backend.evaluate_many(candidates, [case], QUICK) if e.score_ms is not None
            ]
            best = min(evaluations, key=lambda e: e.score_ms or 0.0)
            vendor = backend.vendor(case, CacheMode.COLD)
            ratio = f"{vendor.median_ms / best.score_ms:.2f}" if vendor and best.score_ms else "none"
            print(
                f"{workload.name} {name}: {(best.score_ms or 0) * 1e3:.2f} µs, vendor / ours {ratio}, best of"
                f" {len(evaluations)}: {dict(best.candidate.config)}",
                flush=True,
            )
            found[name] = best.candidate
    return found


def again(workload: Workload, folder: Path, size: int) -> dict[str, Candidate]:
    """What is traced in the recordings of a folder, by space."""
    found: dict[str, Candidate] = {}
    for trace in recorded_traces(sorted(folder.glob("*.wdtrace")), workload.name, "recorded"):
        if trace.case == str(size):
            space = next(s.name for s in workload.spaces.values() if s.variant == trace.variant)
            found[space] = workload.candidate(space, dict(trace.config))
    return found


def with_peaks(device: Any, out: Path) -> None:
    """Write the bundled profiles with this device's measured peaks."""
    worker = device.spawn()
    best = worker.call("floors", {}, 60)
    device.workers.give(worker)
    peaks = {"dram_gbs": best["dram_read_gbs"], "fp32_tflops": best["fp32_tflops"]}
    peaks["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(best, flush=True)
    for path in sorted(BUNDLED.glob("*/recordings/*.counters.json.gz")):
        counters = load(path)
        name = counters.meta["device"]["name"]
        if name != device.info.name:
            raise SystemExit(f"{path.name} is of {name}, and this is {device.info.name}")
        target = out / path.relative_to(BUNDLED)
        target.parent.mkdir(parents=True, exist_ok=True)
        save(replace(counters, meta={**counters.meta, "peaks": peaks}), target)


def main() -> None:
    parser = argparse.ArgumentParser(description="record traces and profiles of the bundled kernels")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "kernels")
    parser.add_argument("--traces", action="store_true", help="only the traces, as they are recorded")
    parser.add_argument("--peaks", action="store_true", help="only the roofs, into the recorded profiles")
    options = parser.parse_args()
    device: Any = open_device("cuda:0")
    if options.peaks:
        with_peaks(device, options.out)
        device.close()
        return
    label = short_name(device.info.name)
    for name in MARKED:
        workload = load_workload(name)
        case = workload.size_case(options.size)
        folder = options.out / name / "recordings"
        backend = device.prepare(workload, space="full", cases=[case], seed=1)
        if options.traces:
            candidates = again(workload, BUNDLED / name / "recordings", options.size)
        else:
            candidates = chosen(workload, case, backend, options.size)
        for space, candidate in candidates.items():
            raw = backend.trace(candidate, case, TraceOptions())
            path = record(raw, folder, label)
            timeline = decoded(raw)
            cost = raw.meta["overhead"]
            kernel, cta = (f"{c['ratio'] - 1:+.1%}" for c in (cost, cost.get("recording", cost)))
            print(
                f"{path.name}: {timeline.events} events, {timeline.mispaired_count} mispaired,"
                f" {timeline.dropped} dropped, ±{timeline.clock.uncertainty_ns:.1f} ns,"
                f" {timeline.clock.method} {timeline.clock.reason}, cost {kernel}, of a CTA {cta},"
                f" {path.stat().st_size} bytes, {space}",
                flush=True,
            )
        backend.close()
        if options.traces:
            continue
        start = time.perf_counter()
        results = profile(workload, device, list(candidates.values()), case, set="full", timeout_s=120)
        took = time.perf_counter() - start
        for result in results:
            if isinstance(result, Counters):
                path = keep(result, folder, label)
                print(
                    f"{path.name}: {result.meta.get('passes')} passes, {path.stat().st_size} bytes",
                    flush=True,
                )
            else:
                print(f"{name}: {result.text}", flush=True)
        start = time.perf_counter()
        configs = workload.space("classic").configs(case.params)
        nine = [workload.candidate("classic", c) for c in configs]
        seed = profile(workload, device, nine, case, set="seed", timeout_s=120)
        each = (time.perf_counter() - start) / len(seed)
        failed = [r for r in seed if not isinstance(r, Counters)]
        print(f"{name}: full set {took:.1f} s; seed set {each:.2f} s a configuration, {len(failed)} failed\n")
    device.close()


if __name__ == "__main__":
    main()

"""How often a comparison is wrong: a kernel against itself (A/A), and an injected 2% slowdown.

    python benchmarks/comparisons.py [--device cuda:0] [--same 1000] [--slower 200]

Every comparison is a whole `Backend.compare`: interleaved samples, as many blocks as `stats.blocks_for` asks
for. Goals: wins in at most 1% of the A/A comparisons; the slowdown found (verdict `loss`) in at least 90%.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from warpdeck.core.bench import performance_cases
from warpdeck.core.model import CacheMode, Protocol
from warpdeck.core.stats import blocks_for, paired_speedup
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

REPEAT = Path(__file__).parent / "workloads" / "repeat"
SAME = [("softmax", 1024), ("reduction", 512), ("gemm", 256), ("softmax", 256)]


def main() -> None:
    parser = argparse.ArgumentParser(description="how often a comparison is wrong")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--same", type=int, default=1000)
    parser.add_argument("--slower", type=int, default=200)
    options = parser.parse_args()
    device = open_device(options.device)
    report: dict[str, object] = {"device": device.info.label}
    totals: Counter[str] = Counter()
    print(f"A/A, {device.info.label}")
    for name, size in SAME:
        for cache in (CacheMode.COLD, CacheMode.HOT):
            workload = load_workload(name)
            cases = performance_cases(workload, [size])
            backend = device.prepare(workload, space="classic", cases=cases, seed=1)
            baseline = workload.baseline("classic")
            first = backend.evaluate(baseline, cases, Protocol(cache=cache))
            blocks = blocks_for(first.measurements[0].samples_ms)
            counts: Counter[str] = Counter()
            start = time.perf_counter()
            for _ in range(options.same // (len(SAME) * 2)):
                paired = backend.compare(baseline, baseline, cases[0], cache, blocks=blocks)
                counts[str(paired_speedup(paired.a_ms, paired.b_ms).verdict)] += 1
            took = time.perf_counter() - start
            each_ms = took / max(counts.total(), 1) * 1e3
            print(f"  {name:9} {size:5} {cache:4} {blocks:4} blocks {each_ms:6.1f} ms each  {dict(counts)}")
            totals += counts
            backend.close()
    share = totals["win"] / totals.total()
    print(f"  all: {dict(totals)}; wins {share:.2%} (goal: at most 1%)")
    report["same"] = dict(totals)

    workload = load_workload(REPEAT)
    cases = performance_cases(workload, [])
    space = next(iter(workload.spaces))
    backend = device.prepare(workload, space=space, cases=cases, seed=1)
    fast, slow = (workload.candidate(space, {"REPEAT": n}) for n in (1000, 1020))
    found: Counter[str] = Counter()
    ratios = []
    evaluations = [backend.evaluate(c, cases, Protocol()) for c in (fast, slow)]
    print("injected:", [(str(e.status), e.message, e.score_ms) for e in evaluations])
    blocks = blocks_for(evaluations[0].measurements[0].samples_ms)
    for i in range(options.slower):
        cache = (CacheMode.COLD, CacheMode.HOT)[i % 2]
        paired = backend.compare(fast, slow, cases[0], cache, blocks=blocks)
        speedup = paired_speedup(paired.a_ms, paired.b_ms)
        ratios.append(1 / speedup.ratio - 1)
        found[str(speedup.verdict)] += 1
    ratios.sort()
    middle = ratios[len(ratios) // 2]
    share = found["loss"] / found.total()
    print(f"  injected slowdown, {blocks} blocks: measured {middle:.2%} (median), verdicts {dict(found)}")
    print(f"  found {share:.1%} (goal: at least 90%)")
    report["slower"] = dict(found)
    backend.close()
    device.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()

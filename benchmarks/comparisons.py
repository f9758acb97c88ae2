"""How often a comparison is wrong: a kernel against itself (A/A), and an injected 2% slowdown.

    python benchmarks/comparisons.py [--device cuda:0] [--same 1000] [--slower 200]

Every comparison is a whole `Bench.compare`, as a search makes them and finalists are ranked by: interleaved
samples of every case, as many blocks as `stats.blocks_for_mean` asks for. Goals: wins in at most 1% of the
A/A comparisons; the slowdown found (verdict `loss`) in at least 90%. A finalist is taken to be slower than
the best without being compared with it where both comparisons with the baseline leave no doubt
(`stats.through`): how often two A/A comparisons in a row would say so of equals is counted, too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from warpdeck.core.bench import Bench, performance_cases
from warpdeck.core.model import CacheMode, Evaluation, Protocol
from warpdeck.core.stats import Speedup, through
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

REPEAT = Path(__file__).parent / "workloads" / "repeat"
SAME = [
    ("softmax", (1024,)),
    ("reduction", (512,)),
    ("gemm", (256,)),
    ("softmax", (256,)),
    ("reduction", (256, 512, 1024)),
]
CACHES = (CacheMode.COLD, CacheMode.HOT)


def compared(bench: Bench, a: Evaluation, b: Evaluation, count: int) -> list[Speedup]:
    """`count` comparisons, with a line on what they took and said."""
    start = time.perf_counter()
    found = [bench.compare(a, b) for _ in range(count)]
    each_ms = (time.perf_counter() - start) / max(count, 1) * 1e3
    sizes = " ".join(case.name for case in bench.cases)
    blocks = Counter(speedup.blocks for speedup in found)
    told = f"{bench.workload.name:9} {sizes:12} {bench.protocol.cache:4}"
    print(f"  {told} {max(blocks, default=0):4} blocks {each_ms:6.1f} ms each  {verdicts(found)}", flush=True)
    return found


def verdicts(found: list[Speedup]) -> dict[str, int]:
    """How many of each."""
    return dict(Counter(str(speedup.verdict) for speedup in found))


def main() -> None:
    parser = argparse.ArgumentParser(description="how often a comparison is wrong")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--same", type=int, default=1000)
    parser.add_argument("--slower", type=int, default=200)
    options = parser.parse_args()
    device = open_device(options.device)
    print(f"A/A, {device.info.label}")
    same: list[Speedup] = []
    doubted: list[Speedup] = []
    for name, sizes in SAME:
        workload = load_workload(name)
        for cache in CACHES:
            cases = performance_cases(workload, sizes)
            bench = Bench(workload, device, space="classic", cases=cases, protocol=Protocol(cache), seed=1)
            baseline = bench.baseline()
            found = compared(bench, baseline, baseline, options.same // (len(SAME) * len(CACHES)))
            same += found
            doubted += [through(b, a) for a, b in pairwise(found)]
            bench.close()
    wins = verdicts(same).get("win", 0) / max(len(same), 1)
    print(f"  all: {verdicts(same)}; wins {wins:.2%} (goal: at most 1%)")
    print(f"  through the baseline, {len(doubted)} times: {verdicts(doubted)}")

    print("injected slowdown")
    workload = load_workload(REPEAT)
    slower: list[Speedup] = []
    for cache in CACHES:
        cases = performance_cases(workload, [])
        space = next(iter(workload.spaces))
        bench = Bench(workload, device, space=space, cases=cases, protocol=Protocol(cache), seed=1)
        fast, slow = (bench.evaluate({"REPEAT": n}) for n in (1000, 1020))
        slower += compared(bench, fast, slow, options.slower // len(CACHES))
        bench.close()
    device.close()
    ratios = sorted(1 / speedup.ratio - 1 for speedup in slower)
    share = verdicts(slower).get("loss", 0) / max(len(slower), 1)
    print(f"  measured {ratios[len(ratios) // 2]:.2%} (median), {verdicts(slower)}")
    print(f"  found {share:.1%} (goal: at least 90%)")
    report = {"same": verdicts(same), "through": verdicts(doubted), "slower": verdicts(slower)}
    print(json.dumps({"device": device.info.label, **report}))


if __name__ == "__main__":
    main()

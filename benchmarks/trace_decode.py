"""How fast traces are decoded, summed up, saved and exported.

    python benchmarks/trace_decode.py [MILLIONS]

Synthetic traces of about that many million records each (default 10), in rows of 4 warps a CTA. The goal is
to decode 10 million events a second; only rows whose nesting is broken, which are walked event by event, miss
it. CPU seconds leave out what other programs took. The clocks' fit isn't in it: that takes 0.1 to 0.4 s a
trace, whatever its size (a recorded trace has 17,000 to 28,000 readings of the clocks).

Measured on two cores of a cloud Xeon, busy with other work (load 5), Python 3.11, 10 million records:

| shape | events per second | per CPU second |
|---|---|---|
| flat | 23.3 M | 48.1 M |
| nested | 24.7 M | 47.9 M |
| tokens | 26.4 M | 29.3 M |
| values | 21.3 M | 22.9 M |
| async | 13.4 M | 22.5 M |
| mixed | 15.7 M | 16.8 M |
| nested, every row full | 26.6 M | 36.6 M |
| nested, an end missing in every row | 2.6 M | 3.6 M |
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import trace_synthetic

from warpdeck.telemetry.trace import chrome, layout, perfetto, store, table
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.summary import summarise
from warpdeck.telemetry.trace.timeline import RawTrace

ITERATIONS = 500


def timed(
    work: Callable[[], Any], repeats: int = 1, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """(seconds of the fastest repeat, result)."""
    best, result = float("inf"), None
    for _ in range(repeats):
        begin = clock()
        result = work()
        best = min(best, clock() - begin)
    return best, result


def shapes(records: int) -> dict[str, RawTrace]:
    """Whole loops, and some that aren't: rows too small, and an end missing in each row."""
    made = {}
    for shape in trace_synthetic.SHAPES:
        each = int(trace_synthetic.loops(1, 1, ITERATIONS, shape).headers["count"][0])
        made[shape] = trace_synthetic.loops(max(records // each // 4, 1), 4, ITERATIONS, shape)
    nested = made["nested"]
    full = RawTrace(nested.headers, nested.records[:, :-3].copy(), nested.anchors, nested.stages)
    made["nested, every row full"] = full
    records_of = nested.records.copy()
    records_of["word"][:, 1001] = layout.word(layout.KIND_MARK, 1)
    made["nested, an end missing in every row"] = RawTrace(
        nested.headers, records_of, nested.anchors, nested.stages
    )
    return made


def main() -> None:
    """Print two tables."""
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    print("| shape | records | events/s | per CPU second | mispaired | summary |\n|---|---|---|---|---|---|")
    for name, raw in shapes(int(millions * 1e6)).items():
        seconds, timeline = timed(lambda raw=raw: decode(raw), 3)
        busy, _ = timed(lambda raw=raw: decode(raw), 3, time.process_time)
        summing, _ = timed(lambda timeline=timeline: summarise(timeline))
        rate, free = timeline.events / seconds / 1e6, timeline.events / busy / 1e6
        print(
            f"| {name} | {raw.records.size / 1e6:.1f} M | {rate:.1f} M | {free:.1f} M "
            f"| {timeline.mispaired_count} | {summing:.2f} s |",
            flush=True,
        )
    raw = shapes(2_000_000)["nested"]
    timeline = decode(raw)
    count = timeline.slices.row.size
    print(f"\n| {count / 1e6:.1f} M slices | write | read | bytes a slice |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for suffix, module in (("pftrace", perfetto), ("json", chrome), ("csv", table), ("wdtrace", store)):
            path = Path(folder) / f"t.{suffix}"
            if module is store:
                writing, _ = timed(lambda path=path: store.save(raw, path))
            else:
                writing, _ = timed(lambda path=path, module=module: module.write(timeline, path))
            reading, _ = timed(lambda path=path: store.open_timeline(path))
            print(f"| .{suffix} | {writing:.2f} s | {reading:.2f} s | {path.stat().st_size / count:.1f} |")


if __name__ == "__main__":
    main()

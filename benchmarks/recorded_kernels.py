"""What the bundled kernels reach, from the recordings that ship with them (no GPU needed).

    python benchmarks/recorded_kernels.py [--device recorded:h200] [--space full]

For every recorded case and cache mode: the fastest configuration's median, how many configurations
are tied with it (`stats.tied`, by round), the baseline's and the vendor's time over it, its share
of the physical floor, and the bandwidth or rate it stands for. Vendor, baseline and configurations
were measured in the same rounds on one clock.
"""

from __future__ import annotations

import argparse

import numpy as np

from warpdeck.core.devices import open_recorded
from warpdeck.core.devices.base import floor_ms
from warpdeck.core.model import CacheMode, Status
from warpdeck.core.stats import round_logs, tied
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import recording_files


def main() -> None:
    parser = argparse.ArgumentParser(description="what the bundled kernels reach")
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--space", default="full")
    options = parser.parse_args()
    device = open_recorded(options.device, recording_files())
    print(f"{device.info.label}, space {options.space}\n")
    print(
        "| workload | n | cache | best µs | tied | baseline / best | vendor / best | floor / best | reaches |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for recording in device.recordings(space=options.space):
        workload = load_workload(recording.workload)
        case = workload.shape_case(recording.params)
        entries = [e for e in recording.entries.values() if e.status is Status.OK and not e.early_stop]
        for cache in (CacheMode.COLD, CacheMode.HOT):
            series = [e.series[cache] for e in entries]
            index = int(np.argmin([s.median_ms for s in series]))
            logs = np.stack([round_logs(s.ms, s.rounds) for s in series])
            ties = int(tied(logs[index], logs).sum())
            best = series[index].median_ms
            floor = floor_ms(workload, case, recording.device, cache)
            vendor = recording.vendor.get(cache)
            flops, size = workload.flops(case) or 0, workload.min_bytes(case) or 0
            reaches = (
                f"{flops / best / 1e9:.1f} TFLOP/s"
                if recording.workload == "gemm"
                else f"{size / best / 1e6:.0f} GB/s"
            )
            cells = [recording.workload, recording.case, str(cache), f"{best * 1e3:.2f}"]
            cells += [f"{ties} of {len(entries)}", f"{recording.baseline.series[cache].median_ms / best:.2f}"]
            cells += [f"{vendor.median_ms / best:.2f}" if vendor else "–"]
            cells += [f"{floor / best:.0%}" if floor else "–", reaches]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

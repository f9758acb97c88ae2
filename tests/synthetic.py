"""Synthetic recordings for tests: a made-up device, times from a formula plus seeded noise. Never
shipped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from warpdeck.core import recording
from warpdeck.core.model import CacheMode, Config, DeviceInfo, Resources, Status
from warpdeck.core.recording import Entry, Recording, Series
from warpdeck.core.workload import Workload

DEVICE = DeviceInfo(
    "Synthetic GPU",
    "cuda:0",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    compute_capability=(9, 0),
    sm_count=132,
    l2_bytes=60 << 20,
    memory_bytes=100 << 30,
    sm_clock_max_mhz=1980.0,
    dram_gbs=4800.0,
    l2_gbs=9000.0,
    fp32_tflops=67.0,
    launch_floor_ms=0.0009,
)


def true_ms(config: Config, n: int) -> float:
    """Smooth, with a single best configuration that is off the corner of the space, and a little size."""
    cost = 0.0
    for i, value in enumerate(config.values()):
        x = float(value) if not isinstance(value, str) else float(len(value))
        cost += ((np.log2(1 + x) - 5 - i) / 6) ** 2
    return 0.02 * (n / 256) ** 2 * (1 + cost)


def series(
    ms: float, rng: np.random.Generator, rounds: int = 8, each: int = 4, noise: float = 0.01
) -> Series:
    """Log-normal noise with a drift shared by each round."""
    drift = rng.normal(0, noise, rounds)
    values = ms * np.exp(np.repeat(drift, each) + rng.normal(0, noise, rounds * each))
    return Series(np.maximum(values, 1e-6).round(6), np.repeat(np.arange(rounds, dtype=np.int32), each))


def make(workload: Workload, space: str, size: int, *, name: str = "test", seed: int = 0) -> Recording:
    """A recording of every configuration; register caps above 0 tie with no cap (one binary)."""
    rng = np.random.default_rng([seed, size])
    case = workload.size_case(size)
    chosen = workload.spaces[space]
    entries: dict[str, Entry] = {}

    def entry(config: Config) -> Entry:
        flat = {k: v for k, v in config.items() if k != "reg_cap"}
        ms = true_ms(flat, size)
        both = {CacheMode.COLD: series(ms, rng), CacheMode.HOT: series(ms * 0.7, rng)}
        resources = Resources(40, occupancy=0.75, limiter="registers", code_hash=repr(sorted(flat.items())))
        return Entry(dict(config), Status.OK, series=both, resources=resources, compile_s=0.1)

    for config in chosen.configs(case.params):
        entries[recording.config_key(config)] = entry(config)
    baseline = workload.baseline(space)
    candidate = workload.candidate(space, next(iter(entries.values())).config)
    return Recording(
        name=name,
        workload=workload.name,
        space=space,
        variant=candidate.variant,
        source_hash=candidate.source_hash,
        case=case.name,
        params=case.params,
        device=DEVICE,
        date="2026-01-01",
        protocol={"clock": "synthetic", "rounds": 8, "samples": 32},
        knobs=chosen.knobs,
        entries=entries,
        baseline_variant=baseline.variant,
        baseline_hash=baseline.source_hash,
        baseline=entry(baseline.config),
        vendor_name="vendor",
        vendor={CacheMode.COLD: series(0.02 * (size / 256) ** 2, rng)},
    )


def write(folder: Path, workload: Workload, space: str, sizes: list[int], **options: object) -> list[Path]:
    """Save one file a size; returns the paths."""
    paths = []
    for size in sizes:
        rec = make(workload, space, size, **options)  # type: ignore[arg-type]
        paths.append(folder / rec.file_name)
        recording.save(rec, paths[-1])
    return paths


def add_counters(path: Path, *, but: tuple[str, ...] = ()) -> dict[str, dict[str, float]]:
    """Give a recording's configurations hardware counters, all different; returns them by key.

    Those with a key in `but` get none.
    """
    document = recording.read_json(path)
    keys = [recording.config_key(row["configuration"]) for row in document["results"]]
    names = ("achieved_occupancy", "l2_hit_rate", "dram_bw_pct", "sm_active_pct")
    values = {
        key: {name: round(((7 * i + 3 * j) % 97 + 1) / 100, 4) for j, name in enumerate(names)}
        for i, key in enumerate(keys)
        if key not in but
    }
    failed = dict.fromkeys(but, "Nsight Compute took longer than 120 s")
    protocol = {"date": "2026-01-02", "set": "seed", "cache": "cold", "tool": "2025.3.1", "failed": failed}
    made = recording.with_counters(document, values, protocol)
    recording.save_bytes(json.dumps(made).encode(), path, packed=True)
    return values

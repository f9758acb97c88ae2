"""Every rung of the ladders on cuda:0: its time, and its share of a vendor's, a copy's and the floor's speed.

    python benchmarks/ladder.py [WORKLOAD …] [--size N] [--knobs] [--limit SECONDS] [--json FILE]

A rung is measured in its default configuration (the first value of each knob), with `--knobs` also in the
best one of its space (found beforehand by a few samples each). All rungs, the vendor's call and a copy kernel
that moves as many bytes (`workloads/copy`, in its best configuration) take turns in rounds of a few cold
samples, L2 swept before each: one run, one clock. Goals on an H200: the top rung of gemm at 4096³ at least
90% of cuBLAS SGEMM's speed; those of reduction, softmax, layernorm and transpose at 8192² at least 95% of the
copy's.

Prints a Markdown table a workload and writes everything to `--json`, also on SIGTERM, on Ctrl-C and at the
limit: then with the rounds so far.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import CacheMode, Candidate, Case, Evaluation, Protocol, Status
from warpdeck.core.stats import bootstrap_by_round, speedup_of_logs
from warpdeck.core.workload import Workload
from warpdeck.kernels import list_workloads, load_workload
from warpdeck.kernels.recordings import open_device

COPY = Path(__file__).parent / "workloads" / "copy"
SIZES = {"gemm": 4096}
SIZE = 8192
SCREENING = Protocol(CacheMode.COLD, warmup=2, samples=10, min_samples=10, adaptive=False)
CEILINGS = ("dram_read_gbs", "dram_copy_kernel_gbs", "dram_copy_memcpy_gbs")

Stopped = Callable[[], bool]
Sample = Callable[[], tuple[Status, NDArray[np.float64]]]


@dataclass
class Series:
    """Cold samples of one contender, ms, by the round's number."""

    label: str
    rounds: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    evaluation: Evaluation | None = None

    @property
    def median_ms(self) -> float | None:
        """Median over all rounds; None without samples."""
        return float(np.median(np.concatenate([*self.rounds.values()]))) if self.rounds else None

    @property
    def right(self) -> bool:
        """Whether the check passed."""
        return self.evaluation is not None and self.evaluation.status is Status.OK

    @property
    def ci95_ms(self) -> tuple[float, float] | None:
        """Interval of the median, rounds drawn as wholes."""
        if not self.rounds:
            return None
        numbers = np.repeat([*self.rounds], [r.size for r in self.rounds.values()])
        return bootstrap_by_round(np.concatenate([*self.rounds.values()]), numbers)

    def speed_over(self, other: Series) -> dict[str, float] | None:
        """This one's speed over another's, from the rounds that both took part in, with a 95% interval."""
        both = [number for number in self.rounds if number in other.rounds]
        if not both:
            return None
        logs = [np.log(np.median(other.rounds[i]) / np.median(self.rounds[i])) for i in both]
        found = speedup_of_logs(logs)
        return {"ratio": found.ratio, "lo": found.lo, "hi": found.hi}

    def to_json(self) -> dict[str, Any]:
        """Times, and what was evaluated."""
        found: dict[str, Any] = {"label": self.label, "median_ms": self.median_ms, "ci95_ms": self.ci95_ms}
        found["samples_ms"] = {i: np.round(r, 6).tolist() for i, r in self.rounds.items()}
        if self.evaluation is not None:
            e = self.evaluation
            found |= {"variant": e.candidate.variant, "config": dict(e.candidate.config)}
            found |= {"status": str(e.status), "message": e.message}
            if e.resources is not None:
                found |= {"registers": e.resources.registers, "spill_bytes": e.resources.spill_bytes}
        return found


def copy_bytes(workload: Workload, case: Case, dram_gbs: float | None, floor_ms: float | None) -> int | None:
    """The bytes a copy has to move for comparison; None where memory isn't what bounds the case."""
    size = workload.min_bytes(case)
    if not size or not dram_gbs or not floor_ms or size / (dram_gbs * 1e6) < 0.5 * floor_ms:
        return None
    return size


def best_of(backend: Any, candidates: Sequence[Candidate], case: Case, stopped: Stopped) -> list[Evaluation]:
    """The candidates that are right, fastest first, by a few samples; as many as there was time for."""
    found = []
    for evaluation in backend.evaluate_many(candidates, [case], SCREENING):
        if evaluation.status is Status.OK and evaluation.score_ms is not None:
            found.append(evaluation)
        if stopped():
            break
    return sorted(found, key=lambda e: e.score_ms or 0.0)


def rung_series(workload: Workload, backend: Any, case: Case, knobs: bool, stopped: Stopped) -> list[Series]:
    """A contender for each rung, checked; with `knobs` a second one where another configuration is faster."""
    found = []
    for variant in workload.ladder():
        if stopped():
            break
        space = workload.space_of(variant.name)
        configs = space.configs_for([case.params])
        if not configs:
            continue
        default = workload.candidate(space.name, configs[0])
        evaluation = backend.admit([default], case)[0]
        label = f"{variant.ladder} {variant.name}"
        if variant.precision:
            label += f" ({variant.precision})"
        found.append(Series(label, evaluation=evaluation))
        if knobs and len(configs) > 1 and not stopped():
            tried = best_of(backend, [workload.candidate(space.name, c) for c in configs], case, stopped)
            if tried and tried[0].candidate.id != default.id:
                found.append(Series(f"{label}, best knobs", evaluation=tried[0]))
    return found


def sampler(backend: Any, series: Series, case: Case, samples: int) -> Sample:
    """What takes a round of one contender's samples: a warm-up, then cold ones."""
    assert series.evaluation is not None
    return partial(backend.quick, series.evaluation.candidate, case, cache=CacheMode.COLD, samples=samples)


def measure(device: Any, name: str, options: argparse.Namespace, stopped: Stopped) -> dict[str, Any]:
    """One workload's table, as JSON."""
    workload = load_workload(name)
    case = workload.size_case(options.size or SIZES.get(name, SIZE))
    space = workload.space_of(workload.ladder()[0].name).name
    backend = device.prepare(workload, space=space, cases=[case], seed=options.seed)
    copier: Any = None
    copy_case = case
    try:
        floor = backend.floor_ms(case, CacheMode.COLD)
        rungs = rung_series(workload, backend, case, options.knobs, stopped)
        moved = copy_bytes(workload, case, device.info.dram_gbs, floor)
        copies: list[Series] = []
        if moved:
            copy = load_workload(COPY)
            copy_case = copy.size_case(max(moved // 8, 1))
            copier = device.prepare(copy, space="full", cases=[copy_case], seed=options.seed)
            ways = [copy.candidate("full", c) for c in copy.space("full").configs()]
            fastest = best_of(copier, ways, copy_case, stopped)[:3]
            copies = [Series(f"copy {dict(e.candidate.config)}", evaluation=e) for e in fastest]
        vendor = Series(workload.vendor_name or "vendor")
        contenders = [(s, sampler(backend, s, case, options.samples)) for s in rungs if s.right]
        contenders += [(s, sampler(copier, s, copy_case, options.samples)) for s in copies]
        for number in range(options.rounds):
            if stopped():
                break
            turn = number % len(contenders) if contenders else 0  # nobody is always the first
            for series, sample in contenders[turn:] + contenders[:turn]:
                status, values = sample()
                if status is Status.OK and values.size:
                    series.rounds[number] = values
            sampled = backend.vendor_round(case, samples=options.samples).get(CacheMode.COLD)
            if sampled is not None:
                vendor.rounds[number] = np.asarray(sampled)
        copied = min((c for c in copies if c.rounds), key=lambda c: c.median_ms or 0.0, default=None)
        return {
            "workload": name,
            "case": {"name": case.name, "params": dict(case.params)},
            "bytes": workload.min_bytes(case),
            "flops": workload.flops(case),
            "floor_ms": floor,
            "vendor": vendor.to_json() | {"problem": backend.vendor_problem},
            "copy": copied.to_json() if copied else None,
            "rungs": [
                series.to_json()
                | {
                    "of_vendor": series.speed_over(vendor),
                    "of_copy": series.speed_over(copied) if copied else None,
                    "of_floor": floor / series.median_ms if floor and series.median_ms else None,
                }
                for series in rungs
            ],
        }
    finally:
        backend.close()
        if copier is not None:
            copier.close()


def table(found: Mapping[str, Any]) -> str:
    """The Markdown table of one workload."""
    lines = [f"### {found['workload']} {found['case']['name']}", ""]
    vendor, copy, floor = found["vendor"], found["copy"], found["floor_ms"]
    lines.append(f"{vendor['label']}: {_time(vendor)}; floor: {_us(floor)}; {_copy(copy, found['bytes'])}.")
    lines += ["", "| rung | time, µs (95%) | rate | of vendor | of copy (95%) | of floor | knobs |"]
    lines.append("|---|---|---|---|---|---|---|")
    for rung in found["rungs"]:
        if rung["median_ms"] is None:
            reason = f"{rung['status']}: {rung['message']}" if rung["status"] != "ok" else "not measured"
            lines.append(f"| {rung['label']} | {reason} | | | | | {_knobs(rung)} |")
            continue
        copied = rung["of_copy"]
        share = f"{copied['ratio']:.1%} ({copied['lo']:.1%} to {copied['hi']:.1%})" if copied else "–"
        vendored = f"{rung['of_vendor']['ratio']:.1%}" if rung["of_vendor"] else "–"
        floored = f"{rung['of_floor']:.1%}" if rung["of_floor"] else "–"
        rate = _rate(found, rung["median_ms"])
        cells = (rung["label"], _time(rung), rate, vendored, share, floored, _knobs(rung))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _us(ms: float | None) -> str:
    return f"{ms * 1e3:,.2f} µs" if ms else "unknown"


def _time(series: Mapping[str, Any]) -> str:
    if series["median_ms"] is None:
        return series.get("problem") or "not measured"
    lo, hi = (x * 1e3 for x in series["ci95_ms"])
    return f"{series['median_ms'] * 1e3:,.2f} ({lo:,.2f} to {hi:,.2f})"


def _rate(found: Mapping[str, Any], ms: float) -> str:
    """By memory where a copy is the yardstick, else by arithmetic."""
    if found["copy"] is not None or not found["flops"]:
        return f"{found['bytes'] / ms / 1e6:,.0f} GB/s" if found["bytes"] else "–"
    return f"{found['flops'] / ms / 1e9:,.1f} TFLOP/s"


def _copy(copy: Mapping[str, Any] | None, moved: int | None) -> str:
    if copy is None or not moved:
        return "no copy: memory doesn't bound it"
    return f"{copy['label']} of as many bytes: {_time(copy)}, {moved / copy['median_ms'] / 1e6:,.0f} GB/s"


def _knobs(rung: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in rung["config"].items())


def ceilings(device: Any) -> dict[str, float]:
    """Rates of 2 GB by the worker's own kernels and cudaMemcpy, GB/s: where the run stands."""
    worker = device.spawn()
    found: dict[str, float] = worker.call("floors", {}, 60.0)
    worker.close()
    return {key: found[key] for key in CEILINGS}


def main() -> int:
    ladders = [name for name in list_workloads() if load_workload(name).ladder()]
    parser = argparse.ArgumentParser(description="measure every rung of the ladders on cuda:0")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(ladders)} (all)")
    parser.add_argument("--size", type=int, help=f"default {SIZE}, gemm {SIZES['gemm']}")
    parser.add_argument("--knobs", action="store_true", help="also the best configuration of each rung")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=10, help="of each contender in a round")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs")
    parser.add_argument(
        "--limit", type=float, default=540.0, metavar="SECONDS", help="stop after, with what there is"
    )
    parser.add_argument("--json", type=Path, default=Path("ladder.json"), metavar="FILE")
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in ladders]
    if unknown:
        parser.error(f"{unknown[0]} has no ladder; there are {', '.join(ladders)}")

    begun, signals = time.monotonic(), []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    names = options.workloads or ladders
    device: Any = open_device("cuda:0")
    document: dict[str, Any] = {
        "date": date.today().isoformat(),
        "command": shlex.join(["python", "benchmarks/ladder.py", *sys.argv[1:]]),
        "device": device.info.to_json(),
        "clock": device.clock,
        "workloads": [],
    }
    try:
        document["before"] = ceilings(device)
        print(
            f"{device.info.name}, clock {device.clock}, cold, {options.rounds} rounds of {options.samples}\n"
        )
        for done, name in enumerate(names):
            spent = time.monotonic() - begun
            until = time.monotonic() + (options.limit - spent) / (len(names) - done)  # time left, shared
            if signals or spent > options.limit:
                break

            def stopped(until: float = until) -> bool:
                return bool(signals) or time.monotonic() > until

            try:
                document["workloads"].append(measure(device, name, options, stopped))
            except WarpdeckError as error:
                document["workloads"].append({"workload": name, "error": str(error)})
                print(f"{name}: {error}", file=sys.stderr)
            else:
                print(table(document["workloads"][-1]), flush=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if not signals:
            document["after"] = ceilings(device)
    finally:
        device.close()
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for key in CEILINGS:
        print(
            f"{key}: {document['before'][key]:,.0f}, after {document.get('after', {}).get(key, 0):,.0f} GB/s"
        )
    return 128 + signals[0] if signals else 0


if __name__ == "__main__":
    sys.exit(main())

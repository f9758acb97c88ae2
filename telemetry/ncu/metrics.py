"""Which counters to ask Nsight Compute for, and what they mean: our quantities and the named metric sets.

A *quantity* has our name (`l2_hit_rate`) and is read from, or computed from, Nsight Compute's *counters*
(`lts__t_sector_hit_rate.pct`). The tests hold the counters' names against CUPTI's host library for one chip
of every generation from Volta to Blackwell. A quantity whose counters differ by chip or by set has several
ways to get it; the first whose counters were read wins. One that can't be had is missing with a reason,
never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .catalogue import QUANTITIES
from .counters import Metric
from .quantity import Quantity, Way

__all__ = [
    "ISSUED",
    "PIPE",
    "QUANTITIES",
    "SEED",
    "SETS",
    "STALLS",
    "MetricSet",
    "Quantity",
    "Way",
    "derive",
    "label",
    "meaning",
    "normalise",
    "stall_name",
    "unit",
]

SEED = ("achieved_occupancy", "l2_hit_rate", "dram_bw_pct", "sm_active_pct")

# Parts of `sm_throughput_pct` that a diagnosis looks at: instructions issued, and those of each pipe.
ISSUED = "sm__inst_issued.avg.pct_of_peak_sustained_elapsed"
PIPE = re.compile(r"sm__inst_executed_pipe_([a-z]+[0-9]*)\.avg\.pct_of_peak_sustained_elapsed")

# Reasons why a warp did not issue: Nsight Compute's name -> what it waits for. `selected` did issue.
STALLS: Mapping[str, str] = MappingProxyType(
    {
        "barrier": "other warps of the block at a barrier",
        "branch_resolving": "a branch's target",
        "dispatch_stall": "the dispatcher, which held the instruction back",
        "drain": "its memory stores to finish before it exits",
        "gmma": "a warpgroup's matrix instruction (wgmma) or its arrival",
        "imc_miss": "a miss in the immediate constant cache",
        "lg_throttle": "the full queue of local and global memory instructions",
        "long_scoreboard": "data from global, local or texture memory",
        "math_pipe_throttle": "a busy arithmetic pipe",
        "membar": "a memory fence",
        "mio_throttle": "the full queue of shared-memory, special and branch instructions",
        "misc": "something else",
        "no_instruction": "an instruction to be fetched",
        "not_selected": "another warp that was issued instead",
        "selected": "nothing: it issued",
        "short_scoreboard": "data from shared memory or the special function unit",
        "sleeping": "the end of its own nanosleep",
        "tex_throttle": "the full queue of texture instructions",
        "wait": "a fixed latency between dependent instructions",
    }
)

# The same reasons as the CSV's source page, sampling counters and newer chips spell them.
_STALL_ALIASES = {
    "branch_resolve": "branch_resolving",
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instruction",
    "no_instructions": "no_instruction",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
    "warpgroup_arrive": "gmma",
}


def stall_name(name: str) -> str:
    """Our name of a stall reason, however Nsight Compute spells it; an unknown one stays itself."""
    return _STALL_ALIASES.get(name, name)


@dataclass(frozen=True)
class MetricSet:
    """What to collect together.

    `quantities`: ours. `sections`: Nsight Compute's sections to collect too. `preset`: its own `--set`, and
    `asked`: the quantities that this lacks. `source`: whether samples and counts by instruction are part of
    it. `passes`: runs of the kernel that Nsight Compute 2025.3 took on GH100 where measured, else None; that
    is one more than the counters need by CUPTI's schedule, unless they need only one.
    """

    name: str
    description: str
    quantities: tuple[str, ...]
    sections: tuple[str, ...] = ()
    preset: str = ""
    asked: tuple[str, ...] = ()
    source: bool = False
    passes: int | None = None

    def counters(self, capability: tuple[int, int] | None = None) -> tuple[str, ...]:
        """Nsight Compute's names to ask for; with a compute capability only those that this chip has."""
        names: dict[str, None] = {}
        for quantity in self.asked or self.quantities:
            for way in QUANTITIES[quantity].ways:
                if capability is None or way.on(capability):
                    names.update(dict.fromkeys(n for n in way.counters if not _always_read(n)))
                    if capability is not None or way.everywhere:
                        break
        return tuple(names)

    def arguments(self, capability: tuple[int, int] | None = None) -> list[str]:
        """Options for `ncu` that collect this set and nothing else."""
        options = ["--set", self.preset] if self.preset else []
        for section in self.sections:
            options += ["--section", section]
        if counters := self.counters(capability):
            options += ["--metrics", ",".join(counters)]
        if self.source:
            options += ["--import-source", "yes"]
        return options


def _always_read(counter: str) -> bool:
    """Whether a report holds this counter whatever was asked for (facts of the launch and the tool)."""
    return counter.startswith(("launch__", "profiler__", "sm__maximum_warps"))


_BASE = ("duration_ns", *SEED)
_LAUNCH = (
    "theoretical_occupancy",
    "registers",
    "shared_bytes",
    "grid_size",
    "block_size",
    "sm_count",
    "waves",
    "limit_blocks",
    "limit_registers",
    "limit_shared",
    "limit_warps",
    "limit_barriers",
    "passes",
)
_CHEAP = (
    "dram_bytes_per_s",
    "l1_hit_rate",
    "issue_active_pct",
    "shared_bank_conflicts",
    "tensor_inst_pct",
    "local_load_sectors",
    "local_store_sectors",
)
_ROOFLINE = (
    "dram_bytes",
    "dram_bytes_per_s",
    "sm_throughput_pct",
    "memory_throughput_pct",
    "l2_throughput_pct",
    "l1_throughput_pct",
    "flops_fp32",
    "flops_fp64",
    "flops_fp16",
    "peak_flops_fp32",
    "peak_flops_fp64",
    "peak_flops_fp16",
    "peak_dram_bytes_per_s",
    "tensor_active_pct",
)
_MEMORY = (
    "dram_bytes_per_s",
    "dram_read_bytes",
    "dram_write_bytes",
    "l1_hit_rate",
    "l2_throughput_pct",
    "l1_throughput_pct",
    "memory_throughput_pct",
    "shared_bank_conflicts",
    "shared_wavefronts",
    "bank_conflict_pct",
    "local_load_sectors",
    "local_store_sectors",
    "local_sector_pct",
    "global_load_efficiency",
    "global_store_efficiency",
    "global_load_sectors_per_request",
    "global_store_sectors_per_request",
)
_STALL_QUANTITIES = (
    "issue_active_pct",
    "eligible_warps",
    "active_threads_per_inst",
    *(f"stall_{reason}" for reason in STALLS),
)


def _with_base(*groups: Sequence[str]) -> tuple[str, ...]:
    """The quantities of the groups with those that every set has, each once."""
    return tuple(dict.fromkeys(q for group in (_BASE, *groups, _LAUNCH) for q in group))


SETS: Mapping[str, MetricSet] = MappingProxyType(
    {
        s.name: s
        for s in (
            MetricSet(
                "seed", "the four counters of the observation, and the duration", _with_base(), passes=3
            ),
            MetricSet("cheap", "the most that an inner loop can afford", _with_base(_CHEAP), passes=3),
            MetricSet(
                "roofline",
                "arithmetic, bytes and peaks: roofline and speed of light",
                _with_base(_ROOFLINE),
                passes=11,
            ),
            MetricSet(
                "stalls",
                "why warps wait, and at which lines",
                _with_base(_STALL_QUANTITIES),
                sections=("SourceCounters",),
                source=True,
                passes=11,
            ),
            MetricSet(
                "memory",
                "traffic, hit rates, coalescing, bank conflicts and spills",
                _with_base(_MEMORY),
                passes=12,
            ),
            MetricSet(
                "full",
                "everything that Nsight Compute's own full set reads, with samples by line",
                _with_base(_CHEAP, _ROOFLINE, _MEMORY, _STALL_QUANTITIES),
                preset="full",
                asked=(*_BASE, "tensor_inst_pct"),
                source=True,
                passes=38,
            ),
        )
    }
)


def label(name: str) -> str:
    """The words to show for a quantity; a counter's own name where it is none of ours."""
    quantity = QUANTITIES.get(name)
    return quantity.label if quantity else name


def unit(name: str) -> str:
    """The unit of a quantity, "" if it has none or is none of ours."""
    quantity = QUANTITIES.get(name)
    return quantity.unit if quantity else ""


def meaning(name: str) -> str:
    """One sentence on what a quantity says, "" if it is none of ours."""
    quantity = QUANTITIES.get(name)
    return quantity.meaning if quantity else ""


def normalise(value: float, unit: str) -> float | None:
    """A percentage as 0..1; None for any other unit and for what is no share of a whole.

    Counters are read in several passes, so that a true 100% may read a few percent more: that is 1.
    """
    if unit != "%" or not math.isfinite(value) or not -0.5 <= value <= 110.0:
        return None
    return min(max(value / 100.0, 0.0), 1.0)


def derive(
    raw: Mapping[str, Metric],
    absent: Mapping[str, str] | None = None,
    wanted: Iterable[str] = SEED,
    capability: tuple[int, int] | None = None,
) -> tuple[dict[str, Metric], dict[str, str]]:
    """Our quantities from Nsight Compute's counters (values in base units), and why others are missing.

    `absent`: counters that were asked for but have no value -> why. `wanted`: quantities that must be either
    in the result or in `missing`; the four seed quantities always are. Every quantity that can be had is
    given, wanted or not. `capability`: of the GPU, for the reasons that depend on the chip.
    """
    absent = absent or {}
    found: dict[str, Metric] = {}
    missing: dict[str, str] = {}
    names = dict.fromkeys((*SEED, *wanted))
    for quantity in QUANTITIES.values():
        value, reason = _evaluate(quantity, raw, absent, capability)
        if value is not None:
            found[quantity.name] = Metric(value, quantity.unit, normalise(value, quantity.unit))
        elif quantity.name in names:
            missing[quantity.name] = reason
    for name in names:
        if name not in QUANTITIES and name not in raw:
            missing[name] = absent.get(name, "not collected")
    return found, missing


def _evaluate(
    quantity: Quantity,
    raw: Mapping[str, Metric],
    absent: Mapping[str, str],
    capability: tuple[int, int] | None,
) -> tuple[float | None, str]:
    """The value, or None and why there is none."""
    reasons: list[str] = []
    for way in quantity.ways:
        if all(name in raw for name in way.counters):
            value = way.combine([raw[name].value for name in way.counters])
            if value is not None and math.isfinite(value):
                return value, ""
            reasons.append(quantity.undefined or "it can't be computed from these counters")
        else:
            reasons += [f"{name}: {absent[name]}" for name in way.counters if name in absent]
    if capability is not None and not any(way.on(capability) for way in quantity.ways):
        return None, f"compute capability {capability[0]}.{capability[1]} has no such counter"
    if reasons:
        return None, reasons[0]
    sets = [s.name for s in SETS.values() if quantity.name in s.quantities]
    return None, "not collected" + (f"; it is in the metric set {sets[0]}" if sets else "")

"""What a policy sees: the source's observation vector, generalised to any search space. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

KERNELS = ("gemm", "reduction", "softmax")  # one-hot order; any other workload gets zeros
COUNTERS = ("achieved_occupancy", "l2_hit_rate", "dram_bw_pct", "sm_active_pct")
NVML = ("gpu_util", "mem_util", "mem_used", "temp")
_SIZE_RANGE = (6.0, 14.0)  # log2 of the sizes that map to 0 and 1: 64 and 16384


@dataclass(frozen=True)
class ObservationLayout:
    """Slots of the observation, all in [0, 1], in the source's order.

    Kernel one-hot (3), previous action (one slot a knob: index / (values - 1)), hardware counters (4), NVML
    (4, if `use_nvml`), log2 of the size (1, if `observe_size`). With two knobs that makes 13, or 9 without
    NVML.

    Args:
        nvec: Number of values of each knob.
        use_nvml: Whether the NVML slots exist.
        observe_size: Whether the size slot exists.
    """

    nvec: tuple[int, ...]
    use_nvml: bool = True
    observe_size: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of every slot."""
        names = [f"kernel_{k}" for k in KERNELS]
        names += [f"previous_action_{i}" for i in range(len(self.nvec))]
        names += [f"cupti_{c}" for c in COUNTERS]
        if self.use_nvml:
            names += [f"nvml_{n}" for n in NVML]
        if self.observe_size:
            names.append("size")
        return tuple(names)

    @property
    def dim(self) -> int:
        """Length of the vector."""
        return len(self.names)

    @cached_property
    def context(self) -> tuple[int, ...]:
        """Slots that stay constant within an episode and tell tasks apart: kernel and size."""
        return tuple(i for i, n in enumerate(self.names) if n.startswith("kernel_") or n == "size")

    def build(
        self,
        kernel: str,
        size: int | None,
        previous: Sequence[int],
        nvml: Sequence[float] = (),
        counters: Sequence[float] = (),
    ) -> NDArray[np.float32]:
        """A fresh float32 vector of shape (dim,).

        Args:
            kernel: Workload's name.
            size: The episode's size; None leaves its slot 0.
            previous: Indices of the previous action; at the start of an episode the baseline's.
            nvml: The four NVML values in [0, 1]; empty leaves zeros.
            counters: The four counter values in [0, 1]; empty leaves zeros.
        """
        out = np.zeros(self.dim, dtype=np.float32)
        if kernel in KERNELS:
            out[KERNELS.index(kernel)] = 1.0
        at = len(KERNELS)
        for index, count in zip(previous, self.nvec, strict=True):
            out[at] = index / max(count - 1, 1)
            at += 1
        if counters:
            out[at : at + 4] = np.clip(counters, 0.0, 1.0)
        at += len(COUNTERS)
        if self.use_nvml:
            if nvml:
                out[at : at + 4] = nvml
            at += len(NVML)
        if self.observe_size and size is not None:
            out[at] = size_feature(size)
        return out


def size_feature(size: int) -> float:
    """log2 of a size, 64 to 16384 mapped to [0, 1]."""
    low, high = _SIZE_RANGE
    return min(max((math.log2(size) - low) / (high - low), 0.0), 1.0)


def nvml_features(sample: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """GPU and memory utilisation, memory used and temperature of an NVML sample, in [0, 1]; unknown is 0."""

    def ratio(value: float | None, whole: float | None) -> float:
        return min(max(value / whole, 0.0), 1.0) if value is not None and whole else 0.0

    return (
        ratio(sample.get("gpu_util"), 100.0),
        ratio(sample.get("mem_util"), 100.0),
        ratio(sample.get("mem_used"), sample.get("mem_total")),
        ratio(sample.get("temp_c"), 100.0),
    )

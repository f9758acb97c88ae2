"""Uniform random search without replacement: the baseline every other agent has to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .base import InOrder, valid_configs

if TYPE_CHECKING:
    from ..core.bench import Bench


class RandomSearch(InOrder):
    """A seeded permutation of the valid configurations; a resumed run continues the same permutation."""

    name = "random"

    def __init__(self, bench: Bench, *, seed: int = 0) -> None:
        configs = valid_configs(bench)
        order = np.random.default_rng(seed).permutation(len(configs))
        super().__init__((configs[i] for i in order), bench.space.key)

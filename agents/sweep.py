"""Every valid configuration once, in the space's order (the source's phase 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import InOrder, valid_configs

if TYPE_CHECKING:
    from ..core.bench import Bench


class Sweep(InOrder):
    """Exhaustive search in knob-product order."""

    name = "sweep"

    def __init__(self, bench: Bench) -> None:
        super().__init__(valid_configs(bench), bench.space.key)

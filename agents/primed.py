"""A strategy that first tries configurations which did well elsewhere, then goes its own way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core.model import Config, Evaluation
from ..core.space import SearchSpace
from .base import Strategy

if TYPE_CHECKING:
    from ..core.bench import Proposal


class Primed:
    """Asks `first` before `strategy` is asked; the strategy is told all outcomes.

    Args:
        strategy: Goes on afterwards, and learns from these too.
        first: Configurations of the space, best first.
        space: Tells configurations apart.
    """

    def __init__(self, strategy: Strategy, first: Iterable[Config], space: SearchSpace) -> None:
        self.name = strategy.name
        self.lookahead = strategy.lookahead
        self._strategy = strategy
        self._first = list(first)
        self._key = space.key
        self._told: set[str] = set()

    def ask(self) -> Proposal | None:
        """The next of `first` that wasn't told yet, else what the strategy asks."""
        while self._first:
            config = self._first.pop(0)
            if self._key(config) not in self._told:
                return config
        return self._strategy.ask()

    def tell(self, config: Config, evaluation: Evaluation) -> None:
        """Pass an outcome on."""
        self._told.add(self._key(config))
        self._strategy.tell(config, evaluation)

"""Tokens and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .settings import Price


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer, or of many.

    `input` includes `cached` (input that the provider had cached), `output` includes `reasoning`.
    `estimated`: the server didn't say, so that four characters count as a token.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        """Input and output tokens."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    def to_data(self) -> dict[str, Any]:
        """As events hold it."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Usage:
        """From an event; absent numbers count as 0."""
        return cls(
            *(int(data.get(name) or 0) for name in ("input", "cached", "output", "reasoning")),
            estimated=bool(data.get("estimated")),
        )


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """USD of a usage; None where the price is unknown."""
    if price is None:
        return None
    cached = min(usage.cached, usage.input)
    fresh = usage.input - cached
    per_million = (
        fresh * price["input"] + cached * price.get("cached", price["input"]) + usage.output * price["output"]
    )
    return per_million / 1e6

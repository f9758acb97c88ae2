"""Beam search: several kernels are developed further at a time, each by several ideas, asked in parallel.

What failed in a round is repaired in the next one, beside its ideas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from .history import Attempt
from .proposal import ProposalError, parse_ideas

T = TypeVar("T")
R = TypeVar("R")

MAX_PARALLEL = 8  # requests at a time


@dataclass(frozen=True)
class Slot:
    """An attempt to be proposed: its number, the attempt it develops, its idea, its round's first number, the
    failed attempt that it repairs."""

    number: int
    parent: int | None
    idea: str = ""
    round: int | None = None
    repairs: int | None = None


def slots(
    ask: Callable[[Attempt, int], Any],
    parents: Sequence[Attempt],
    first: int,
    count: int,
    failed: Sequence[Attempt] = (),
) -> list[Slot]:
    """A round: a repair for each attempt that failed, then at most `count` ideas for each parent, numbered
    from `first`.

    `ask(parent, number)` gives the model's ideas as JSON, or None; it runs in threads. Without a parent, and
    with nothing to repair, the round is one attempt without an idea.
    """
    repairs = [Slot(first + i, a.parent, a.idea, first, a.number) for i, a in enumerate(failed)]
    if not parents:
        return repairs or [Slot(first, None, "", first)]
    answers = parallel(lambda pair: ask(pair[1], first + pair[0]), list(enumerate(parents)))
    found: list[tuple[int, str]] = []
    for parent, answer in zip(parents, answers, strict=True):
        try:
            found += [(parent.number, idea) for idea in parse_ideas(answer, count)]
        except ProposalError:
            continue  # another parent may have ideas
    after = first + len(repairs)
    return repairs + [Slot(after + i, parent, idea, first) for i, (parent, idea) in enumerate(found)]


def parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Results in order, from threads where there are several. All end before an exception is raised."""
    todo = list(items)
    if len(todo) < 2:
        return [function(item) for item in todo]
    with ThreadPoolExecutor(min(len(todo), MAX_PARALLEL), thread_name_prefix="idea") as pool:
        return [future.result() for future in [pool.submit(function, item) for item in todo]]

"""Asks a model: streaming, retries, tools, structured answers, everything logged before it is acted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .prices import Usage
from .settings import LlmSettings

if TYPE_CHECKING:
    from ..base import Context

Message = Mapping[str, Any]
"""`role` (system, user, assistant) and `content` (text)."""


@dataclass(frozen=True)
class Tool:
    """What a model may call.

    `parameters` is a JSON schema of an object; `run` gets arguments that satisfy it and returns text for the
    model. Its errors (ValueError, WarpdeckError) become text for the model too.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Reply:
    """A model's answer.

    `data` is its JSON if a schema was asked for (it satisfies it), else None; `reasoning` the summary or trace
    that the server showed (may be empty). Usage, cost (USD, or None where unknown) and seconds cover all
    requests of the ask, tool rounds and repairs included.
    """

    text: str
    data: Any = None
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    seconds: float = 0.0


class Client:
    """One run's connection to a model.

    Safe to use from several threads at once (parallel ideas). `usage` and `cost` are the run's totals, what
    it spent before a resume included.
    """

    usage: Usage
    cost: float | None

    def __init__(self, settings: LlmSettings, context: Context) -> None:
        """UsageError if the extra or the key is missing. Sends nothing."""
        raise NotImplementedError

    def ask(
        self,
        messages: Sequence[Message],
        *,
        purpose: str,
        attempt: int | None = None,
        schema: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Reply:
        """Ask, run the tools that the model calls, and return its final answer.

        Args:
            messages: The conversation so far.
            purpose: Why, for people and the log (`propose`, `repair`, `author: reference`).
            attempt: The attempt that it is for.
            schema: JSON schema of the answer (an object); `Reply.data` satisfies it.
            tools: What the model may call first.

        Raises:
            LlmError: it can't be had; `kind` says why. ContextOverflow: condense the messages and ask again.
            Stop: the user stopped the run meanwhile.
        """
        raise NotImplementedError

    def research(self, question: str, *, attempt: int | None = None) -> Reply | None:
        """Ask the provider's web search, limited to NVIDIA's documentation; the text ends with its sources.
        None (and a message in the log) where the server has none."""
        raise NotImplementedError

    def close(self) -> None:
        """End all connections."""
        raise NotImplementedError

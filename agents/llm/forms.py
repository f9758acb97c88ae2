"""The ways to put a request to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .negotiate import Plan, Turn
from .settings import LlmSettings
from .wire import Exchange, Wire


class Form(Protocol):
    """A way to put a request. `without` gives another one that leaves out what the server rejected."""

    params: Mapping[str, Any]
    plan: Plan | None

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        ...

    def without(self, rejected: str) -> tuple[Form, str] | None:
        """The same without what was rejected, and what that was; None if it can't do without."""
        ...


class ChatForm:
    """POST /chat/completions."""

    def __init__(self, plan: Plan, turn: Turn, settings: LlmSettings) -> None:
        self.plan: Plan | None = plan
        self.params: Mapping[str, Any] = plan.params(turn, settings)
        self._make = lambda better: ChatForm(better, turn, settings)
        self._plan = plan

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        return wire.chat(self.params)

    def without(self, rejected: str) -> tuple[Form, str] | None:
        """See `Form`."""
        better = self._plan.without(self.params, rejected)
        return None if better is None else (self._make(better[0]), better[1])


class ResearchForm:
    """POST /responses with the provider's web search, limited to some domains."""

    plan: Plan | None = None

    def __init__(
        self, settings: LlmSettings, question: str, domains: tuple[str, ...], think: bool = True
    ) -> None:
        params: dict[str, Any] = {
            "model": settings.model,
            "input": question,
            "tools": [{"type": "web_search", "filters": {"allowed_domains": list(domains)}}],
            "store": False,
            "stream": True,
        }
        if think and settings.effort:
            params["reasoning"] = {"effort": settings.effort, "summary": "auto"}
        self.params: Mapping[str, Any] = params
        self._again = lambda: ResearchForm(settings, question, domains, think=False)

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        return wire.responses(self.params)

    def without(self, rejected: str) -> tuple[Form, str] | None:
        """See `Form`: only the reasoning can be left out."""
        if "reasoning" not in self.params or "reasoning" not in rejected:
            return None
        return self._again(), "reasoning"

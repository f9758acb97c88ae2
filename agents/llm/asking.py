"""Asking the model on the loop's behalf: overflowing contexts, malformed proposals, what an interrupted run
had asked already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import prompts
from .client import Client, Message, Reply, Tool
from .errors import ContextOverflow, LlmError
from .history import MAX_LEVEL, History
from .proposal import SCHEMA, Proposal, ProposalError, parse

if TYPE_CHECKING:
    from ...core.bench import Bench
    from ..base import EventSink

CORRECTIONS = 2  # of a proposal whose form is wrong, before the attempt is given up
# Kinds of LlmError that the next request may not meet; after any other nothing more can be asked.
PASSING = frozenset({"refused", "length", "invalid", "tool_loop"})


class Asker:
    """Asks for answers and proposals, from several threads.

    Args:
        client: the connection.
        bench: whose workload proposals are checked against.
        history: the attempts, so that none is proposed twice.
        tools: what the model may call.
        emit: where condensations are told.
        past: the interrupted run's events.
        evaluate: the tool that has drafts evaluated, for an attempt's turn; None: there is none.
    """

    def __init__(
        self,
        client: Client,
        bench: Bench,
        history: History,
        tools: Sequence[Tool],
        emit: EventSink,
        past: Sequence[tuple[str, Mapping[str, Any]]],
        evaluate: Callable[[int], Tool] | None = None,
    ) -> None:
        self._client = client
        self._bench = bench
        self._history = history
        self._tools = tools
        self._emit = emit
        self._past = _first_requests(past)
        self._evaluate = evaluate
        names = [tool.name for tool in tools]
        self._system = _system_of(past) or prompts.system(bench, names, evaluates=evaluate is not None)
        self.fatal: LlmError | None = None  # after which nothing more can be asked
        self._level = 0  # of the history's condensation

    def proposal(self, purpose: str, attempt: int, build: Callable[[int], str]) -> Proposal:
        """A usable proposal for an attempt. `build(level)` gives the prompt with a history of that brevity.

        Raises:
            ProposalError: it was unusable after all corrections, or the model gave none.
            Stop: the run was stopped meanwhile.
        """
        more: list[Message] = []
        corrections = 0
        tools = self._tools if self._evaluate is None else [*self._tools, self._evaluate(attempt)]
        try:
            reply = self.ask(purpose, attempt, build, SCHEMA, tools=tools)
            while True:
                try:
                    return self._parsed(reply, attempt)
                except ProposalError as error:
                    corrections += 1
                    if corrections > CORRECTIONS:
                        raise
                    more += [
                        {"role": "assistant", "content": reply.text},
                        {"role": "user", "content": prompts.correct(error.problems)},
                    ]
                    label = "correct" if corrections == 1 else f"correct {corrections}"
                    reply = self.ask(label, attempt, build, SCHEMA, more, tools)
        except LlmError as error:
            raise ProposalError([str(error)]) from None

    def _parsed(self, reply: Reply, turn: int) -> Proposal:
        proposal = parse(reply.data, self._bench.workload, self._bench.cases)
        known = self._history.same(proposal.source, proposal.launches, dict(proposal.case_launches))
        if known is not None and not (known.draft and known.turn == turn):  # its draft is its answer
            raise ProposalError(
                [f"this is attempt {known.number} again ({known.status}): propose something else"]
            )
        return proposal

    def ask(
        self,
        purpose: str,
        attempt: int,
        build: Callable[[int], str],
        schema: Mapping[str, Any],
        more: Sequence[Message] = (),
        tools: Sequence[Tool] | None = None,
    ) -> Reply:
        """Ask, with a shorter history each time that the model's context overflows.

        What an interrupted run asked for the same attempt is asked again word for word, so that the client
        can give back the answer that was paid for. Raises LlmError, and Stop.
        """
        label, level = purpose, self._level
        tools = self._tools if tools is None else tools
        try:
            while True:
                rest = self._past.get((label, attempt))
                if rest is None:
                    rest = [{"role": "user", "content": build(level)}, *more]
                messages = [{"role": "system", "content": self._system}, *rest]
                try:
                    return self._client.ask(
                        messages, purpose=label, attempt=attempt, schema=schema, tools=tools
                    )
                except ContextOverflow:
                    if level >= MAX_LEVEL:
                        raise
                    level += 1
                    self._level = max(self._level, level)
                    label = f"{purpose}, condensed {level}"
                    text = f"the model's context overflowed: its history is condensed (level {level})"
                    self._emit("message", {"level": "info", "text": text})
        except LlmError as error:
            if error.kind not in PASSING and self.fatal is None:
                self.fatal = error
            raise


def _first_requests(past: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[tuple[str, int], list[Message]]:
    """What each request for an attempt began with, without the system prompt; its tool rounds came later."""
    found: dict[tuple[str, int], list[Message]] = {}
    for kind, data in past:
        if kind == "request" and data.get("attempt") is not None and len(data.get("messages") or ()) > 1:
            found.setdefault((data["purpose"], int(data["attempt"])), list(data["messages"][1:]))
    return found


def _system_of(past: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """The interrupted run's system prompt, without what the client added for its server.

    It names floors, which are measured anew in each process: another text would be another request.
    """
    for kind, data in past:
        if kind == "request" and data.get("messages") and not str(data.get("purpose")).startswith("author"):
            text, rule, _ = str(data["messages"][0].get("content")).partition(prompts.DATA_RULE)
            if rule:
                return text + rule
    return None

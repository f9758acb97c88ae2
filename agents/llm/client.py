"""Asks a model: streaming, retries, tools, structured answers, everything logged before it is acted on."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...core.errors import BudgetError, NoDeviceError, WarpdeckError
from . import schema as schemas
from .answer import Answer, Call
from .errors import LlmError
from .negotiate import Turn
from .prices import Usage
from .sender import Sender, Sent
from .settings import LlmSettings

if TYPE_CHECKING:
    from ..base import Context

MAX_ROUNDS = 12  # tool rounds of one ask
MAX_CALLS = 16  # of one round
MAX_FRUITLESS = 3  # rounds in a row whose calls were all refused; then no more
MAX_RESULT = 16_000  # characters of a tool's result
MAX_REPEATED = 60_000  # characters of a bad answer that are shown to the model again
REPAIRS = 2  # in the first form of structured answers; one in the simpler ones
DOMAINS = ("docs.nvidia.com", "developer.nvidia.com")

Message = Mapping[str, Any]
"""`role` (system, user, assistant) and `content` (text)."""


@dataclass(frozen=True)
class Tool:
    """What a model may call.

    `parameters` is a JSON schema of an object; `run` gets arguments that satisfy it and returns text for the
    model. Its errors (ValueError, OSError, WarpdeckError) become text for the model too, but for a spent
    budget and a lost device, which end the ask.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Reply:
    """A model's answer.

    `data` is its JSON if a schema was asked for (it satisfies it), else None; `reasoning` the summary or
    trace that the server showed (may be empty). Usage, cost (USD, or None where unknown) and seconds cover
    all requests of the ask: tool rounds, repairs, and those that an interrupted run had paid for.
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

    Args:
        settings: Model, server, limits.
        context: Where events go, who may stop the run, what an interrupted run left.
        environ: Holds the key, and the server's address unless the settings do.
        clock, sleep, rng: Seconds, waiting, jitter; injected by tests.

    Raises:
        UsageError: the extra or the key is missing. Nothing is sent.
    """

    def __init__(
        self,
        settings: LlmSettings,
        context: Context,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._sender = Sender(settings, context, environ=environ, clock=clock, sleep=sleep, rng=rng)

    @property
    def usage(self) -> Usage:
        """Tokens of the whole run."""
        return self._sender.usage

    @property
    def cost(self) -> float | None:
        """USD of the whole run; None if no price is known."""
        return self._sender.cost

    def close(self) -> None:
        """End all connections."""
        self._sender.close()

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
        return _Ask(self._sender, self._clock, messages, purpose, attempt, schema, tools).run()

    def research(self, question: str, *, attempt: int | None = None) -> Reply | None:
        """Ask the provider's web search, limited to NVIDIA's documentation; the text ends with its sources.

        None (and a message in the log) where the server has none: it refuses, answers without having searched
        (what it knows by heart is no documentation), or cites pages of others, so that the limit isn't kept.
        """
        begun = self._clock()
        try:
            sent = self._sender.research(question, DOMAINS, attempt)
        except LlmError as error:
            if error.kind != "request":
                raise
            self._without_research(f"the server offers no web search, going on without it ({error.message})")
            return None
        answer = sent.answer
        _declined(answer)
        foreign = [source for source in answer.sources if not _is_nvidia(source)]
        if foreign:
            hosts = ", ".join(sorted({urlsplit(source).hostname or source for source in foreign}))
            self._without_research(f"the server doesn't keep to NVIDIA's pages ({hosts}); it isn't used")
            return None
        if not answer.text.strip() or not (answer.sources or answer.searches):
            self._without_research("the server answered without searching; it isn't used")
            return None
        text = "\n".join([answer.text.strip(), *(f"Source: {source}" for source in answer.sources)])
        return Reply(text, None, answer.reasoning, sent.usage, sent.cost, self._clock() - begun)

    def _without_research(self, why: str) -> None:
        self._sender.emit("message", {"level": "warning", "text": f"research: {why}"})


class _Ask:
    """One `Client.ask`: the conversation that it adds to the caller's, and what it has spent."""

    def __init__(
        self,
        sender: Sender,
        clock: Callable[[], float],
        messages: Sequence[Message],
        purpose: str,
        attempt: int | None,
        schema: Mapping[str, Any] | None,
        tools: Sequence[Tool],
    ) -> None:
        self._sender, self._clock = sender, clock
        self._given = [{"role": m["role"], "content": m["content"]} for m in messages]
        self._purpose, self._attempt, self._schema = purpose, attempt, schema
        self._tools = {tool.name: tool for tool in tools}
        self._offer = [
            {"name": t.name, "description": t.description, "parameters": dict(t.parameters)} for t in tools
        ]
        self._talk: list[dict[str, Any]] = []  # answers that called tools, and the tools' results
        self._mending: list[dict[str, Any]] = []  # bad answers and what was wrong with them
        self._called: set[str] = set()
        self._ids: set[str] = set()
        self._usage = Usage()
        self._cost: float | None = 0.0

    def run(self) -> Reply:
        begun = self._clock()
        rounds = repairs = fruitless = 0
        allowed = REPAIRS
        while True:
            offer = self._offer if rounds < MAX_ROUNDS else []
            turn = Turn([*self._given, *self._talk, *self._mending], self._schema, offer)
            sent = self._sender.chat(turn, self._purpose, self._attempt)
            answer = sent.answer
            self._usage += sent.usage
            self._cost = None if sent.cost is None or self._cost is None else self._cost + sent.cost
            _declined(answer)
            calls = answer.calls or self._written(sent, offer)
            if calls and offer:
                self._talk += self._mending  # what was wrong stays said
                self._mending = []
                fruitless = 0 if self._call(sent, calls) else fruitless + 1
                rounds = rounds + 1 if fruitless < MAX_FRUITLESS else MAX_ROUNDS
                if rounds == MAX_ROUNDS:
                    text = "No more tool calls: give your final answer now."
                    self._talk.append({"role": "user", "content": text})
                continue
            data, wrong, kind = self._judge(answer, calls)
            if not wrong:
                return Reply(
                    answer.text, data, answer.reasoning, self._usage, self._cost, self._clock() - begun
                )
            repairs += 1
            if repairs <= allowed:
                self._mend(answer, wrong, kind)
                continue
            if kind == "invalid" and sent.plan is not None and self._sender.simplify(sent.plan):
                repairs, allowed = 0, 1
                self._mending = []
                continue
            raise LlmError(
                f"model '{self._sender.settings.model}' gives no usable answer: {wrong}", _ADVICE[kind], kind
            )

    def _judge(self, answer: Answer, calls: Sequence[Call]) -> tuple[Any, str, str]:
        """The data, what is wrong with the answer (empty: nothing), and of what kind that is."""
        if answer.finish == "too_long":
            return None, "it was longer than a million characters and was cut", "length"
        if answer.finish == "length":
            return None, "it was cut at the limit of tokens", "length"
        if calls:
            return None, "it calls tools, and there are none to call now", "tool_loop"
        if not answer.text.strip():
            return None, "it was empty", "invalid"
        if self._schema is None:
            return None, "", ""
        try:
            return schemas.parse(answer.text, self._schema), "", ""
        except ValueError as error:
            return None, str(error), "invalid"

    def _mend(self, answer: Answer, wrong: str, kind: str) -> None:
        text = answer.text if kind == "invalid" else answer.text[:500]
        if text.strip():
            self._mending.append({"role": "assistant", "content": text[:MAX_REPEATED]})
        advice = "Answer again" if kind != "length" else "Answer again, much shorter"
        if self._schema is not None:
            advice += f", with one JSON object that satisfies this JSON schema: {json.dumps(self._schema)}"
        self._mending.append({"role": "user", "content": f"That answer can't be used: {wrong}. {advice}"})

    # -- tools -------------------------------------------------------------------------------------------

    def _written(self, sent: Sent, offer: Sequence[Mapping[str, Any]]) -> tuple[Call, ...]:
        """Calls that a model wrote as text, because its server takes no tools."""
        if not offer or sent.plan is None or sent.plan.tools:
            return ()
        found = [value for value, _, _ in schemas.objects(sent.answer.text)]
        return tuple(
            Call("", str(value["tool"]), json.dumps(value.get("arguments", {})))
            for value in found
            if "tool" in value and set(value) <= {"tool", "arguments"}
        )

    def _call(self, sent: Sent, calls: Sequence[Call]) -> bool:
        """Run the calls; whether any of them brought something."""
        named = [Call(self._unique(call.id), call.name, call.arguments) for call in calls]
        self._talk.append(
            {
                "role": "assistant",
                "content": sent.answer.text if sent.answer.calls else "",
                "calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in named],
                "reasoning": sent.answer.reasoning,
            }
        )
        fruitful = False
        for position, call in enumerate(named):
            self._sender.check()
            result = self._result(sent, call, position)
            fruitful = fruitful or not result.startswith("error: ")
            self._talk.append({"role": "tool", "call": call.id, "name": call.name, "content": result})
        return fruitful

    def _unique(self, known: str) -> str:
        """An id of the conversation's own where the server's is missing or used (nine letters and digits: the
        narrowest form that a server asks for)."""
        if not known or known in self._ids:
            known = f"w{len(self._ids):08d}"
        self._ids.add(known)
        return known

    def _result(self, sent: Sent, call: Call, position: int) -> str:
        arguments, wrong = self._arguments(call)
        same = f"{call.name} {json.dumps(arguments, sort_keys=True)}"
        if position >= MAX_CALLS:
            wrong = f"at most {MAX_CALLS} calls at a time"
        elif not wrong and same in self._called:
            wrong = f"{call.name} was called with these arguments before; use its result above, or answer"
        self._called.add(same)
        logged = self._sender.past.tool(sent.id, call.id) if sent.from_log else None
        if logged is not None:
            return logged
        begun = self._clock()
        if wrong:
            text = f"error: {wrong}"
        else:
            text = self._run(call.name, arguments)
        text = self._sender.redactor.text(_bounded(text))
        self._sender.emit(
            "tool",
            {
                "id": sent.id,
                "call": call.id,
                "name": call.name,
                "arguments": arguments,
                "result": text,
                "seconds": round(self._clock() - begun, 3),
            },
        )
        return text

    def _arguments(self, call: Call) -> tuple[Any, str]:
        """The arguments (as text where they aren't JSON), and what is wrong with them."""
        tool = self._tools.get(call.name)
        if tool is None:
            return call.arguments, f"there is no tool '{call.name}'; known: {', '.join(sorted(self._tools))}"
        try:
            arguments = json.loads(call.arguments or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            return call.arguments, f"the arguments are not valid JSON: {error}"
        wrong = schemas.problems(arguments, {"type": "object", **tool.parameters})
        return arguments, "; ".join(wrong).replace("the answer", "the arguments")

    def _run(self, name: str, arguments: Mapping[str, Any]) -> str:
        try:
            return self._tools[name].run(arguments)
        except (BudgetError, NoDeviceError):
            raise
        except (WarpdeckError, ValueError, OSError) as error:
            return f"error: {error}"


_ADVICE = {
    "invalid": "try another model",
    "length": "raise answer_tokens, lower the effort, or try another model",
    "tool_loop": "try another model",
}


def _declined(answer: Answer) -> None:
    """LlmError if the model or its provider declines."""
    if answer.refusal or answer.finish == "content_filter":
        words = " ".join(answer.refusal.split())[:300] or "the provider's filter cut the answer"
        raise LlmError(f"the model declines: {words}", "change the description or the model", "refused")


def _bounded(text: str) -> str:
    if len(text) <= MAX_RESULT:
        return text
    head, tail = MAX_RESULT * 3 // 4, MAX_RESULT // 4
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"


def _is_nvidia(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme in ("https", "http") and any(host == d or host.endswith(f".{d}") for d in DOMAINS)

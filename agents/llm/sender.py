"""Sends one request until it is answered: retries, refusals, the log, what it cost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.expr import near
from ..base import Stop
from .answer import MAX_CHARACTERS, Answer
from .errors import Failure, LlmError, failure_of, late
from .forms import Form, ResearchForm, form_of
from .negotiate import Plan, Turn
from .past import Past, key_of
from .prices import Usage, cost_of
from .redact import Redactor
from .settings import KEY_VARIABLE, LlmSettings, check_ready
from .wire import Exchange, Wire

if TYPE_CHECKING:
    from ..base import Context

POLL_S = 0.2  # between two looks at the control while waiting
PARTIAL_S = 0.5  # between two `partial` events
BACKOFF_S = 1.0  # first wait; doubles
BACKOFF_MAX_S = 60.0
RETRY_AFTER_MAX_S = 600.0  # a server that asks for more has failed
WHOLE = 4  # an answer may take so many times request_timeout_s


@dataclass(frozen=True)
class Sent:
    """An answered request. `id`: of its events. `plan`: how it was put (None for research)."""

    id: str
    answer: Answer
    usage: Usage
    cost: float | None
    plan: Plan | None
    from_log: bool


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Sender:
    """One run's requests. Thread-safe.

    Args:
        settings: Model, server, limits.
        context: Where events go, who may stop the run, what an interrupted run left.
        environ: Holds the key and, unless the settings do, the server's address.
        clock, sleep, rng: Seconds, waiting, jitter; injected by tests.
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
        check_ready(settings, environ)
        key = environ.get(KEY_VARIABLE, "").strip() or None
        self.settings = settings
        self.past = Past(context.past)
        self.redactor = Redactor(key)
        self._context = context
        self._clock, self._sleep, self._rng = clock, sleep, rng or random.Random()
        self._lock = threading.RLock()
        self._number = self.past.last_id
        self._plan = self.past.plan or Plan(api="responses" if settings.uses_responses(environ) else "chat")
        self._usage, self._cost, self._unpriced = self.past.usage, self.past.cost, self.past.unpriced
        self._answers = 0  # that came in this process; what they said, in tokens
        self._said = 0
        self._under_way: dict[str, Usage] = {}  # what requests without an answer will cost at least, by id
        self._wire = Wire(settings.url(environ), key, settings.request_timeout_s)

    @property
    def usage(self) -> Usage:
        """Tokens of the whole run."""
        with self._lock:
            return self._usage

    @property
    def cost(self) -> float | None:
        """USD of the whole run; None if no price is known."""
        with self._lock:
            return None if self._unpriced and not self._cost else self._cost

    def close(self) -> None:
        """End all connections."""
        self._wire.close()

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Log an event, without the key."""
        with self._lock:
            self._context.emit(kind, self.redactor.data(data))

    def check(self) -> None:
        """Block while the run is paused; raise `Stop` if it is to end."""
        self._context.control.check()

    def simplify(self, used: Plan) -> bool:
        """Ask for structured answers in the next simpler form from now on. False if there is none."""
        simpler = used.simpler()
        if simpler is None:
            return False
        self._adopt(simpler)
        return True

    def _adopt(self, plan: Plan) -> None:
        with self._lock:
            self._plan = self._plan.merged(plan)

    def chat(self, turn: Turn, purpose: str, attempt: int | None) -> Sent:
        """The model's answer to a conversation. LlmError if there is none."""
        with self._lock:
            form = form_of(self._plan, turn, self.settings)
        return self._send(form, key_of(self.settings.model, purpose, turn), purpose, attempt)

    def research(self, question: str, domains: tuple[str, ...], attempt: int | None) -> Sent:
        """What the provider's web search finds. LlmError if there is none."""
        turn = Turn([{"role": "user", "content": question}])
        form = ResearchForm(self.settings, question, domains)
        return self._send(form, key_of(self.settings.model, "research", turn), "research", attempt)

    def _send(self, form: Form, key: str, purpose: str, attempt: int | None) -> Sent:
        with self._lock:
            logged = self.past.take(key)
            if logged is None:
                self._number += 1
            name = f"r{self._number}"
        if logged is not None:
            return self._logged(logged)
        self.check()
        self._reserve(name, form)
        try:
            return self._exchanged(name, form, key, purpose, attempt)
        finally:
            with self._lock:
                del self._under_way[name]

    def _exchanged(self, name: str, form: Form, key: str, purpose: str, attempt: int | None) -> Sent:
        """Send it until it is answered."""
        begun = self._clock()
        tries = 0
        while True:
            self._request(name, form, purpose, attempt, tries)
            try:
                answer = self._receive(form.open(self._wire), name)
                break
            except _Failed as failed:
                failure = failed.failure
            except Stop:
                self._ended(name, "stopped")
                raise
            other = None
            if failure.rejected or failure.absent:
                other = form.without(failure.rejected or "", absent=failure.absent)
            if other is not None:
                form, what = other
                self._tell("info", f"{self.redactor.text(failure.message)}; going on without {what}")
                continue
            failure = self._named(failure)
            wait = self._wait_s(failure, tries)
            if wait is None:
                error = replace(failure, message=self._worn(failure, tries)).error()
                self._ended(name, str(error))
                raise error
            tries += 1
            again = f"trying again in {wait:.1f} s ({tries} of {self.settings.retries})"
            self._tell("warning", f"{failure.message}; {again}")
            try:
                self._pause(wait)
            except Stop:
                self._ended(name, "stopped")
                raise
        return self._answered(name, form, key, answer, self._clock() - begun)

    def _request(self, name: str, form: Form, purpose: str, attempt: int | None, tries: int) -> None:
        params = {name: value for name, value in form.params.items() if name not in ("messages", "input")}
        data = {
            "id": name,
            "purpose": purpose,
            "attempt": attempt,
            "model": params.pop("model"),
            "messages": form.messages if tries == 0 else [],  # the same again: logged once
            "params": params,
        }
        self.emit("request", {**data, "retry": tries} if tries else data)

    def _answered(self, name: str, form: Form, key: str, answer: Answer, seconds: float) -> Sent:
        usage = answer.usage or _estimate(form, answer)
        cost = cost_of(usage, self.settings.price())
        with self._lock:
            self._usage += usage
            self._answers, self._said = self._answers + 1, self._said + usage.output
            self._cost += cost or 0.0
            self._unpriced += cost is None
            if form.plan is not None:
                self._adopt(form.plan)
            plan = None if form.plan is None else self._plan
            self.emit(
                "response",
                {
                    "id": name,
                    **answer.to_data(),
                    "usage": usage.to_data(),
                    "cost": cost,
                    "seconds": round(seconds, 3),
                    "from_log": False,
                    "key": key,
                    "plan": None if plan is None else plan.to_data(),
                },
            )
        self._context.flush()  # on disk before it is acted on, so that it is never paid for twice
        return Sent(name, answer, usage, cost, form.plan, False)

    def _logged(self, data: Mapping[str, Any]) -> Sent:
        self.emit("response", {**data, "from_log": True})
        plan = data.get("plan")
        usage = Usage.from_data(data.get("usage") or {})
        cost = data.get("cost")
        kept = Plan.from_data(plan) if isinstance(plan, Mapping) else None
        return Sent(str(data["id"]), Answer.from_data(data), usage, cost, kept, True)

    def _ended(self, name: str, why: str) -> None:
        """Log that a request has no answer."""
        nothing: dict[str, Any] = {
            **Answer(finish="error").to_data(),
            "usage": Usage().to_data(),
            "cost": 0.0,
        }
        self.emit("response", {"id": name, **nothing, "seconds": None, "from_log": False, "error": why})

    def _tell(self, level: str, text: str) -> None:
        self.emit("message", {"level": level, "text": f"model: {text}"})

    def _reserve(self, name: str, form: Form) -> None:
        """Count a request as under way. LlmError if the budget is spent, or will be by those that are."""
        settings = self.settings
        with self._lock:
            ahead = sum(self._under_way.values(), Usage())
            tokens = self._usage.total + ahead.total
            cost = self._cost + (cost_of(ahead, settings.price()) or 0.0)
            later = ", requests under way included" if self._under_way else ""
            spent = None
            if settings.max_tokens is not None and tokens >= settings.max_tokens:
                spent = f"the run's {settings.max_tokens} tokens are spent{later}"
            elif settings.max_cost is not None and cost >= settings.max_cost:
                spent = f"the run's {settings.max_cost:g} USD are spent{later}"
            if spent is not None:
                raise LlmError(spent, "to go on, begin a new run --from this session", "budget")
            self._under_way[name] = Usage(_asked(form) // 4, 0, self._said // max(self._answers, 1))

    # -- waiting -----------------------------------------------------------------------------------------

    def _receive(self, exchange: Exchange, name: str | None) -> Answer:
        """The whole answer. _Failed if there is none; `Stop` at once when the run is to end."""
        limit = self.settings.request_timeout_s
        heard = started = checked = shown = self._clock()
        growing = {"text": "", "reasoning": ""}
        try:
            while True:
                item = exchange.next(POLL_S)
                now = self._clock()
                if now - checked >= POLL_S or item is None:
                    self.check()
                    checked = self._clock()
                    heard, started = heard + checked - now, started + checked - now  # paused: nobody waited
                    now = checked
                if item is None:
                    if now - heard > limit or now - started > WHOLE * limit:
                        raise _Failed(late(self._wire.url, limit))
                    continue
                kind, value = item
                if kind == "end":
                    return exchange.collector.answer().cleaned(self.redactor.text)
                if kind == "error":
                    raise _Failed(self._why(value))
                heard = now
                growing[kind] += value
                if now - started > WHOLE * limit:
                    raise _Failed(late(self._wire.url, WHOLE * limit))
                if name is not None and now - shown >= PARTIAL_S:
                    shown = now
                    self._partial(name, growing)
        finally:
            exchange.cancel()

    def _partial(self, name: str, growing: dict[str, str]) -> None:
        part: dict[str, str] = {}
        for kind, text in growing.items():
            safe = self.redactor.safe_length(text)
            part[kind], growing[kind] = text[:safe], text[safe:]
        if any(part.values()):
            self.emit("partial", {"id": name, **part})

    def _why(self, error: BaseException) -> Failure:
        failure = failure_of(error, model=self.settings.model, url=self._wire.url)
        clean = self.redactor.text
        return replace(
            failure,
            message=clean(failure.message),
            rejected=None if failure.rejected is None else clean(failure.rejected),
        )

    def _named(self, failure: Failure) -> Failure:
        """With the models that the server has, if the model is unknown."""
        if failure.kind != "model":
            return failure
        exchange = self._wire.models()
        try:
            self._receive_names(exchange)
        finally:
            exchange.cancel()
        names = exchange.collector.names
        hint = near(self.settings.model, names) if names else "check --model"
        return replace(failure, remedy=hint)

    def _receive_names(self, exchange: Exchange) -> None:
        end = self._clock() + min(5.0, self.settings.request_timeout_s)
        while self._clock() < end:
            item = exchange.next(POLL_S)
            if item is not None:
                return
            self.check()

    def _wait_s(self, failure: Failure, tries: int) -> float | None:
        """Seconds until the next try; None if there is none."""
        if not failure.transient or tries >= self.settings.retries:
            return None
        if failure.retry_after_s is not None:
            asked = failure.retry_after_s
            return None if asked > RETRY_AFTER_MAX_S else asked + self._rng.uniform(0, 0.1 * asked)
        return min(BACKOFF_MAX_S, BACKOFF_S * 2**tries) * self._rng.uniform(0.5, 1.0)

    def _worn(self, failure: Failure, tries: int) -> str:
        if failure.retry_after_s is not None and failure.retry_after_s > RETRY_AFTER_MAX_S:
            return f"{failure.message}; it asks to wait {failure.retry_after_s:.0f} s"
        return f"{failure.message} (tried {tries + 1} times)" if tries else failure.message

    def _pause(self, seconds: float) -> None:
        end = self._clock() + seconds
        while True:
            self.check()
            left = end - self._clock()
            if left <= 0:
                return
            self._sleep(min(POLL_S, left))


def _estimate(form: Form, answer: Answer) -> Usage:
    """Tokens, where the server doesn't say: four characters each."""
    said = len(answer.text) + len(answer.reasoning) + sum(len(call.arguments) for call in answer.calls)
    if answer.finish == "too_long":
        said = MAX_CHARACTERS  # what was thrown away is billed, too
    return Usage(_asked(form) // 4, 0, said // 4, len(answer.reasoning) // 4, estimated=True)


def _asked(form: Form) -> int:
    """Characters of a request's conversation."""
    return sum(len(str(message.get("content") or "")) for message in form.messages)

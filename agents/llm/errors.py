"""How talking to a model fails: one plain line each, and a kind that the agent's loop can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from ...core.errors import ExitCode, WarpdeckError
from .settings import KEY_VARIABLE
from .wire import CutOff, Garbled, StreamError

MAX_WORDS = 300  # characters of a server's own message


class LlmError(WarpdeckError):
    """The model can't be asked, or gave nothing usable, and trying again won't help.

    Args:
        message: What failed, one line, without the key.
        remedy: What the user can do; may be empty.
        kind: `key` (401), `forbidden` (403), `model` (unknown), `quota` (nothing left to spend at the
            provider), `budget` (the run's own tokens or money are spent), `refused` (the model declined),
            `context` (see `ContextOverflow`), `length` (the answer was cut), `invalid` (no valid answer
            after all repairs), `tool_loop`, `request` (the server rejects the request), `server` (no answer
            after all retries).
    """

    def __init__(self, message: str, remedy: str = "", kind: str = "server") -> None:
        self.message = message
        self.remedy = remedy
        self.kind = kind
        if kind == "budget":
            self.exit_code = ExitCode.BUDGET
        super().__init__(f"{message}; {remedy}" if remedy else message)


class ContextOverflow(LlmError):
    """The conversation is longer than the model's context: condense it and ask again."""

    def __init__(self, message: str, remedy: str = "", limit: int | None = None) -> None:
        advice = remedy or "shorten the history or choose a model with more context"
        super().__init__(message, advice, "context")
        self.limit = limit
        """The server's limit in tokens, if it said it."""


@dataclass(frozen=True)
class Failure:
    """Why one request failed.

    `transient`: worth sending again, after `retry_after_s` if the server said so. `rejected`: the server's
    words about a request that it won't take as it is, after the parameter if it named one. `absent`: there is
    no such API on the server.
    """

    kind: str
    message: str
    remedy: str = ""
    transient: bool = False
    retry_after_s: float | None = None
    rejected: str | None = None
    limit: int | None = None
    absent: bool = False

    def error(self) -> LlmError:
        """As what is raised."""
        if self.kind == "context":
            return ContextOverflow(self.message, self.remedy, self.limit)
        return LlmError(self.message, self.remedy, self.kind)


_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|reduce the length|exceeds? the (model'?s )?(max|context|available)",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:context (?:length|window|size)(?: is| of)?:?|maximum of|n_ctx\D{0,4}) *\(?(\d{3,8})\b"
)
_MODEL = re.compile(
    r"model\b.{0,120}\b(not found|does not exist|doesn't exist|not exist|unknown|not a valid)"
    r"|(unknown|invalid|no such) model|not a valid model",
    re.IGNORECASE | re.DOTALL,
)
_TOOLS = re.compile(r"tool use|support tools|tool[ _-]?call|tool choice", re.IGNORECASE)
_LIMIT_REFUSED = re.compile(
    r"max_(?:completion_|output_)?tokens\W.{0,60}too large", re.IGNORECASE | re.DOTALL
)
_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_DECLINED = frozenset({"content_policy_violation", "content_filter", "invalid_prompt", "moderation_blocked"})
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


def failure_of(error: BaseException, *, model: str, url: str, now: datetime | None = None) -> Failure:
    """What an exception of the exchange means.

    Args:
        error: Of the SDK, the HTTP library, or `wire`.
        model: The model's name.
        url: The server's base URL.
        now: For a Retry-After that is a date; the current time if None.
    """
    import openai

    server = urlsplit(url).netloc.rpartition("@")[2] or url
    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, Mapping) else {}
        said = _said(body) or plain(str(error.body or error.message))
        wait = _retry_after(error.response.headers, now or datetime.now(UTC))
        return _by_status(error.status_code, body, said, model, server, wait)
    if isinstance(error, StreamError):
        code = str(error.body.get("code") or error.body.get("status") or "")
        status = int(code) if code.isdigit() else _STREAM_STATUS.get(str(error.body.get("type")), 500)
        if code in _QUOTA | {"context_length_exceeded"} or _OVERFLOW.search(_said(error.body)):
            status = 400 if code not in _QUOTA else 429
        return _by_status(status, error.body, _said(error.body), model, server, None)
    if isinstance(error, CutOff):
        return Failure("server", f"{server} broke off in mid-answer", transient=True)
    if isinstance(error, Garbled):
        path = urlsplit(url).path
        page = "it answered" in str(error) and not path.endswith("/v1")
        remedy = f"a base URL usually ends in /v1, not '{path}'" if page else ""
        return Failure("server", f"{server} doesn't speak the protocol: {error}", remedy, transient=True)
    reason = _root(error)
    if isinstance(error, (openai.APITimeoutError, TimeoutError)) or "timeout" in type(error).__name__.lower():
        return Failure("server", f"{server} sent nothing in time", _LATE, transient=True)
    if isinstance(error, openai.APIConnectionError):
        remedy = "is the server running, and is its address right?"
        return Failure("server", f"can't reach {server} ({reason})", remedy, transient=True)
    return Failure("server", f"the connection to {server} failed ({reason})", transient=True)


_LATE = "raise request_timeout_s if the model needs longer"
_STREAM_STATUS = {
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "server_error": 500,
    "invalid_request_error": 400,
    "authentication_error": 401,
}


def late(url: str, seconds: float) -> Failure:
    """The server sent nothing for so long."""
    server = urlsplit(url).netloc.rpartition("@")[2] or url
    return Failure("server", f"{server} sent nothing for {seconds:g} s", _LATE, transient=True)


def _by_status(
    status: int, body: Mapping[str, Any], said: str, model: str, server: str, wait: float | None
) -> Failure:
    code = str(body.get("code") or "")
    kind = str(body.get("type") or "")
    if status == 402 or code in _QUOTA or kind in _QUOTA:
        return Failure(
            "quota", f"{server}: the account has nothing left to spend", "add credit, or use another model"
        )
    if code in _DECLINED:
        return Failure(
            "refused", f"{server} declines the request: {said}", "change the description or the model"
        )
    long = code == "context_length_exceeded" or status == 413 or _OVERFLOW.search(said)
    if long and 400 <= status < 501 and status != 429 and not _LIMIT_REFUSED.search(said):
        limit = _LIMIT.search(said)
        size = int(limit[1]) if limit else None
        message = f"the conversation is longer than the context of model '{model}'"
        return Failure("context", message + (f" ({size} tokens)" if size else ""), limit=size)
    if status == 401:
        return Failure("key", f"{server} rejects the key", f"check {KEY_VARIABLE}")
    named = body.get("param")
    about_model = named in (None, "", "model") and status in (400, 403, 404) and _MODEL.search(said)
    if code == "model_not_found" or about_model:
        return Failure("model", f"{server} has no model '{model}', or this key may not use it")
    if status == 403:
        return Failure("forbidden", f"{server} refuses access: {said}", f"check what {KEY_VARIABLE} allows")
    if status in (400, 422) or (status == 404 and _TOOLS.search(said)) or status == 501:
        rejected = f"{named}: {said}" if named else said
        message = f"{server} rejects the request: {said}"
        return Failure("request", message, rejected=rejected)
    if status in (404, 405):
        message = f"{server} has no such API there ({said})"
        return Failure("request", message, "does the base URL end in /v1?", absent=True)
    if status in _AGAIN or status >= 500:
        what = "is busy (429)" if status == 429 else f"answered with error {status}"
        return Failure("server", f"{server} {what}: {said}", "try again later", True, wait)
    return Failure("request", f"{server} answered with error {status}: {said}")


def plain(text: str) -> str:
    """One line of a server's words: no tags, no control characters, bounded."""
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    text = "".join(c for c in text if c.isprintable())
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


def _said(body: Mapping[str, Any]) -> str:
    message = body.get("message") or body.get("detail") or body.get("error")
    if isinstance(message, Mapping):
        message = message.get("message") or message
    return plain(str(message or ""))


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = str(headers.get(name) or "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            try:
                when = parsedate_to_datetime(text)
            except (TypeError, ValueError):
                continue
            seconds = (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
        if seconds == seconds and seconds >= 0:
            return seconds
    return None


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return plain(str(error)) or type(error).__name__

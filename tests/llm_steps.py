"""What a scripted server answers: steps, made by functions, and the protocol's JSON of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PIECE = 24  # characters of text per streamed chunk


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    body: Mapping[str, Any]
    key: str
    """The bearer token."""
    number: int
    """Among the requests of its path, from 1; refused ones included."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        given = self.body.get("messages") or self.body.get("input") or ()
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    @property
    def prompt(self) -> str:
        """All texts of the conversation."""
        return "\n".join(str(m.get("content") or m.get("output") or "") for m in self.messages)


@dataclass(frozen=True)
class Step:
    """What one request is answered with. Made by the functions below."""

    text: str = ""
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    refusal: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()  # id, name, arguments
    finish: str | None = "stop"
    usage: Mapping[str, Any] | None = field(default_factory=lambda: usage(100, 50))
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    raw: bytes | None = None
    content_type: str = "application/json"
    cut_after: int | None = None  # characters of text, then the connection breaks
    hold_after: int | None = None  # characters of text, then nothing until `release` or the server's end
    repeat: int = 1  # times the text is sent
    sources: tuple[str, ...] = ()  # /v1/responses: cited addresses
    searches: int = 0  # /v1/responses: web searches before the answer


Script = Step | Callable[[Asked], Step]


def usage(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """Token counts as the protocol has them."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def answer(content: str | Mapping[str, Any], **keys: Any) -> Step:
    """A text, or an object as JSON. Keys: reasoning, usage (None: the server doesn't say), finish, repeat…"""
    return Step(content if isinstance(content, str) else json.dumps(content), **keys)


def call(
    name: str, arguments: Mapping[str, Any] | str, *more: Any, ids: Iterable[str] = (), **keys: Any
) -> Step:
    """Tool calls: `call("evaluate", {…}, "search_docs", {…})`. Text arguments go as they are."""
    flat: tuple[Any, ...] = (name, arguments, *more)
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    names = list(ids) or [f"call_{i}" for i in range(len(pairs))]
    calls = tuple(
        (known, tool, given if isinstance(given, str) else json.dumps(given))
        for known, (tool, given) in zip(names, pairs, strict=True)
    )
    return Step(calls=calls, finish="tool_calls", **keys)


def status(
    code: int,
    message: str = "the server misbehaves on command",
    *,
    error_code: str | None = None,
    kind: str = "error",
    param: str | None = None,
    retry_after: float | str | None = None,
) -> Step:
    """An HTTP error with OpenAI's body."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"message": message, "type": kind, "param": param, "code": error_code}
    return Step(status=code, headers=headers, error=body)


def refused_parameter(param: str) -> Step:
    """400: this parameter isn't supported."""
    return status(
        400,
        f"Unsupported parameter: '{param}' is not supported with this model.",
        error_code="unsupported_parameter",
        kind="invalid_request_error",
        param=param,
    )


def overflow(limit: int = 4096) -> Step:
    """400: the conversation is too long."""
    return status(
        400,
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in"
        f" {limit + 1000} tokens. Please reduce the length of the messages.",
        error_code="context_length_exceeded",
        kind="invalid_request_error",
        param="messages",
    )


def quota() -> Step:
    """429: nothing left to spend."""
    return status(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        error_code="insufficient_quota",
        kind="insufficient_quota",
    )


def refusal(text: str = "I can't help with that.") -> Step:
    """The model declines."""
    return Step(refusal=text)


def cut(content: str | Mapping[str, Any], after: int = 10) -> Step:
    """A stream that breaks after so many characters."""
    return replace(answer(content), cut_after=after)


def hold(content: str | Mapping[str, Any], after: int = 10) -> Step:
    """A stream that stalls after so many characters, until `server.release()`, then goes on."""
    return replace(answer(content), hold_after=after)


def hang() -> Step:
    """No byte of an answer until `server.release()`."""
    return Step(hold_after=-1)


def huge(megabytes: float) -> Step:
    """A text of so many megabytes."""
    return answer("x" * 65536, repeat=int(megabytes * 16))


def raw(body: bytes | str, *, content_type: str = "text/event-stream", code: int = 200) -> Step:
    """These bytes, whatever they are."""
    data = body.encode() if isinstance(body, str) else body
    return Step(raw=data, content_type=content_type, status=code)


def head(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What every message of a chat begins with."""
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body.get("model")}


def completion(step: Step, body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": step.text * step.repeat}
    message["refusal"] = step.refusal or None
    if step.reasoning:
        message[step.reasoning_field] = step.reasoning
    if step.calls:
        message["tool_calls"] = [
            {"id": known, "type": "function", "function": {"name": name, "arguments": arguments}}
            for known, name, arguments in step.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": step.finish}
    return {**head(body, "chat.completion"), "choices": [choice], "usage": step.usage}


def response(step: Step, body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole response of /v1/responses."""
    cited = [
        {"type": "url_citation", "url": url, "title": url, "start_index": 0, "end_index": 1}
        for url in step.sources
    ]
    output: list[dict[str, Any]] = [
        {
            "type": "web_search_call",
            "id": f"ws_{i}",
            "status": "completed",
            "action": {"type": "search", "query": "wide loads"},
        }
        for i in range(step.searches)
    ]
    if step.reasoning:
        summary = [{"type": "summary_text", "text": step.reasoning}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary})
    parts: list[dict[str, Any]] = [{"type": "output_text", "text": step.text, "annotations": cited}]
    if step.refusal:
        parts = [{"type": "refusal", "refusal": step.refusal}]
    output.append(
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    )
    for known, name, arguments in step.calls:
        item = {"type": "function_call", "id": f"fc_{known}", "call_id": known, "status": "completed"}
        output.append({**item, "name": name, "arguments": arguments})
    short = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(step.finish or "")
    said = step.usage or usage(0, 0)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": body.get("model"),
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": short} if short else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "usage": {
            "input_tokens": said["prompt_tokens"],
            "input_tokens_details": {"cache_write_tokens": 0, **said["prompt_tokens_details"]},
            "output_tokens": said["completion_tokens"],
            "output_tokens_details": said["completion_tokens_details"],
            "total_tokens": said["total_tokens"],
        },
    }


def begun(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of a response before anything is in it."""
    empty = {name: type(item[name])() for name in ("content", "summary", "arguments") if name in item}
    return {**item, **empty, "status": "in_progress"}


def pieces(text: str) -> Iterable[str]:
    """A text as it is streamed."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))

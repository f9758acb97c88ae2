"""A local HTTP server that speaks the OpenAI protocol and misbehaves on command.

    with LlmServer(answer({"idea": "tile it"}), status(429, retry_after=0), answer("…")) as server:
        LlmSettings(base_url=server.url)   # no key needed
        …
        server.asked        # the chat requests it got, in order: .body, .messages, .prompt, .key
        server.say(cut(…))  # more steps, at any time

A step (the functions are in llm_steps.py) answers one POST to /v1/chat/completions (or /v1/responses),
streamed or not as the request asks. A function `(Asked) -> Step` in place of a step makes the answer from the
request. When the steps are used up, `default` answers (or a 500 that says so, which a test then sees in its
log). What `refuse` names is answered with a 400 before any step is used: `reasoning_effort`, `stream`,
`stream_options`, `tools`, `max_completion_tokens`, `json_schema`, `json_object`, any other key of the body.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_steps import (
    PIECE,
    Asked,
    Script,
    Step,
    begun,
    completion,
    head,
    pieces,
    refused_parameter,
    response,
    status,
)


class LlmServer:
    """The server, on a free port of the loopback interface. A context manager."""

    def __init__(
        self,
        *steps: Script,
        default: Script | None = None,
        models: Iterable[str] = ("gpt-5-mini",),
        refuse: Iterable[str] = (),
        key: str | None = None,
        responses: Iterable[Script] | None = None,
    ) -> None:
        """`models`: others are answered with 404. `key`: others are answered with 401. `responses`: steps of
        /v1/responses, which is 404 if None."""
        self.models = tuple(models)
        self.refuse = frozenset(refuse)
        self.key = key
        self.requests: list[Asked] = []
        self._default = default
        self._steps = deque(steps)
        self._responses = None if responses is None else deque(responses)
        self._lock = threading.Lock()
        self._release = threading.Event()
        self._changed = threading.Condition(self._lock)
        self._closing = False
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def asked(self) -> list[Asked]:
        """The chat requests, refused ones included, in order of arrival."""
        with self._lock:
            return [asked for asked in self.requests if asked.path.endswith("/chat/completions")]

    def say(self, *steps: Script) -> None:
        """Add steps at the end."""
        with self._lock:
            self._steps.extend(steps)

    def release(self) -> None:
        """Let all held answers, and those to come, go on."""
        self._release.set()

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Return when so many chat requests have arrived. TimeoutError else."""
        with self._changed:
            path = "/chat/completions"
            enough = lambda: sum(a.path.endswith(path) for a in self.requests) >= count  # noqa: E731
            if not self._changed.wait_for(enough, timeout_s):
                raise TimeoutError(f"{len(self.requests)} requests arrived, not {count}")

    def close(self) -> None:
        """Stop; held answers break off."""
        self._closing = True
        self._release.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def __enter__(self) -> LlmServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _held(self) -> bool:
        """Wait for the release. False if the server ends instead."""
        self._release.wait()
        return not self._closing

    def _step(self, path: str, body: Mapping[str, Any], key: str) -> Step:
        with self._changed:
            number = 1 + sum(asked.path == path for asked in self.requests)
            asked = Asked(path, body, key, number)
            self.requests.append(asked)
            self._changed.notify_all()
            early = self._early(asked)
            if early is not None:
                return early
            steps = self._steps if path.endswith("/chat/completions") else self._responses
            if steps is None:
                return status(404, f"no {path} here")
            script = steps.popleft() if steps else self._default
        if script is None:
            return status(500, "the test's script has no more steps")
        return script if isinstance(script, Step) else script(asked)

    def _early(self, asked: Asked) -> Step | None:
        if self.key is not None and asked.key != self.key:
            return status(
                401,
                f"Incorrect API key provided: {asked.key}.",
                error_code="invalid_api_key",
                kind="invalid_request_error",
            )
        model = asked.body.get("model")
        if model not in self.models:
            message = f"The model `{model}` does not exist or you do not have access to it."
            return status(404, message, error_code="model_not_found", kind="invalid_request_error")
        form = asked.body.get("response_format", {}).get("type")
        for name in self.refuse:
            if name in ("json_schema", "json_object"):
                if form == name:
                    return status(
                        400, "This response_format type is unavailable now", kind="invalid_request_error"
                    )
            elif asked.body.get(name):
                return refused_parameter(name)
        return None


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are what tests do."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler(server: LlmServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.endswith("/models"):
                listed = [
                    {"id": name, "object": "model", "created": 0, "owned_by": "test"}
                    for name in server.models
                ]
                self._json(200, {"object": "list", "data": listed})
            else:
                self._json(
                    404,
                    {"error": {"message": f"no {self.path}", "type": "error", "param": None, "code": None}},
                )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            step = server._step(self.path, body, key)
            try:
                if step.hold_after == -1 and not server._held():
                    self.close_connection = True
                elif step.raw is not None:
                    self._send(step.status, step.content_type, step.raw)
                elif step.error is not None:
                    self._json(step.status, {"error": step.error}, step.headers)
                elif self.path.endswith("/responses"):
                    self._responses(step, body)
                elif body.get("stream"):
                    self._stream(step, body)
                else:
                    self._json(200, completion(step, body))
            except OSError:
                self.close_connection = True  # the client went away

        def _json(self, code: int, data: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
            self._send(code, "application/json", json.dumps(data).encode(), headers)

        def _send(self, code: int, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _chunk(self, data: Mapping[str, Any] | str, event: str | None = None) -> None:
            text = data if isinstance(data, str) else json.dumps(data)
            head = f"event: {event}\n" if event else ""
            payload = f"{head}data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(payload), payload))

        def _begin(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _texts(self, step: Step, send: Callable[[str], None]) -> bool:
            """Send the text in pieces. False when the step breaks off."""
            sent = 0
            for _ in range(step.repeat):
                size = PIECE if step.repeat == 1 else len(step.text)
                for start in range(0, len(step.text), size):
                    piece = step.text[start : start + size]
                    if step.cut_after is not None and sent + len(piece) > step.cut_after:
                        send(piece[: step.cut_after - sent])
                        self.close_connection = True
                        return False
                    if step.hold_after is not None and sent <= step.hold_after < sent + len(piece):
                        self.wfile.flush()
                        if not server._held():
                            self.close_connection = True
                            return False
                    send(piece)
                    sent += len(piece)
            return True

        def _stream(self, step: Step, body: Mapping[str, Any]) -> None:
            self._begin()

            def delta(finish: str | None = None, **fields: Any) -> None:
                choice = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}
                self._chunk({**head(body, "chat.completion.chunk"), "choices": [choice]})

            delta(role="assistant", content="")
            for piece in pieces(step.reasoning):
                delta(**{step.reasoning_field: piece})
            if step.refusal:
                delta(refusal=step.refusal)
            if not self._texts(step, lambda piece: delta(content=piece)):
                return
            for index, (known, name, arguments) in enumerate(step.calls):
                first = {"index": index, "id": known, "type": "function"}
                delta(tool_calls=[{**first, "function": {"name": name, "arguments": ""}}])
                for piece in pieces(arguments):
                    delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])
            if step.finish is not None:
                delta(step.finish)
            if step.usage is not None and body.get("stream_options", {}).get("include_usage"):
                self._chunk({**head(body, "chat.completion.chunk"), "choices": [], "usage": step.usage})
            if step.finish is not None:
                self._chunk("[DONE]")
            self.wfile.write(b"0\r\n\r\n")

        def _responses(self, step: Step, body: Mapping[str, Any]) -> None:
            done = response(step, body)
            if not body.get("stream"):
                self._json(200, done)
                return
            self._begin()
            numbers = itertools.count()

            def event(kind: str, **fields: Any) -> None:
                self._chunk({"type": kind, "sequence_number": next(numbers), **fields}, kind)

            event("response.created", response={**done, "status": "in_progress", "output": [], "usage": None})
            for index, item in enumerate(done["output"]):
                event("response.output_item.added", output_index=index, item=begun(item))
                place = {"output_index": index, "item_id": item["id"]}
                if not self._item(
                    step, item, lambda kind, place=place, **fields: event(kind, **place, **fields)
                ):
                    return
                event("response.output_item.done", output_index=index, item=item)
            event(f"response.{done['status']}", response=done)
            self.wfile.write(b"0\r\n\r\n")

        def _item(self, step: Step, item: Mapping[str, Any], event: Callable[..., None]) -> bool:
            """Send what is in an item of a response. False when the step breaks off."""
            if item["type"] == "reasoning":
                for piece in pieces(step.reasoning):
                    event("response.reasoning_summary_text.delta", summary_index=0, delta=piece)
            elif item["type"] == "function_call":
                for piece in pieces(item["arguments"]):
                    event("response.function_call_arguments.delta", delta=piece)
            elif step.refusal:
                event("response.refusal.delta", content_index=0, delta=step.refusal)
            elif item["type"] == "message":
                name = "response.output_text.delta"
                return self._texts(step, lambda piece: event(name, content_index=0, delta=piece, logprobs=[]))
            return True

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output clean."""

    return Handler

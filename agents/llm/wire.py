"""The SDK's connection to a server, and one HTTP exchange in a thread of its own.

The thread lets a run pause and stop at once while a server thinks. It holds what it received, never more
than the collector's limit, so that a paused run and a flooding server cost little memory.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import urlsplit

from .answer import ChatCollector, Collector, ModelsCollector, ResponseCollector

MAX_LINE = 8 << 20  # bytes of one server-sent event, or of a whole answer that isn't streamed
CONNECT_S = 15.0
DONE: Mapping[str, Any] = {}  # the stream's end, said by the server


class CutOff(Exception):
    """The stream ended before the answer did."""


class Garbled(Exception):
    """What came is not the protocol."""


class StreamError(Exception):
    """The server reported an error inside the stream."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message") or body))
        self.body = body


class Wire:
    """Connections to one server.

    Args:
        url: Base URL, with `/v1`.
        key: The bearer token; None sends a placeholder (servers of one's own need none).
        timeout_s: How long the server may send nothing.
    """

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url = url
        # The SDK takes more than a second to import: meanwhile others measure.
        thread = ThreadPoolExecutor(1, "warpdeck-sdk")
        self._connected = thread.submit(_connect, url, key, timeout_s)
        thread.shutdown(wait=False)

    @property
    def _sdk(self) -> Any:
        return self._connected.result()

    def chat(self, params: Mapping[str, Any]) -> Exchange:
        """POST /chat/completions."""
        create: Any = self._sdk.chat.completions.with_streaming_response.create
        return Exchange(lambda: create(**params), ChatCollector())

    def responses(self, params: Mapping[str, Any]) -> Exchange:
        """POST /responses."""
        create: Any = self._sdk.responses.with_streaming_response.create
        return Exchange(lambda: create(**params), ResponseCollector())

    def models(self) -> Exchange:
        """GET /models."""
        return Exchange(self._sdk.models.with_streaming_response.list, ModelsCollector())

    def close(self) -> None:
        """Close idle connections."""
        self._sdk.close()


def _connect(url: str, key: str | None, timeout_s: float) -> Any:
    import openai

    make: Any = getattr(openai, "DefaultHttpx2Client", openai.DefaultHttpxClient)
    # A proxy of the environment must not get what is meant for this machine.
    local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    return openai.OpenAI(
        api_key=key or "none",
        base_url=url,
        max_retries=0,
        timeout=openai.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        http_client=make(trust_env=not local),
        default_headers={"Accept-Encoding": "identity"},
    )


class Exchange:
    """A request on its way. Items: ("text", str), ("reasoning", str), ("error", exception), ("end", None)."""

    def __init__(self, send: Callable[[], AbstractContextManager[Any]], collector: Any) -> None:
        self.collector: Any = collector
        self._send = send
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._run, name="warpdeck-llm", daemon=True).start()

    def next(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next item, or None if none came in time."""
        try:
            return self._items.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Stop receiving. Doesn't wait; harmless when it is over."""
        self._cancelled.set()
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads

    def _run(self) -> None:
        try:
            with self._send() as response:
                if not self._cancelled.is_set():
                    self._socket = _socket_of(response)
                    self._receive(response)
                self._socket = None
            self._items.put(("end", None))
        except Exception as error:  # noqa: BLE001 (whatever it is, the asking thread must hear of it)
            self._socket = None
            self._items.put(("error", error))

    def _receive(self, response: Any) -> None:
        kind = str(response.headers.get("content-type") or "").lower()
        collector: Collector = self.collector
        if "event-stream" in kind:
            messages = decode(response.iter_bytes())
        elif "json" in kind:
            messages = iter([_object(_whole(response.iter_bytes()))])
        else:
            raise Garbled(f"it answered {kind or 'without a content type'}")
        for message in messages:
            if message is DONE:
                collector.finished = True
                break
            error = message.get("error")
            if error or message.get("type") == "error":
                raise StreamError(
                    error if isinstance(error, Mapping) else {**message, "message": _said(message)}
                )
            failed = message.get("response")
            if isinstance(failed, Mapping) and failed.get("status") == "failed":
                raise StreamError(failed.get("error") or {"message": "the response failed"})
            try:
                text, reasoning = collector.feed(message)
            except (AttributeError, IndexError, KeyError, TypeError) as problem:
                raise Garbled("its answer hasn't the protocol's form") from problem
            if reasoning:
                self._items.put(("reasoning", reasoning))
            if text:
                self._items.put(("text", text))
            if collector.full or self._cancelled.is_set():
                self.cancel()
                return
        if not collector.finished:
            raise CutOff("the stream ended before the answer did")


def decode(pieces: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a server-sent event stream, up to `[DONE]` (as `DONE`) or its end.

    Raises Garbled for what isn't JSON, or an event of more than `MAX_LINE` bytes.
    """
    rest = bytearray()
    data: list[bytes] = []
    size = 0
    for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > MAX_LINE:
                raise Garbled(f"it sent a line of more than {MAX_LINE >> 20} MB")
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
                size += len(line)
                if size > MAX_LINE:
                    raise Garbled(f"it sent an event of more than {MAX_LINE >> 20} MB")
            elif not line and data:
                event = b"\n".join(data)
                data, size = [], 0
                if event == b"[DONE]":
                    yield DONE
                    return
                if event:
                    yield _object(event)


def _whole(pieces: Iterable[bytes]) -> bytes:
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > MAX_LINE:
            raise Garbled(f"it sent more than {MAX_LINE >> 20} MB")
    return bytes(body)


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled("it sent invalid JSON") from None
    if not isinstance(value, Mapping):
        raise Garbled("it sent JSON that is no object")
    return value


def _said(message: Mapping[str, Any]) -> str:
    error = message.get("error")
    return str(message.get("message") or error or "an error without a message")


def _socket_of(response: Any) -> socket.socket | None:
    stream = response.http_response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    return found if isinstance(found, socket.socket) else None

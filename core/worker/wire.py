"""Messages between the run process, the fork server and its workers: length-prefixed JSON over a Unix socket.

JSON, because the run process must never unpickle what a candidate's process sends. Arrays don't travel here;
they lie in files that both sides map (`exchange.py`).
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct(">I")
MAX_BYTES = 64 << 20


class Closed(Exception):
    """The other side is gone."""


class Malformed(Exception):
    """What arrived is no message of this protocol."""


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message, with open file descriptors if any. Raises `Closed`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_BYTES:
        raise Malformed(f"a message of {len(body)} bytes is over the limit of {MAX_BYTES}")
    data = _HEADER.pack(len(body)) + body
    try:
        if fds:
            sent = socket.send_fds(sock, [data], list(fds))
            data = data[sent:]
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed(str(error)) from None


def receive(
    sock: socket.socket, timeout_s: float | None = None, max_fds: int = 0
) -> tuple[dict[str, Any], list[int]]:
    """Wait for one message and its descriptors.

    Raises `TimeoutError` after `timeout_s`, `Closed` at the end of the stream, `Malformed` for anything that
    is not a JSON object of at most `MAX_BYTES`.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    fds: list[int] = []
    header = _read(sock, _HEADER.size, deadline, fds, max_fds)
    (size,) = _HEADER.unpack(header)
    if size > MAX_BYTES:
        raise Malformed(f"a message of {size} bytes is over the limit of {MAX_BYTES}")
    body = _read(sock, size, deadline, fds, 0)
    try:
        message = json.loads(body)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed("not a JSON object")
    return message, fds


def _read(sock: socket.socket, size: int, deadline: float | None, fds: list[int], max_fds: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([sock], [], [], left)[0]:
                raise TimeoutError("no answer in time")
        try:
            if max_fds:
                data, received, _, _ = socket.recv_fds(sock, size, max_fds)
                fds.extend(received)
            else:
                data = sock.recv(min(size, 1 << 20))
        except ConnectionResetError as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("end of stream")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)

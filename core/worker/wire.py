"""Messages between the run process, the fork server and its workers: length-prefixed JSON over a Unix socket.

JSON, because the run process must never unpickle what a candidate's process sends. Arrays don't travel here;
they lie in files that both sides map (`exchange.py`).
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct(">I")
_CHUNK = 1 << 16
MAX_BYTES = 64 << 20


class Closed(Exception):
    """The other side is gone."""


class Malformed(Exception):
    """What arrived is no message of this protocol."""


class Channel:
    """One end of a connection. Reads ahead, so that a message takes one system call."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.fds: list[int] = []  # descriptors that arrived with messages and nobody took yet
        self._buffer = bytearray()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message, with open file descriptors if any. Raises `Closed`."""
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_BYTES:
            raise Malformed(f"a message of {len(body)} bytes is over the limit of {MAX_BYTES}")
        data = _HEADER.pack(len(body)) + body
        try:
            self.socket.settimeout(None)
            if fds:
                data = data[socket.send_fds(self.socket, [data], list(fds)) :]
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from None

    def receive(self, timeout_s: float | None = None, *, with_fds: bool = False) -> dict[str, Any]:
        """Wait for one message; descriptors that come along are added to `fds`.

        Raises `TimeoutError` after `timeout_s`, `Closed` at the end of the stream, `Malformed` for anything
        that is not a JSON object of at most `MAX_BYTES`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._fill(_HEADER.size, deadline, with_fds)
        (size,) = _HEADER.unpack_from(self._buffer)
        if size > MAX_BYTES:
            raise Malformed(f"a message of {size} bytes is over the limit of {MAX_BYTES}")
        end = _HEADER.size + size
        self._fill(end, deadline, with_fds)
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None
        if not isinstance(message, dict):
            raise Malformed("not a JSON object")
        return message

    def _fill(self, size: int, deadline: float | None, with_fds: bool) -> None:
        while len(self._buffer) < size:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no answer in time")
            self.socket.settimeout(left)
            try:
                if with_fds:
                    data, fds, _, _ = socket.recv_fds(self.socket, _CHUNK, 4)
                    self.fds.extend(fds)
                else:
                    data = self.socket.recv(_CHUNK)
            except ConnectionResetError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("end of stream")
            self._buffer += data

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

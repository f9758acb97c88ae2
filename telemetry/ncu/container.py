"""The outer form of an `.ncu-rep` file: enough of it to tell a whole report from a cut or foreign one.

A report is `NVR\\0`, the size of a header and the header; then blocks, each the size of its header, the
header (protobuf: 1 = number of sources, 2 = number of results, 5 = bytes of payload) and the payload, which
is as many messages, each with its size before it. NVIDIA's reader takes a file that ends early for one with
fewer launches, so its word alone is not enough.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from .errors import bad_report

_MAGIC = b"NVR\0"
_TOOL = re.compile(rb"(20\d\d\.\d{1,2}\.\d{1,3})(?:\.\d+)? \(build \d+\)")


@dataclass(frozen=True)
class Container:
    """`results`: launches in the report. `tool`: Nsight Compute's version ("2025.3.1"), "" if not found."""

    results: int
    tool: str


def inspect(path: Path) -> Container:
    """Walk over a report's blocks. Raises NcuError (report) for what is no whole report."""
    try:
        if path.exists() and not path.is_file():  # a pipe would keep us waiting
            raise bad_report(str(path), "it is no file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise bad_report(str(path), "it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _walk(data, str(path))
    except FileNotFoundError:
        raise bad_report(str(path), "there is no such file") from None
    except (OSError, ValueError) as error:
        raise bad_report(str(path), str(getattr(error, "strerror", None) or error)) from None


def _walk(data: mmap.mmap, where: str) -> Container:
    if data[:4] != _MAGIC:
        raise bad_report(where, "it is no report of Nsight Compute")
    cut = bad_report(where, "it is damaged or cut short")
    end = len(data)

    def skip(at: int) -> tuple[int, int]:
        """The bytes of a message that starts with its size at `at`."""
        if at + 4 > end:
            raise cut
        stop = at + 4 + struct.unpack_from("<I", data, at)[0]
        if stop > end:
            raise cut
        return at + 4, stop

    _, at = skip(4)
    results = 0
    while at < end:
        start, at = skip(at)
        fields = _fields(data[start:at])
        if fields is None:
            raise cut
        stop = at + fields.get(5, 0)
        results += fields.get(2, 0)
        for _ in range(fields.get(1, 0) + fields.get(2, 0)):
            if at >= stop:
                raise cut
            _, at = skip(at)
        if at > stop or stop > end:
            raise cut
        at = stop
    if results == 0:
        raise bad_report(where, "it has no launch in it: nothing was profiled, or it is cut short")
    found = _TOOL.search(data)
    return Container(results, found[1].decode() if found else "")


def _fields(message: bytes) -> dict[int, int] | None:
    """The integer fields of a protobuf message, by number; None if it is not well formed."""
    fields: dict[int, int] = {}
    at = 0
    while at < len(message):
        key = _varint(message, at)
        if key is None:
            return None
        number, at = key[0] >> 3, key[1]
        if key[0] & 7 in (0, 2):
            value = _varint(message, at)
            if value is None:
                return None
            at = value[1]
            if key[0] & 7 == 0:
                fields[number] = value[0]
            else:
                at += value[0]
        elif key[0] & 7 in (1, 5):
            at += 8 if key[0] & 7 == 1 else 4
        else:
            return None
    return fields if at == len(message) else None


def _varint(message: bytes, at: int) -> tuple[int, int] | None:
    """A variable-length integer at `at` and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            return None
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return None

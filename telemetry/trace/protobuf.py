"""As much of protobuf's wire format as a Perfetto trace needs, for a million messages at once.

A message is a sequence of fields, each a tag (number and wire type as a varint) and its value. `join` writes
many alike messages from columns; `scan` reads the fields of many messages in lockstep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TraceError

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MAX_FIELDS = 64  # of one message in `scan`; ours have at most a dozen
_CUT = "damaged or cut off: a message runs beyond its end"


def varint(value: int) -> bytes:
    """One number, 0 or greater."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3 | VARINT) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    """A field of bytes, text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | LENGTH) + varint(len(data)) + data


@dataclass(frozen=True)
class Column:
    """Bytes [n, width], of which a row's first `length` count."""

    data: Bytes
    length: Ints


def varints(values: NDArray[Any]) -> Column:
    """Numbers, 0 or greater."""
    rest = values.astype(np.uint64)
    width = max(1, (int(rest.max(initial=0)).bit_length() + 6) // 7)
    data = np.empty((rest.size, width), np.uint8)
    length = np.ones(rest.size, np.int64)
    for i in range(width):
        data[:, i] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        more = rest > 0
        data[:, i] |= np.where(more, np.uint8(0x80), np.uint8(0))
        length += more
    return Column(data, length)


def fixed64(values: NDArray[Any]) -> Column:
    """8-byte values, float64 or uint64."""
    data = np.ascontiguousarray(values).view(np.uint8).reshape(values.size, 8)
    return Column(data, np.full(values.size, 8, np.int64))


def constant(data: bytes, count: int) -> Column:
    """The same bytes in every row."""
    row = np.frombuffer(data, np.uint8)
    return Column(np.broadcast_to(row, (count, row.size)), np.full(count, row.size, np.int64))


def only(column: Column, where: NDArray[np.bool_]) -> Column:
    """Nothing in the other rows."""
    return Column(column.data, np.where(where, column.length, 0))


def lengths(columns: Sequence[Column]) -> Ints:
    """[n] bytes a row."""
    return np.sum([c.length for c in columns], axis=0)


def join(columns: Sequence[Column]) -> bytes:
    """Row by row, each row's columns one after the other."""
    data = np.concatenate([c.data for c in columns], axis=1)
    valid = np.concatenate([np.arange(c.data.shape[1]) < c.length[:, None] for c in columns], axis=1)
    return data[valid].tobytes()


@dataclass(frozen=True)
class Fields:
    """Fields of many messages, in the order of each message: its index, the field's number and wire type.

    `value`: of a varint or fixed field; where the bytes start of one with a length, which is in `size`.
    """

    owner: NDArray[Any]
    number: NDArray[Any]
    wire: NDArray[Any]
    value: NDArray[Any]
    size: NDArray[Any]

    def first(self, number: int, wire: int, count: int, default: int) -> NDArray[np.uint64]:
        """[count] the last value of a field in each message, as protobuf has it; `default` where it lacks."""
        found = np.full(count, default, np.uint64)
        at = (self.number == number) & (self.wire == wire)
        found[self.owner[at]] = self.value[at]
        return found

    def blocks(self, number: int) -> tuple[Ints, Ints, Ints]:
        """(owner, start, stop) of fields with a length."""
        at = np.flatnonzero((self.number == number) & (self.wire == LENGTH))
        start = self.value[at].astype(np.int64)
        return self.owner[at], start, start + self.size[at]


def scan(data: Bytes, start: Ints, stop: Ints) -> Fields:
    """The fields of the messages data[start:stop], all first ones, then all second ones, ….

    TraceError if a message is cut off, is no protobuf, or has more fields than any of ours.
    """
    owner, at, stop = np.flatnonzero(start < stop), start[start < stop], stop[start < stop]
    parts: list[tuple[NDArray[Any], ...]] = []
    for _ in range(_MAX_FIELDS):
        if not owner.size:
            break
        tag, at = _read_varints(data, at, stop)
        field, wire = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
        if not np.isin(wire, (VARINT, FIXED64, LENGTH, FIXED32)).all() or (field == 0).any():
            raise TraceError("damaged: not a protobuf message")
        value, size = np.zeros(at.size, np.uint64), np.zeros(at.size, np.int64)
        plain = (wire == VARINT) | (wire == LENGTH)
        value[plain], at[plain] = _read_varints(data, at[plain], stop[plain])
        blocks = wire == LENGTH
        if (value[blocks] > data.size).any():
            raise TraceError(_CUT)
        size[blocks] = value[blocks].astype(np.int64)
        value[blocks] = at[blocks].astype(np.uint64)
        size[wire == FIXED64], size[wire == FIXED32] = 8, 4
        if (at + size > stop).any():
            raise TraceError(_CUT)
        for kind, width in ((FIXED64, 8), (FIXED32, 4)):
            which = np.flatnonzero(wire == kind)
            raw = np.zeros((which.size, 8), np.uint8)
            raw[:, :width] = data[at[which][:, None] + np.arange(width)]
            value[which] = raw.view("<u8")[:, 0]
        at = at + size
        parts.append((owner, field, wire, value, size))
        more = at < stop
        owner, at, stop = owner[more], at[more], stop[more]
    else:
        if owner.size:
            raise TraceError("not written by warpdeck: its messages have other fields")
    if not parts:
        return Fields(*(np.zeros(0, t) for t in (np.int64, np.int64, np.int64, np.uint64, np.int64)))
    return Fields(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _read_varints(data: Bytes, at: Ints, stop: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """The numbers at these positions, and the positions behind them."""
    if (at >= stop).any():
        raise TraceError(_CUT)
    byte = data[at]
    value = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    going = np.flatnonzero(byte & 0x80)
    shift = 7
    while going.size:
        here = at[going]
        if shift > 63 or (here >= stop[going]).any():
            raise TraceError(_CUT)
        byte = data[here]
        value[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[going] = here + 1
        going = going[(byte & 0x80) != 0]
        shift += 7
    return value, at


def packets(data: bytes, field: int) -> tuple[Ints, Ints]:
    """(start, stop) of the messages of a file that is nothing but a repeated field of them."""
    tag = field << 3 | LENGTH
    starts: list[int] = []
    stops: list[int] = []
    at, size = 0, len(data)
    while at < size:
        if data[at] != tag:
            raise TraceError(f"damaged: byte {at} begins no packet")
        at += 1
        length = shift = 0
        while True:
            if at >= size or shift > 35:
                raise TraceError(_CUT)
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        starts.append(at)
        at += length
        stops.append(at)
    if at != size:
        raise TraceError(_CUT)
    return np.array(starts, np.int64), np.array(stops, np.int64)

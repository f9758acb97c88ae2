"""Runs the PTX of the trace's inline assembly for one thread, on a bytearray as memory.

It knows the instructions that occur there, and branches forward, and refuses any other.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence


class Memory:
    """Global memory from address `base` on. Accesses outside, or misaligned ones, raise."""

    def __init__(self, size: int, base: int = 0x7F0000000000) -> None:
        self.base, self.data = base, bytearray(b"\xee" * size)
        self.written: list[tuple[int, int]] = []  # address, bytes

    def _at(self, address: int, size: int) -> int:
        assert address % size == 0, f"misaligned access at {address:#x}"
        assert self.base <= address and address + size <= self.base + len(self.data), (
            f"{address:#x} is outside"
        )
        return address - self.base

    def load(self, address: int, size: int) -> bytes:
        at = self._at(address, size)
        return bytes(self.data[at : at + size])

    def store(self, address: int, data: bytes) -> None:
        at = self._at(address, len(data))
        self.data[at : at + len(data)] = data
        self.written.append((address, len(data)))


def run(
    text: str, operands: Sequence[int], outputs: int, special: Mapping[str, int], memory: Memory
) -> list[int]:
    """Execute; `$0` to `$N` are the outputs, then the inputs. `clock` rises by 10 with every read.

    Returns the outputs.
    """
    values: dict[str, int] = {f"${outputs + i}": value for i, value in enumerate(operands)}
    clock = special.get("%clock64", 0)

    def read(name: str) -> int:
        nonlocal clock
        if name.startswith("%clock"):
            clock += 10
            return clock if name == "%clock64" else clock & 0xFFFFFFFF
        if name.startswith("%"):
            return special[name]
        return int(name, 0) if re.fullmatch(r"-?\d+|0x[\da-f]+", name) else values[name]

    skipped_to = ""
    for line in re.sub(r"(\w+):", r"\1:;", text.strip().removeprefix("{").removesuffix("}")).split(";"):
        line = line.strip()
        if not line or line.startswith(".reg"):
            continue
        if line.endswith(":"):
            skipped_to = "" if line[:-1] == skipped_to else skipped_to
            continue
        guard, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        if skipped_to or (guard and bool(values[guard.strip("@!")]) == guard.startswith("@!")):
            continue
        if rest.startswith("bra "):
            skipped_to = rest.removeprefix("bra ")
            continue
        name, _, tail = rest.partition(" ")
        parts = [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s][^,]*", tail)]
        _execute(name.split("."), parts, values, read, memory)
    assert not skipped_to, f"no label {skipped_to}"
    return [values[f"${i}"] for i in range(outputs)]


def _execute(name, parts, values, read, memory) -> None:
    operation, kind = name[0], name[-1]
    width = int(kind[1:]) if kind[1:].isdigit() else 32
    mask = (1 << width) - 1
    if operation in ("ld", "st"):
        target, place = parts if operation == "ld" else parts[::-1]
        registers = [r.strip() for r in target.strip("{}").split(",")]
        base, _, offset = place.strip("[]").partition("+")
        address = (read(base) + int(offset or 0)) % (1 << 64)
        form = "<" + {32: "I", 64: "Q"}[width] * len(registers)
        if operation == "ld":
            values.update(
                zip(registers, struct.unpack(form, memory.load(address, struct.calcsize(form))), strict=True)
            )
        else:
            memory.store(address, struct.pack(form, *(read(r) & mask for r in registers)))
        return
    a = [read(part) for part in parts[1:]]
    if parts[0].startswith("{"):
        low, high = parts[0].strip("{}").split(",")
        values |= {low.strip(): a[0] & 0xFFFFFFFF, high.strip(): a[0] >> 32}
        return
    if operation == "lop3":
        assert a[3] == 0xEA
        values[parts[0]] = a[0] & a[1] | a[2]
        return
    if operation == "setp":
        x, y = (_signed(v, width) if kind[0] == "s" else v & mask for v in a[:2])
        result = {"eq": x == y, "ne": x != y, "lt": x < y, "ge": x >= y, "gt": x > y}[name[1]]
        values[parts[0]] = result and (bool(a[2]) if name[2] == "and" else True)
        return
    if operation in ("mul", "mad") and name[1] == "wide":
        x, y = (_signed(v, 32) if kind[0] == "s" else v & mask for v in a[:2])
        values[parts[0]] = (x * y + (a[2] if operation == "mad" else 0)) % (1 << 64)
        return
    results = {
        "mov": lambda: a[0],
        "cvt": lambda: a[0] & (0xFFFFFFFF if name[1] == "u32" else mask),
        "add": lambda: a[0] + a[1],
        "sub": lambda: a[0] - a[1],
        "mul": lambda: a[0] * a[1],
        "mad": lambda: a[0] * a[1] + a[2],
        "min": lambda: min(a[0], a[1]),
        "and": lambda: a[0] & a[1],
        "shr": lambda: a[0] >> a[1],
        "shl": lambda: a[0] << a[1] if a[1] < width else 0,
        "popc": lambda: a[0].bit_count(),
        "selp": lambda: a[0] if a[2] else a[1],
    }
    values[parts[0]] = results[operation]() & mask


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value

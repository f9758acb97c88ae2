"""One launch as read from a report, whichever way it was read, before it becomes `Counters`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .counters import Metric

NO_VALUE = "Nsight Compute gave no value (n/a)"


@dataclass(frozen=True)
class Instruction:
    """A machine instruction. `address`: as the tool gives it, or an offset; `stalls`: samples by reason."""

    address: int
    sass: str
    file: str = ""
    line: int = 0
    source: str = ""
    ptx: str = ""
    samples: int = 0
    executed: int = 0
    stalls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """`metrics`: numbers in base units by Nsight Compute's names. `absent`: those without a value -> why.
    `texts`: what is no number. `base`: address of the kernel's first instruction. `sources`: imported files.
    """

    kernel: str
    metrics: Mapping[str, Metric]
    absent: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    instructions: tuple[Instruction, ...] = ()
    base: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    mangled: str = ""


_PREFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIMES.update({"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0})


def base_unit(value: float, unit: str) -> tuple[float, str]:
    """The value in Nsight Compute's base unit: byte, hz, ns, and rates by second.

    `("1.5", "Tbyte/s")` is 1.5e12 byte/s; a unit that is not understood stays as it is.
    """
    above, slash, below = unit.partition("/")
    factor, above = _part(above)
    if above in _TIMES:
        factor, above = factor * _TIMES[above] * 1e9, "ns"
    if slash:
        divisor, below = _part(below)
        if below in _TIMES:
            divisor, below = divisor * _TIMES[below], "s"
        factor /= divisor
        above = "hz" if (above, below) == ("cycle", "s") else f"{above}/{below}"
    return (value if factor == 1.0 else value * factor), above


def _part(name: str) -> tuple[float, str]:
    match = re.fullmatch(r"([KMGTP])([a-z]{2,})", name)
    return (_PREFIX[match[1]], match[2]) if match else (1.0, name)


def number(text: str) -> float | None:
    """A number as the tool prints it, with thousands commas; None for a text and for what is not finite."""
    text = text.strip().replace(",", "")
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def has_no_value(text: str) -> bool:
    """Whether the tool printed that there is no value."""
    word = text.strip().lower()
    return word in ("", "(!) n/a", "n/a", "no data", "nan", "-nan", "inf", "-inf", "(!) nan")


_LONGEST = 4096  # characters of a kernel's name that are looked at; nested templates make long ones


def display_name(kernel: str) -> str:
    """A kernel's name to show: without parameters, namespaces of the compiler, ABI tags and long templates.

    `cudapy::gemm::kernel[abi:v1][abi:cw51…](Array<…>)` and its mangled form are both `kernel`.
    """
    kernel = kernel.strip()[:_LONGEST]
    name = _unmangled(kernel) or kernel
    name = re.sub(r"\[abi:[^\]]*\]", "", name)
    depth, cut = 0, len(name)
    for i, char in enumerate(name):  # the parameter list: the first parenthesis outside of a template
        depth += (char == "<") - (char == ">")
        if char == "(" and depth <= 0 and i and not name.startswith("(anonymous", i):
            cut = i
            break
    name = name[:cut].strip()
    while (inner := re.sub(r"<[^<>]*>", "", name)) != name:
        name = inner
    name = name.split()[-1] if name.split() else ""
    return name.rpartition("::")[2] or kernel


def _unmangled(name: str) -> str:
    """The last part of a mangled name (`_ZN6module6kernelB2v1E…`), "" for any other name."""
    match = re.match(r"_ZN?", name)
    if match is None:
        return ""
    at, last = match.end(), ""
    while found := re.match(r"(B?)(\d+)", name[at:]):
        start = at + found.end()
        stop = start + int(found[2])
        if stop > len(name):
            return last
        if not found[1]:  # B…: an ABI tag of the part before
            last = name[start:stop]
        at = stop
    return last

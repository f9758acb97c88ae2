"""Numbers as people read them. Every function is total: None and nonsense become a dash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NONE = "–"
TAB = 4  # columns, in a source


def time_text(ms: float | None, like: float | None = None) -> str:
    """A latency with four significant digits: in µs below 1 ms, in s from 1000 ms; or in `like`'s unit, so
    that times beside each other share theirs."""
    if ms is None or not math.isfinite(ms):
        return NONE
    scale = abs(ms if like is None or not math.isfinite(like) else like)
    factor, unit = (1e3, "µs") if scale < 1 else (1.0, "ms") if scale < 1000 else (1e-3, "s")
    return f"{_significant(ms * factor, 4)} {unit}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, min(decimals, digits - 1))}f}"


def ratio(value: float | None, decimals: int = 2) -> str:
    """A factor: "1.42×"; fewer decimals from 10 on."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{_factor(value, decimals)}×"


def speedup(value: float | None) -> str:
    """A speedup, to the tenth of a percent that a verdict needs: "1.421×"."""
    return ratio(value, 3)


def interval(bounds: tuple[float, float] | None) -> str:
    """A speedup's 95% interval: "[1.403, 1.441]"; empty where there is none."""
    if bounds is None or not all(math.isfinite(b) for b in bounds):
        return ""
    return f"[{_factor(bounds[0], 3)}, {_factor(bounds[1], 3)}]"


def _factor(value: float, decimals: int) -> str:
    spent = 0 if value < 10 else 1 if value < 100 else decimals
    return f"{value:.{max(0, decimals - spent)}f}"


def percent(fraction: float | None) -> str:
    """A fraction as whole percent: "38%"."""
    if fraction is None or not math.isfinite(fraction):
        return NONE
    return f"{100 * fraction:.0f}%"


def duration(seconds: float | None) -> str:
    """ "0:42", "12:05", "3:04:12"."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NONE
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def size_text(count: float | None) -> str:
    """Bytes in binary units: "28.4 GiB"."""
    if count is None:
        return NONE
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def config_text(config: Mapping[str, Any]) -> str:
    """ "block_size=256 reg_cap=0": what `--knob` takes, without the flag."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def short_config(config: Mapping[str, Any], width: int) -> str:
    """As `config_text`, with the names shortened as far as `width` asks and they stay different."""
    names = list(config)
    while (text := config_text(dict(zip(names, config.values(), strict=True)))) and len(text) > width:
        shorter = shorten_one(names, range(len(names)))
        if shorter is None:
            break
        names = shorter
    return clip(text, width)


def shorten_one(names: Sequence[str], which: Iterable[int]) -> list[str] | None:
    """The names with the longest of `which` a letter shorter (in its longest word), all still different; None
    where no name can be shorter."""
    found = ((i, _shorter(names[i])) for i in which)
    possible = [(i, name) for i, name in found if name and name not in names]
    if not possible:
        return None
    i, name = max(possible, key=lambda shortened: len(shortened[1]))
    return [*names[:i], name, *names[i + 1 :]]


def _shorter(name: str) -> str:
    words = name.split("_")
    longest = max(words, key=len)
    if len(longest) < 2:
        return ""
    words[words.index(longest)] = longest[:-1]
    return "_".join(words)


def config_flags(config: Mapping[str, Any]) -> str:
    """ "--knob block_size=256 --knob reg_cap=0": to paste after a command."""
    return " ".join(f"--knob {name}={value}" for name, value in config.items())


def clip(text: str, width: int) -> str:
    """`text` in at most `width` characters, with "…" where it was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def shown_lines(text: str) -> tuple[str, ...]:
    """A source's lines with tabs as spaces, and without characters that could drive a terminal."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(line if line.isprintable() else _printable(line) for line in lines)


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line.expandtabs(TAB))

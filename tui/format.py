"""Numbers as people read them. Every function is total: None and nonsense become a dash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NONE = "–"


def time_text(ms: float | None) -> str:
    """A latency in the unit that keeps four significant digits readable: µs below 1 ms, s from 1000 ms."""
    if ms is None or not math.isfinite(ms):
        return NONE
    if abs(ms) < 1:
        value, unit = ms * 1e3, "µs"
    elif abs(ms) < 1000:
        value, unit = ms, "ms"
    else:
        value, unit = ms / 1e3, "s"
    return f"{_significant(value, 4)} {unit}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, min(decimals, digits - 1))}f}"


def ratio(value: float | None) -> str:
    """A factor: "1.42×"."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def interval(bounds: tuple[float, float] | None) -> str:
    """A 95% interval of a factor: "[1.40, 1.44]"; empty where there is none."""
    if bounds is None or not all(math.isfinite(b) for b in bounds):
        return ""
    return f"[{bounds[0]:.2f}, {bounds[1]:.2f}]"


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


def config_flags(config: Mapping[str, Any]) -> str:
    """ "--knob block_size=256 --knob reg_cap=0": to paste after a command."""
    return " ".join(f"--knob {name}={value}" for name, value in config.items())


def clip(text: str, width: int) -> str:
    """`text` in at most `width` characters, with "…" where it was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"

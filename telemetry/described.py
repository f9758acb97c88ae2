"""What describes a launch in files of traces and of counters, held against the types that readers rely on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

_NUMBER = (int, float)
_SCALAR = (str, int, float, bool)


def _is(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _mapping(of: Any) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Mapping) and all(v is None or isinstance(v, of) for v in value.values())
    )


def _sequence(of: Any, length: int | None = None) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return (
            isinstance(value, (list, tuple))
            and length in (None, len(value))
            and all(isinstance(v, of) for v in value)
        )

    return fits


def _device(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    rest = {key: v for key, v in value.items() if key != "compute_capability"}
    cc = value.get("compute_capability")
    texts = (value.get(key) for key in ("name", "spec", "date", "label"))
    return (
        _mapping(_SCALAR)(rest)
        and all(text is None or isinstance(text, str) for text in texts)
        and (cc is None or _sequence(int, 2)(cc))
    )


def _times(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and all(isinstance(value.get(key), _NUMBER) for key in ("untraced_ms", "traced_ms", "ratio"))
        and _sequence(_NUMBER, 2)(value.get("ci"))
    )


def _overhead(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    recording = value.get("recording")
    return not value or (_times(value) and (recording is None or _times(recording)))


def _ctas(value: Any) -> bool:
    return _mapping(int)(value) and isinstance(value.get("traced"), int) and "of" in value


def _command(value: Any) -> bool:
    try:
        return isinstance(value, str) and shlex.split(value) is not None
    except ValueError:
        return False


_TEXTS = ("workload", "variant", "case", "kernel", "date", "cache", "set", "tool", "source_hash")
_FITS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_TEXTS, _is(str)),
    **dict.fromkeys(("config", "params"), _mapping(_SCALAR)),
    **dict.fromkeys(("grid", "block"), _sequence(int, 3)),
    **dict.fromkeys(("instance", "capacity", "passes"), _is(int)),
    "resources": _is(Mapping),
    "warnings": _sequence(str),
    "device": _device,
    "overhead": _overhead,
    "ctas": _ctas,
    "command": _command,
}


def strange(meta: Mapping[str, Any]) -> str | None:
    """The first key whose value isn't of the type that it must have; None if there is none.

    Any key may be absent or null, and unknown ones hold what they like.
    """
    return next((k for k, fits in _FITS.items() if meta.get(k) is not None and not fits(meta[k])), None)

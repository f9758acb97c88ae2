"""What a session's log holds: events `(seq, t, kind, data)`, where `data` is a JSON object.

`seq` counts from 1 without gaps, `t` is Unix time in seconds and never decreases within a session (the
writer's clock is monotonic; a system clock set back stops `t` until it catches up). Readers ignore kinds
and keys that they don't know. Every number may be null where it is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """The kinds of event, and the keys of their data."""

    START = "start"
    """Once, when the device is open (again after a resume): `workload`, `agent`, `seed`, `space`,
    `cases [{name, params}]`, `device` (DeviceInfo), `protocol`, `steps` (to expect), `time_limit_s`,
    `command`, `versions {name: version}`, `baseline` (config), `knobs {name: [value…]}`, `total_configs`,
    `vendor {case: {name, median_ms}}` or null (older logs; now an event of its own), `floors {case: ms}`,
    `launch_floor_ms`, `origins` (where a workload's parts come from), `from` (what the run goes on from)."""

    VENDOR = "vendor"
    """The vendor library's times, as soon as they are known: `cases {case: {name, median_ms}}`."""

    BASELINE = "baseline"
    """The baseline's Evaluation; again whenever it was measured again."""

    EVALUATION = "evaluation"
    """An Evaluation and its `step`, from 1; `precision` where the variant has one of its own."""

    STEP = "step"
    """One agent step: `step` (from 1), `reward`, `speedup`, `best_speedup`, `config`, `status`, `episode`."""

    STEPS = "steps"
    """Many steps at once, as columns of equal length: `step [...]`, `reward [...]`, `speedup [...]`,
    `best_speedup [...]`."""

    SAMPLE = "sample"
    """One NVML sample: `t`, `gpu_util`, `mem_util` (%), `mem_used`, `mem_total` (bytes), `temp_c`,
    `power_w`, `power_limit_w`, `sm_mhz`, `sm_max_mhz`, `mem_mhz`, `mem_max_mhz`, `throttle [reason…]`;
    and what else a `readings.Snapshot` has; now and then `others [{index, …}]`, the machine's other GPUs."""

    MESSAGE = "message"
    """`level` (info, warning, error) and `text`, for people."""

    ARTIFACT = "artifact"
    """`name` and `path`, relative to the session's folder."""

    NODE = "node"
    """A state machine of an agent entered `node`; `detail` for people."""

    REQUEST = "request"
    """Sent to a language model: `id`, `purpose`, `attempt`, `model`, `messages`, `params`; keys redacted."""

    PARTIAL = "partial"
    """Streamed of request `id` since the last one: `text`; at most two a second."""

    RESPONSE = "response"
    """Of request `id`: `text`, `reasoning`, `tool_calls`, `usage {input, cached, output, reasoning}`
    (tokens), `cost` (USD), `seconds`, `from_log` (given back from the log, not paid again)."""

    TOOL = "tool"
    """A tool that the model called: `id` of the request, `name`, `arguments`, `result` (bounded),
    `seconds`."""

    ATTEMPT = "attempt"
    """A source that an agent tried, proposed and again when it was judged: `attempt` (from 1), `parent`
    (attempt or null), `idea`, `summary`, `variant`, `candidate`, `source` (path below the session's folder,
    or null: the workload's own), `launches`, `repairs` (attempt or null), `kept`, `verdict`."""

    RESULT = "result"
    """The finalists re-measured: `best`, `cases`, `tied`, `counts`, `vendor_ratio`, `floor_ratio`, as in
    `tune --json`; `finish_s` that it took, and `compared_s` that the run spent on paired samples in all."""

    STATE = "state"
    """`state` (a Lifecycle value), `reason`, and in a final one the process' `exit_code`."""


AGENT_KINDS = (Kind.NODE, Kind.REQUEST, Kind.RESPONSE, Kind.TOOL, Kind.ATTEMPT)  # what a resumed agent needs


class Lifecycle(StrEnum):
    """Where a run is. The last four are final; all but `finished` can be resumed."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its process died without saying so
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """True when no process is expected to go on with the run."""
        return self in _FINAL


_FINAL = frozenset({Lifecycle.FINISHED, Lifecycle.FAILED, Lifecycle.INTERRUPTED, Lifecycle.CANCELLED})


class Event(NamedTuple):
    """One row of the log."""

    seq: int
    t: float
    kind: str
    data: Mapping[str, Any]


EventSink = Callable[[str, Mapping[str, Any]], None]
"""Takes `(kind, data)`; how a bench and an agent write to the log."""


def encode(data: Mapping[str, Any]) -> str:
    """Compact JSON. NumPy scalars and arrays become numbers and lists, NaN and infinities null.

    Raises TypeError for what JSON can't hold.
    """
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} can't be stored in an event")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    return _finite(_plain(value))

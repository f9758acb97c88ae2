"""RunState to what panes show. Pure functions, so that screens hold no knowledge of the run."""

from __future__ import annotations

import numpy as np

from ..sessions.events import Lifecycle
from ..sessions.state import RunState
from .braille import Series, Shape
from .format import clip, duration, interval, ratio, time_text
from .widgets.gauges import Gauge, gauges, stored_values
from .widgets.leaderboard import Row
from .widgets.log import Line

# A shape and a word for each state, so that it reads without colour.
STATE_MARKS = {
    Lifecycle.CREATED: "… starting",
    Lifecycle.RUNNING: "▶ running",
    Lifecycle.PAUSED: "‖ paused",
    Lifecycle.STOPPING: "◼ stopping",
    Lifecycle.FINISHED: "✔ finished",
    Lifecycle.FAILED: "✘ failed",
    Lifecycle.INTERRUPTED: "✘ interrupted",
    Lifecycle.CANCELLED: "◼ cancelled",
}
STALE_S = 5.0  # NVML is sampled once a second, but not while a kernel is timed
MEAN_WINDOW = 50  # steps in the reward's running mean, drawn from twice as many steps on


def device_text(state: RunState) -> str:
    """The device, with "recorded on …" or "emulated" where that is the truth."""
    device = state.info.device if state.info else None
    if device is None:
        return "opening the device"
    return f"emulated, {device.label}" if device.emulated else device.label


def elapsed(state: RunState, now: float) -> float:
    """Seconds the run has been running, up to `now` if it still is."""
    going = state.lifecycle in (Lifecycle.RUNNING, Lifecycle.STOPPING)
    return state.active_s + (max(0.0, now - state.t) if going else 0.0)


def title_line(state: RunState, mode: str, width: int) -> str:
    """Workload, agent, sizes, device: the device is never cut off, the sizes give way first."""
    if state.info is None:
        return clip(f"{mode}waiting for the run to start", width)
    cases = ",".join(c.name for c in state.info.cases)
    device = device_text(state)
    for sizes in (f" · size {cases}", f" · {len(state.info.cases)} sizes", ""):
        text = f"{mode}{state.info.workload}{sizes} · {state.info.agent} · {device}"
        if len(text) <= width:
            return text
    return clip(f"{mode}{state.info.workload} · {device}", width)


def progress_line(state: RunState, now: float, width: int) -> str:
    """State, step of how many, elapsed, time left, best…; what there is no room for is left out."""
    total = state.info.steps if state.info else None
    spent = elapsed(state, now)
    parts = [
        STATE_MARKS[state.lifecycle],
        f"step {state.step}/{total}" if total else f"step {state.step}",
        f"elapsed {duration(spent)}",
    ]
    if not state.lifecycle.final and state.eta_s is not None:
        parts.append(f"ETA {duration(max(0.0, state.eta_s - (spent - state.active_s)))}")
    rows = leaderboard(state)
    if rows:
        best = rows[0]
        parts.append(f"best {ratio(best.speedup)}, {time_text(best.score_ms)}")
        if best.speedup_ci:
            parts.append(f"95% {interval(best.speedup_ci)}")
    elif state.best_speedup is not None:
        parts.append(f"best {ratio(state.best_speedup)}")
    if state.lifecycle.final and state.reason:
        parts.append(state.reason)
    failures = sum(n for status, n in state.counts.items() if status != "ok")
    if failures:
        parts.append(f"{failures} failed")
    protocol = state.info.protocol if state.info else {}
    if protocol.get("cache"):
        parts.append(f"{protocol['cache']} cache")
    if state.steps_per_s and state.steps_per_s >= 10:
        parts.append(f"{state.steps_per_s:.0f} steps/s")
    text = parts[0]
    for part in parts[1:]:
        if len(text) + 3 + len(part) <= width:
            text += f" · {part}"
    return clip(text, width)


def leaderboard(state: RunState) -> list[Row]:
    """The board's rows, best first."""
    tied, base = state.tied, state.baseline
    return [
        Row(
            key=entry.candidate,
            config=entry.config,
            status=entry.status,
            score_ms=entry.score_ms,
            speedup=entry.speedup,
            speedup_ci=entry.speedup_ci,
            vendor_ratio=entry.vendor_ratio,
            floor_ratio=entry.floor_ratio,
            registers=entry.registers,
            occupancy=entry.occupancy,
            tied=entry.candidate in tied and len(tied) > 1,
            paired=entry.paired,
            same_as=entry.same_as,
            baseline=base is not None and base.candidate == entry.candidate,
        )
        for entry in state.leaderboard
    ]


def reward_series(state: RunState) -> list[Series]:
    """Reward of each step, and its running mean once there are many."""
    x, y = state.steps.step, state.steps.reward
    series = [Series.of(x, y, Shape.DOTS, "step", "each")]
    points = series[0]
    if len(points.x) >= 2 * MEAN_WINDOW:
        total = np.cumsum(np.concatenate([[0.0], points.y]))
        mean = (total[MEAN_WINDOW:] - total[:-MEAN_WINDOW]) / MEAN_WINDOW
        series.append(Series(points.x[MEAN_WINDOW - 1 :], mean, Shape.LINE, f"mean of {MEAN_WINDOW}", "mean"))
    return series


def speedup_series(state: RunState) -> list[Series]:
    """Speedup of each step over the baseline's 1, failures as a rug, the best so far as stairs."""
    x, y = state.steps.step, state.steps.speedup
    if not len(x):
        return []
    failed = x[~np.isfinite(y)]
    return [
        Series.of([x[0]], [1.0], Shape.DASHES, "baseline", "level"),
        Series.of(failed, np.zeros_like(failed), Shape.RUG, "failed", "failed"),
        Series.of(x, y, Shape.DOTS, "step", "each"),
        Series.of(x, state.steps.best, Shape.STAIRS, "best", "best"),
    ]


def log_lines(state: RunState) -> list[Line]:
    """The run's messages, timed from its start."""
    start = state.started or state.t
    return [Line(m.t - start, m.level, m.text) for m in state.messages]


def gauge_rows(state: RunState, replay: bool, now: float) -> tuple[str, list[Gauge], str]:
    """(title, rows, note) of the gauge pane; where there is no GPU, or the sample is old, it says so."""
    device = state.info.device if state.info else None
    if device is None:
        return "GPU", [], "opening the device"
    if device.emulated:
        return "No GPU here", [], "kernels are emulated on the CPU"
    if device.recorded:
        rows = gauges(state.sample) if state.sample is not None else stored_values(device)
        return "No GPU here", rows, "stored with the recording"
    if state.sample is None:
        return f"GPU {device.spec}", [], "no sample yet"
    age = now - state.sample.get("t", now)
    if replay:
        note = "as sampled during the run"
    elif state.lifecycle.final:
        note = "last sample of the run"
    else:
        note = f"stale: sampled {duration(age)} ago" if age > STALE_S else ""
    return f"GPU {device.spec}", gauges(state.sample), note

"""RunState to what panes show. Pure functions, so that screens hold no knowledge of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.model import Status
from ..sessions.entries import Entry
from ..sessions.events import Lifecycle
from ..sessions.llm_state import Attempt, LlmState
from ..sessions.state import MESSAGES, RunState
from .board import Row
from .braille import bar
from .format import clip, config_text, duration, interval, percent, ratio, short_config, speedup, time_text
from .verdicts import kept_words, status_words
from .widgets.gauges import Gauge, facts, gauges, neighbours, stored_values
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
BAR = 12  # characters of the progress bar


def device_text(state: RunState) -> str:
    """The device, with "recorded on …" or "emulated" where that is the truth."""
    device = state.info.device if state.info else None
    if device is None:
        return "opening the device"
    return f"emulated: {device.name}" if device.emulated else device.label


def elapsed(state: RunState, now: float) -> float:
    """Seconds the run has been running, up to `now` if it still is."""
    going = state.lifecycle in (Lifecycle.RUNNING, Lifecycle.STOPPING)
    return state.active_s + (max(0.0, now - state.t) if going else 0.0)


def title_line(state: RunState, mode: str, width: int) -> str:
    """Workload, sizes, agent, device, space. The device is never cut off: space and sizes give way."""
    if state.info is None:
        return clip(f"{mode}waiting for the run to start", width)
    cases = ",".join(c.name for c in state.info.cases)
    device = device_text(state)
    total = state.info.data.get("total_configs")
    space = f" · {state.info.space} space" if state.info.space else ""
    space += f", {total} configurations" if space and total else ""
    size = f" · size {cases}" if cases else ""  # a training has none of its own
    whole = f"{mode}{state.info.workload}{size} · {state.info.agent} · {device}{space}"
    if len(whole) <= width:
        return whole
    for sizes in (size, f" · {len(state.info.cases)} sizes", ""):
        text = f"{mode}{state.info.workload}{sizes} · {state.info.agent} · {device}"
        if len(text) <= width:
            return text
    return clip(f"{mode}{state.info.workload} · {device}", width)


def progress_line(state: RunState, now: float, width: int) -> str:
    """State, step of how many, elapsed, time left, failures…; what there is no room for is left out."""
    total = state.info.steps if state.info else None
    spent = elapsed(state, now)
    step = f"step {state.step}/{total}" if total else f"step {state.step}"
    if not state.lifecycle.final and state.progress is not None:
        step += f" {bar(state.progress, BAR)}"
    parts = [STATE_MARKS[state.lifecycle], step, f"elapsed {duration(spent)}"]
    if not state.lifecycle.final and state.eta_s is not None:
        parts.append(f"ETA {duration(max(0.0, state.eta_s - (spent - state.active_s)))}")
    if state.lifecycle.final and state.reason:
        parts.append(state.reason)
    failures = sum(n for status, n in state.counts.items() if status != "ok")
    if failures:
        parts.append(f"{failures} failed")
    if state.steps_per_s:
        rate = state.steps_per_s
        parts.append(f"{rate:.0f} steps/s" if rate >= 10 else f"{rate:.1f} steps/s")
    return _joined(parts, width)


def verdict_line(state: RunState, width: int) -> str:
    """The best so far: speedup and interval, time, against the vendor, share of the floor, ties; what there
    is no room for is left out."""
    best = state.best
    if state.llm is not None and state.info and state.info.device and state.info.device.emulated:
        return emulated_line(state.llm, width)
    if best is None:
        known = state.best_speedup  # an agent that logs no evaluations, or none is ok yet
        return "nothing measured yet" if known is None else f"best {speedup(known)}"
    result = state.result or {}
    verdict = (result.get("best") or {}).get("verdict")
    text = f"best {speedup(best.speedup)} {interval(best.speedup_ci)}".rstrip()
    cache = (state.info.protocol.get("cache") or "") if state.info else ""
    parts = [f"{text} {verdict}" if verdict else text, f"{time_text(best.score_ms)} {cache}".rstrip()]
    floor = [] if best.floor_ratio is None else [f"floor {percent(best.floor_ratio)}"]
    if best.vendor_ratio is not None:
        named = f"{ratio(best.vendor_ratio)} vs {vendor_name(state)}"
        fits = len(" · ".join([*parts, named, *floor])) <= width
        parts.append(named if fits else f"{ratio(best.vendor_ratio)} vs vendor")
    parts += floor
    if len(state.tied) > 1:
        parts.append(f"{len(state.tied)} tied")
    if state.baseline is not None:
        parts.append(f"baseline {time_text(state.baseline.score_ms)}")
    return _joined(parts, width)


def emulated_line(llm: LlmState, width: int) -> str:
    """The verdict of a device without times: how many attempts are correct, and the latest that was kept."""
    ok = sum(attempt.status == "ok" for attempt in llm.attempts)
    parts = ["emulated: correctness only, no times", f"{ok} of {len(llm.attempts)} correct"]
    kept = [attempt for attempt in llm.attempts if attempt.kept]
    if kept:
        parts.append(f"kept: attempt {kept[-1].number}, {kept[-1].idea or kept[-1].variant}")
    return clip(" · ".join(parts), width)


def _joined(parts: list[str], width: int) -> str:
    """The first part, and of the others those for which there is room."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + 3 + len(part) <= width:
            text += f" · {part}"
    return clip(text, width)


def vendor_name(state: RunState) -> str:
    """The vendor's library, as the run names it."""
    names = {str(v.get("name") or "the vendor") for v in state.info.vendor.values()} if state.info else set()
    return names.pop() if len(names) == 1 else "the vendor"


def leaderboard(state: RunState) -> list[Row]:
    """The board's rows, best first; those tied with the best before the others."""
    tied = state.tied
    ordered = sorted(state.leaderboard, key=lambda entry: entry.candidate not in tied)
    return [_row(state, entry, tied=entry.candidate in tied and len(tied) > 1) for entry in ordered]


def failed_rows(state: RunState) -> list[Row]:
    """Rows of what failed, the latest first."""
    return [_row(state, entry) for entry in reversed(state.failed)]


def _row(state: RunState, entry: Entry, *, tied: bool = False) -> Row:
    return Row(
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
        tied=tied,
        paired=entry.paired,
        same_as=entry.same_as,
        baseline=state.baseline is not None and state.baseline.candidate == entry.candidate,
        message="" if entry.status == Status.OK else entry.message,
    )


def log_lines(state: RunState) -> list[Line]:
    """What the run is held against, its messages, each new best, its result; timed from its start."""
    start = state.started or state.t
    lines = [Line(m.t - start, m.level, m.text) for m in state.messages]
    if state.llm is not None:
        judged = [attempt for attempt in state.llm.attempts[-MESSAGES:] if attempt.entry is not None]
        lines += [Line(attempt.t - start, "info", _outcome(attempt)) for attempt in judged]
    for record in state.records:
        words = f"{time_text(record.score_ms)}, {speedup(record.speedup)}"
        words += f": {short_config(record.config, 74)}" if record.config else ""
        step = "" if record.step is None else f"step {record.step}: "
        lines.append(Line(record.t - start, "info", f"{step}best {words}"))
    lines.sort(key=lambda line: line.t)  # stable: what came at the same time stays in order
    return [*_yardsticks(state), *lines, *_results(state, start)]


def _outcome(attempt: Attempt) -> str:
    """What became of an attempt, and why."""
    entry = attempt.entry
    failed = "" if entry is None or entry.status == "ok" else f"{status_words(entry.status)}: {entry.message}"
    parts = [failed, "" if failed else kept_words(attempt), attempt.idea]
    return f"attempt {attempt.number}: " + ", ".join(" ".join(part.split()) for part in parts if part)


def _yardsticks(state: RunState) -> list[Line]:
    """The baseline, and for each size the vendor's time and the physical floor."""
    base, info = state.baseline, state.info
    if base is None or info is None:
        return []
    if base.score_ms is None:
        return []
    lines = [f"baseline {time_text(base.score_ms)}"]
    lines[0] += f": {config_text(base.config)}" if base.config else ""
    for case in info.cases:
        vendor, floor = info.vendor.get(case.name), info.floors.get(case.name)
        mine = base.medians_ms.get(case.name)
        known = [
            f"{name} {time_text(ms)}"
            for name, ms in (
                ("baseline", mine if len(info.cases) > 1 else None),
                (vendor_name(state), vendor["median_ms"] if vendor else None),
                ("physical floor", floor),
            )
            if ms
        ]
        if known:
            lines.append(f"size {case.name}: {', '.join(known)}")
    return [Line(0.0, "info", text) for text in lines]


def _results(state: RunState, start: float) -> list[Line]:
    """The result's line of each size."""
    lines = []
    for case in (state.result or {}).get("cases") or ():
        low, high = case.get("speedup_ci") or (None, None)
        parts = [time_text(case.get("median_ms")), speedup(case.get("speedup"))]
        if low is not None and high is not None:
            parts[-1] += f" {interval((low, high))}"
        if case.get("vendor_ratio"):
            parts.append(f"{ratio(case['vendor_ratio'])} vs {vendor_name(state)}")
        if case.get("floor_ratio"):
            parts.append(f"floor {percent(case['floor_ratio'])}")
        if not case.get("median_ms"):  # emulated: right or wrong
            parts = [str(case.get("status") or "not checked")]
        lines.append(Line(state.t - start, "info", f"result, size {case.get('name')}: {', '.join(parts)}"))
    return lines


@dataclass(frozen=True)
class GaugeView:
    """What the gauge pane shows. `stored`: the values are a recording's."""

    title: str
    rows: list[Gauge] = field(default_factory=list)
    note: str = ""
    stored: bool = False


def gauge_view(state: RunState, replay: bool, now: float) -> GaugeView:
    """Gauges and facts of the GPU; where there is no GPU, or the sample is old, it says so."""
    device = state.info.device if state.info else None
    if device is None:
        return GaugeView("GPU", note="opening the device")
    if device.emulated:
        return GaugeView("No GPU here", note="kernels are emulated on the CPU")
    if device.recorded:
        if state.sample is None:
            return GaugeView("No GPU here", stored_values(device), "stored with the recording", True)
        rows = [*gauges(state.sample), *facts(device)]
        return GaugeView("No GPU here: NVML as recorded", rows, "stored with the recording", True)
    if state.sample is None:
        return GaugeView(f"GPU {device.spec}", facts(device), "no sample yet")
    age = now - state.sample.get("t", now)
    if replay:
        note = "sampled in the run"
    elif state.lifecycle.final:
        note = "last sample of the run"
    else:
        note = f"stale: sampled {duration(age)} ago" if age > STALE_S else ""
    rows = [*gauges(state.sample), *neighbours(state.samples), *facts(device)]
    return GaugeView(f"GPU {device.spec}", rows, note)

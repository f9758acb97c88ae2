"""The report's sections about the run itself: what it was, its result, its plots, its knobs, its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from . import html_elements as html
from .effects import Effect
from .entries import Entry
from .events import Kind
from .html_elements import Html, section, tag
from .html_plots import Layer, plot
from .progress import best_band, chance
from .state import RunState
from .store import SessionStore
from .words import NONE, clipped, config_text, interval_text, percent_text, ratio_text, time_text

MESSAGES, FAILURES = 200, 8  # shown; failures of each status
WORDS = 1000  # characters of a message
KNOBS, VALUES = 40, 24  # shown; of each knob
CASES = 200
FAR = 2.0  # times all else in a plot, beyond which the physical floor is only named
CHANCE = {"random": "random search, expected", "shuffled": "the same in any order, expected"}


def origin_words(state: RunState, document: Mapping[str, Any]) -> list[str]:
    """What the numbers are not: recorded, emulated, judged by a generated reference, provisional."""
    device = document["device"] or {}
    said = []
    if device.get("recorded"):
        said.append(f"Recorded: nothing was measured for this session; {device.get('label')}.")
    if device.get("emulated"):
        said.append("Emulated on the CPU: results are right or wrong; there are no times and no ranking.")
    reference = str((document.get("origins") or {}).get("reference") or "")
    if reference.startswith("generated"):
        said.append(f"Judged by a generated reference ({reference}).")
    if document["provisional"] and document["best"] and not device.get("emulated"):
        said.append("Provisional: from the search alone, the finalists were not re-measured in pairs.")
    if not state.lifecycle.final:
        said.append(f"Not ended: the run was {state.lifecycle} when this was written.")
    return said


def heading(store: SessionStore, state: RunState, document: Mapping[str, Any]) -> Html:
    """Title, what is to be known before any number, command, protocol."""
    header, device, protocol = store.header(), document["device"] or {}, document["protocol"] or {}
    began, command = state.started or header.get("created"), header.get("command")
    ended = str(state.lifecycle) + (f": {state.reason}" if state.reason else "")
    counts = ", ".join(
        f"{number:,} {status.replace('_', ' ')}" for status, number in document["counts"].items()
    )
    sizes = ", ".join(case.name for case in state.info.cases) if state.info else None
    info = state.info
    limit = f", {info.time_limit_s:g} s" if info and info.time_limit_s else ""
    budget = (
        f"{info.steps:,} steps{limit}" if info and info.steps and info.steps < 10**6 else limit.lstrip(", ")
    )
    versions = (info.data.get("versions") or {}) if info else {}
    notes = [str(note) for note in document["notes"]]
    return html.render(
        [
            tag(
                "header",
                tag("p", "warpdeck session", class_="over"),
                tag("h1", document["workload"] or store.id),
                tag("p", device.get("label") or "no device was opened", class_="device"),
            ),
            [tag("p", words, class_="origin") for words in origin_words(state, document)],
            html.facts(
                [
                    ("session", store.id),
                    ("state", ended),
                    ("started", _date(began)),
                    ("ran", f"{state.active_s:,.1f} s"),
                    ("agent", document["agent"]),
                    ("seed", document["seed"]),
                    ("space", document["space"]),
                    ("sizes", sizes),
                    ("budget", budget),
                    ("evaluations", counts),
                    ("continues", document["from"]),
                ]
            ),
            [tag("h3", "Command"), tag("pre", tag("code", clipped(command, 2000)))] if command else None,
            section(
                "Protocol",
                "protocol",
                html.facts(
                    [
                        ("cache", document["cache"]),
                        ("clock", document["clock"]),
                        ("warm-ups", protocol.get("warmup")),
                        ("samples", f"up to {protocol['samples']}" if protocol.get("samples") else None),
                        ("comparison", document.get("comparison")),
                        ("device", device.get("spec")),
                        ("driver", device.get("driver")),
                        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items())),
                    ]
                ),
                tag("ul", [tag("li", clipped(note, WORDS)) for note in notes[:50]]) if notes else None,
            ),
        ]
    )


def _date(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return NONE
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def result(state: RunState, document: Mapping[str, Any]) -> Html:
    """The best configuration with its interval, in large letters."""
    best, baseline = document["best"], document["baseline"] or {}
    if not best:
        return section("Result", "result", tag("p", "Nothing was measured that worked."))
    if (document["device"] or {}).get("emulated"):
        words = f"{best.get('variant')} {config_text(best.get('config') or {})}"
        return section("Result", "result", tag("p", "correct: ", tag("code", words)))
    interval = interval_text(best.get("speedup_ci"))
    big = [
        tag("div", tag("b", ratio_text(best.get("speedup"))), tag("span", "speedup over the baseline")),
        tag("div", tag("b", interval), tag("span", "95% interval")) if interval != NONE else None,
        _share(
            f"{vendor_name(state)}/best", document.get("vendor_ratio"), "1.0: as fast as the vendor's library"
        ),
        _share("floor/best", document.get("floor_ratio"), "1.0: as fast as physics allows"),
    ]
    tied = [config for config in document["tied"] or () if config != best.get("config")]
    return section(
        "Result",
        "result",
        tag("div", big, class_="figures"),
        html.facts(
            [
                ("best", tag("code", f"{best.get('variant')} {config_text(best.get('config') or {})}")),
                ("time", time_text(best.get("score_ms"))),
                ("baseline", _timed_config(baseline)),
                ("verdict", best.get("verdict")),
                ("ties", f"{len(tied)} more can't be told from the best" if tied else None),
            ]
        ),
    )


def vendor_name(state: RunState) -> str:
    """The vendor's library, as the run names it."""
    names = {str(v.get("name") or "vendor") for v in state.info.vendor.values()} if state.info else set()
    return names.pop() if len(names) == 1 else "vendor"


def _share(name: str, value: Any, words: str) -> Html | None:
    return tag("div", tag("b", ratio_text(value)), tag("span", name, title=words)) if value else None


def _timed_config(entry: Mapping[str, Any]) -> str:
    if not entry:
        return NONE
    return f"{time_text(entry.get('score_ms'))}  {config_text(entry.get('config') or {})}"


def cases(state: RunState, document: Mapping[str, Any]) -> Html:
    """A row a size, with the vendor and the floor."""
    rows = [
        (
            case.get("name"),
            time_text(case.get("median_ms")),
            time_text(case.get("baseline_ms")),
            ratio_text(case.get("speedup")),
            interval_text(case.get("speedup_ci")),
            time_text(case.get("vendor_ms")),
            ratio_text(case.get("vendor_ratio")),
            time_text(case.get("floor_ms")),
            ratio_text(case.get("floor_ratio")),
        )
        for case in (document["cases"] or ())[:CASES]
        if isinstance(case, Mapping) and case.get("median_ms")
    ]
    if not rows:
        return Html()
    vendor = vendor_name(state)
    head = (
        "case",
        "best",
        "baseline",
        "speedup",
        "95% interval",
        vendor,
        f"{vendor}/best",
        "floor",
        "floor/best",
    )
    note = "vendor/best 1.0: as fast as the vendor's library; floor/best 1.0: as fast as physics allows."
    return section("Sizes", "cases", html.table(head, rows, right=range(1, 9)), note=note)


def plots(state: RunState) -> Html:
    """Reward and speedup of every step."""
    steps = state.steps
    if not len(steps):
        return Html()
    x = steps.step
    failed = x[~np.isfinite(steps.speedup)]
    base = state.baseline
    vendor = 1 / base.vendor_ratio if base and base.vendor_ratio else None
    floor = 1 / base.floor_ratio if base and base.floor_ratio else None
    known = np.r_[1.0, steps.speedup[np.isfinite(steps.speedup)], vendor or 1.0]
    near = floor is not None and floor <= FAR * float(known.max())
    (low_x, low), high = best_band(state)
    by_chance = chance(state)
    speedup = plot(
        "Speedup",
        [
            Layer.of("band", "95% of the best", "best", low_x, low, high),
            Layer.of("dots", "each step", "each", x, steps.speedup),
            _level("baseline", "base", 1.0),
            _level(f"{vendor_name(state)} {ratio_text(vendor)}", "vendor", vendor),
            _level(f"physical floor {ratio_text(floor)}", "floor", floor if near else None),
            Layer.of("rug", "failed", "failed", failed, np.zeros_like(failed)),
            *([Layer.of("curve", CHANCE[by_chance[0]], "chance", *by_chance[1:])] if by_chance else []),
            Layer.of("line", "best so far", "best", x, steps.best),
        ],
        y_name="speedup over the baseline",
    )
    varies = len(np.unique(steps.reward[np.isfinite(steps.reward)])) > 1
    reward = plot("Reward", [Layer.of("dots", "each step", "each", x, steps.reward), *_mean(x, steps.reward)])
    said = f"{len(steps):,} steps." + (f" Physical floor: {ratio_text(floor)}." if floor else "")
    if by_chance:
        said += " Dashed: the best that a random search would be expected to have by each step, exactly."
    return section("Progress", "progress", speedup, reward if varies else None, note=said)


def _level(name: str, style: str, value: float | None) -> Layer:
    return Layer.of("level", name, style, [] if value is None else [0], [] if value is None else [value])


def _mean(x: np.ndarray, y: np.ndarray, window: int = 50) -> list[Layer]:
    known = np.isfinite(y)
    x, y = x[known], y[known].astype(np.float64)
    if len(y) < 2 * window:
        return []
    total = np.cumsum(np.r_[0.0, y])
    mean = (total[window:] - total[:-window]) / window
    return [Layer.of("line", f"mean of {window}", "best", x[window - 1 :], mean)]


def board(state: RunState, document: Mapping[str, Any]) -> Html:
    """The leaderboard; what can't be told from the best is marked."""
    if not state.leaderboard or (document["device"] or {}).get("emulated"):
        return Html()
    tied = state.tied if len(state.tied) > 1 else frozenset()
    ordered = sorted(state.leaderboard, key=lambda entry: entry.candidate not in tied)
    rows = [_row(number, entry, entry.candidate in tied) for number, entry in enumerate(ordered, 1)]
    head = ("", "tie", "time", "speedup", "95% interval", "vendor", "floor", "registers", "occupancy", "")
    classes = {i: "tied" for i, entry in enumerate(ordered) if entry.candidate in tied}
    note = "= marks what can't be told from the best." if tied else ""
    content = html.table((*head[:-1], "configuration"), rows, right=(0, 2, 3, 4, 5, 6, 7, 8), classes=classes)
    return section("Leaderboard", "leaderboard", content, note=note)


def _row(number: int, entry: Entry, tied: bool) -> Sequence[Any]:
    interval = interval_text(entry.speedup_ci) + (
        "" if entry.paired or not entry.speedup_ci else " (unpaired)"
    )
    precision = f" ({entry.precision})" if entry.precision else ""
    return (
        number,
        "=" if tied else "",
        time_text(entry.score_ms),
        ratio_text(entry.speedup),
        interval,
        ratio_text(entry.vendor_ratio),
        ratio_text(entry.floor_ratio),
        entry.registers if entry.registers is not None else NONE,
        percent_text(entry.occupancy),
        tag("code", f"{entry.variant} {config_text(entry.config)}{precision}"),
    )


def knobs(effects: Sequence[Effect], state: RunState) -> Html:
    """What each knob's values go with."""
    base = state.baseline.score_ms if state.baseline else None
    parts = []
    for effect in effects[:KNOBS]:
        most = max((level.high_ms or 0 for level in effect.levels), default=0)
        if not most:
            continue
        rows = [
            (
                str(level.value),
                f"{level.ok:,} of {level.tried:,}",
                time_text(level.median_ms),
                ratio_text(base / level.median_ms) if base and level.median_ms else NONE,
                time_text(level.best_ms),
                _range(level.low_ms, level.median_ms, level.high_ms, most),
            )
            for level in effect.levels[:VALUES]
        ]
        share = "" if effect.share is None else f": {percent_text(effect.share)} of the variance of log time"
        head = ("value", "ok", "median", "speedup", "best", "quartiles")
        caption = f"{effect.knob}{share}"
        parts.append(html.table(head, rows, right=(0, 1, 2, 3, 4), caption=caption))
    note = "Marginal: what else differed is not accounted for, and a search doesn't try values evenly."
    return section("Knobs", "knobs", tag("div", parts, class_="grid2"), note=note) if parts else Html()


def _range(low: float | None, median: float | None, high: float | None, most: float) -> Html | None:
    if low is None or median is None or high is None:
        return None
    at = [round(100 * value / most, 1) for value in (low, median, high)]
    return tag(
        "svg",
        tag("path", d=f"M{at[0]} 5H{at[2]}", class_="box"),
        tag("path", d=f"M{at[1]} 1V9", class_="median"),
        viewBox="0 0 102 10",
        class_="range",
        role="img",
        aria_label=f"quartiles {time_text(low)} to {time_text(high)}",
    )


def failures(store: SessionStore, state: RunState) -> Html:
    """Of each status that isn't ok: how often, and the commonest messages."""
    if not any(status != "ok" for status in state.counts):
        return Html()
    said: dict[str, Counter[str]] = {}
    for event in store.events(kinds=[Kind.EVALUATION]):
        status = str(event.data.get("status"))
        if status != "ok":
            known = said.setdefault(status, Counter())
            words = clipped(event.data.get("message") or "no message", WORDS)
            if words in known or len(known) < 500:
                known[words] += 1
    rows = [
        (status.replace("_", " "), f"{count:,}", tag("span", words, class_="pre"))
        for status, known in sorted(said.items())
        for words, count in known.most_common(FAILURES)
    ]
    return section("Failures", "failures", html.table(("status", "times", "message"), rows, right=(1,)))


def messages(state: RunState) -> Html:
    """The latest messages, timed from the start."""
    start = state.started or state.t
    shown = state.messages[-MESSAGES:]
    rows = [
        (f"{m.t - start:,.1f} s", m.level, tag("span", clipped(m.text, WORDS), class_="pre")) for m in shown
    ]
    classes = {i: m.level for i, m in enumerate(shown) if m.level in ("warning", "error")}
    if not rows:
        return Html()
    note = f"The last {MESSAGES}." if len(rows) == MESSAGES else ""
    content = html.table(("time", "level", "text"), rows, right=(0,), classes=classes)
    return section("Messages", "messages", content, note=note)

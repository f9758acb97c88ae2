"""`profile`: what Nsight Compute's hardware counters say of one configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import ExitCode, UsageError
from . import names, options
from .output import json_document, line, message, table, warning

if TYPE_CHECKING:
    from ..telemetry.ncu.counters import Counters
    from ..telemetry.ncu.hotspots import Line

_HOT_LINES = 10
_FEW = 40  # counters of Nsight Compute's own are listed up to this number
_REPORT, *_STORED = options.PROFILES


def profile(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|FILE",
            help="A bundled workload's name, a workload's folder, or a report (.ncu-rep, .counters.json.gz).",
            autocompletion=names.workloads,
        ),
    ],
    knob: options.Knobs = None,
    variant: options.Variant = None,
    space: options.KnobSpace = None,
    size: options.Size = None,
    cache: Annotated[
        str, typer.Option("--cache", metavar="cold|hot", help="State of the caches before the launch.")
    ] = "cold",
    metric_set: Annotated[
        str | None,
        typer.Option(
            "--metric-set",
            metavar="S",
            help="seed, cheap, roofline, stalls, memory or full. [default: full]",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="A,B", help="Instead: metrics by our names, or by Nsight Compute's."
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Of several launches, whose. [default: the longest's]"),
    ] = None,
    invocation: Annotated[
        int, typer.Option("--invocation", metavar="N", min=0, help="Launches before the one profiled.")
    ] = 1,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout-s", metavar="S", min=1, max=options.MAX_SECONDS, help="Time limit of Nsight Compute."
        ),
    ] = 120.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Keep the report (.ncu-rep).")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FOLDER", help="Keep the profile there, beside recordings."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Open the Counters screen.")] = False,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Read a configuration's hardware counters with Nsight Compute, or show a report.

    The configuration is checked first. It runs in a process of its own, with the clocks as they are. On a
    recorded device: what was recorded.
    """
    if metric_set is not None and metrics is not None:
        raise UsageError("give either --metric-set or --metrics")
    wanted_metrics = tuple(m.strip() for m in (metrics or "").split(",") if m.strip())
    if metrics is not None and not wanted_metrics:
        raise UsageError(f"--metrics {metrics!r}: name at least one, as in --metrics l2_hit_rate,dram_bw_pct")
    options.screen(show, as_json)
    if output is not None and output.suffix != _REPORT:
        raise UsageError(f"-o {output}: a report's file name ends in {_REPORT}")
    options.writable(output, "-o")
    options.writable_folder(record, "--record")
    if workload.endswith(options.PROFILES) or Path(workload).is_file():
        if any(
            x is not None for x in (knob, variant, space, size, output, record, metric_set, metrics, kernel)
        ):
            raise UsageError(f"{workload} is a report: it takes only --json and --show")
        return _present(_from_file(Path(workload)), as_json=as_json, show=show)
    from ..core.model import CacheMode
    from ..core.profiling import ProfileOptions
    from ..sessions.profiles import profile_one
    from ..telemetry.ncu.metrics import SETS

    wanted = ProfileOptions(
        set=metric_set or "full",
        metrics=wanted_metrics,
        cache=CacheMode(options.choice("--cache", cache, ("cold", "hot"))),
        timeout_s=timeout_s,
        invocation=invocation,
        kernel=kernel,
        keep=output,
    )
    found = profile_one(
        workload,
        device,
        knobs=options.pairs(knob),
        variant=variant,
        space=space,
        size=size,
        options=wanted,
        record=record,
        seed=seed,
        allow_shared=allow_shared,
    )
    told = found.meta.get("device") or {}
    if told.get("recorded") and not device.startswith("recorded:"):
        message(f"no CUDA GPU here; {told.get('label')}")
    there = found.meta.get("set")
    if told.get("recorded") and metric_set not in (None, there):
        known = {*found.metrics, *found.missing}
        if not known.issuperset(SETS[metric_set].quantities):
            message(f"recorded was the metric set {there}; {metric_set} takes a CUDA GPU")
    given = {"--kernel": kernel is not None, "--invocation": invocation != 1, "--cache": cache != "cold"}
    if told.get("recorded") and any(given.values()):
        names = ", ".join(name for name, there in given.items() if there)
        warning(f"a recorded profile is shown as it was recorded: without {names}")
    return _present([found], as_json=as_json, show=show)


def _from_file(path: Path) -> list[Counters]:
    from ..core.devices.stored_counters import load
    from ..core.profiling import read_report
    from ..core.tracing import FORMATS

    if path.name.endswith(tuple(_STORED)):
        return [load(path)]
    if path.suffix == _REPORT:
        return read_report(path)
    hint = f"; a trace is shown by `warpdeck trace {path}`" if path.suffix in FORMATS else ""
    raise UsageError(f"{path}: a profile's file name ends in {' or '.join(options.PROFILES)}{hint}")


def _present(found: list[Counters], *, as_json: bool, show: bool) -> int:
    from ..core.profiling import document

    longest = max(found, key=lambda c: c.value("duration_ns") or 0.0)
    if longest.meta.get("stale"):
        warning("the kernel's source has changed since these counters were recorded")
    if show:
        from .. import tui

        return tui.run_counters(longest)
    if as_json:
        several = {"launches": [document(c) for c in found]} if len(found) > 1 else {}
        json_document({**document(longest), **several})
        return ExitCode.OK
    for number, counters in enumerate(found):
        if number:
            line()
        _text(counters)
    return ExitCode.OK


def _text(counters: Counters) -> None:
    from ..telemetry.ncu.diagnosis import diagnose
    from ..telemetry.ncu.hotspots import by_line
    from ..telemetry.ncu.metrics import QUANTITIES, label
    from ..telemetry.ncu.roofline import speed_of_light

    _head(counters)
    bars = [bar for bar in speed_of_light(counters) if bar.share is not None]
    if bars:
        line()
        for bar in bars:
            line(f"{bar.label:<22} {'#' * round(40 * (bar.share or 0)):<40} {bar.share:.0%}")
    ours = [n for n in QUANTITIES if n in counters.metrics]
    ours = [n for n in ours if counters.metrics[n].value or not n.startswith("stall_")]
    theirs = [n for n in counters.metrics if n not in QUANTITIES]
    line()
    table(
        ["metric", "value", "unit", "0 to 1"],
        [
            (label(n), f"{m.value:,.6g}", m.unit, None if m.norm is None else f"{m.norm:.3f}")
            for n in (*ours, *(theirs if len(theirs) <= _FEW else ()))
            for m in (counters.metrics[n],)
        ],
        right=(1, 3),
    )
    if len(theirs) > _FEW:
        line(f"and {len(theirs):,} of Nsight Compute's own, with --json")
    if counters.missing:
        line()
        for name, why in counters.missing.items():
            line(f"missing: {label(name)}: {why}")
    hot = [x for x in by_line(counters) if x.samples][:_HOT_LINES]
    if hot:
        line()
        table(
            ["samples", "share", "where", "waits for", "source"],
            [(x.samples, f"{x.share:.0%}", x.place, _reason(x), x.source.strip()) for x in hot],
            right=(0, 1),
        )
    told = diagnose(counters)
    if told:
        line()
        for finding in told:
            line(f"- {finding.text}")


def _head(counters: Counters) -> None:
    meta: dict[str, Any] = dict(counters.meta)
    config = " ".join(f"{k}={v}" for k, v in (meta.get("config") or {}).items())
    parts = [str(meta[k]) for k in ("workload", "variant") if meta.get(k)]
    case = f"size {meta['case']}" if meta.get("case") else ""
    line(", ".join(p for p in (f"kernel {counters.kernel}", " ".join(parts), config, case) if p))
    where = (meta.get("device") or {}).get("label") or (meta.get("device") or {}).get("name")
    forms = {"set": "metric set {}", "cache": "{} cache", "passes": "{} passes", "tool": "Nsight Compute {}"}
    how = [form.format(meta[key]) for key, form in forms.items() if meta.get(key)]
    line(", ".join(str(p) for p in (where, *how) if p))


def _reason(hot: Line) -> str:
    top = hot.top(1)
    return f"{top[0][0].replace('_', ' ')} {top[0][1]:.0%}" if top else ""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(profile)

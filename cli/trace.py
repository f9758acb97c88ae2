"""`trace`: where each warp's time goes, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import ExitCode, UsageError
from . import names, options
from .output import json_document, line, message, table, warning

if TYPE_CHECKING:
    from ..core.tracing import TraceOptions
    from ..telemetry.trace.timeline import RawTrace, Timeline

LONGEST = 5


def trace(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|FILE",
            help="A workload's name or folder, or the file of a saved trace.",
            autocompletion=names.workloads,
        ),
    ],
    variant: options.Variant = None,
    space: options.KnobSpace = None,
    knob: options.Knobs = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", help="Problem size. [default: 1024]")
    ] = None,
    ctas: Annotated[
        str, typer.Option("--ctas", metavar="N|all", help="How many CTAs record, spread over the grid.")
    ] = "16",
    warps: Annotated[
        str | None, typer.Option("--warps", metavar="LIST", help="Which warps of a CTA, as in 0,2-3.")
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            metavar="N",
            min=0,
            help="Records a warp. [default: as many as a first launch counts]",
        ),
    ] = None,
    launch: Annotated[
        int, typer.Option("--launch", metavar="N", min=0, help="Which launch of a kernel that has several.")
    ] = 0,
    cache: options.Cache = "cold",
    no_overhead: Annotated[
        bool, typer.Option("--no-overhead", help="Don't time the traced kernel against the untraced one.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save it: .pftrace (Perfetto), .json (Chrome), .csv, or .wdtrace (everything).",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FOLDER", help="Keep it beside a device's recordings, for replay."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Open it on the timeline screen.")] = False,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Trace one launch: a timeline of each warp's stages, with its own cost and precision.

    With a FILE, the summary of a trace that was saved, in any of the four formats.
    """
    from ..core import tracing
    from ..core.model import CacheMode

    if output is not None:
        tracing.check_suffix(output)
        options.writable(output, "--output")
    options.writable_folder(record, "--record")
    options.screen(show, as_json)
    if workload.endswith(options.PROFILES):
        raise UsageError(f"{workload} is a profile: see it with `warpdeck profile {workload}`")
    if _is_file(Path(workload)):
        if any(x is not None for x in (variant, space, knob, size, warps, capacity)) or launch:
            raise UsageError(f"{workload} is a saved trace: it takes only -o, --show and --json")
        return _saved(Path(workload), output, show=show, as_json=as_json, record=record)
    chosen = tracing.TraceOptions(
        ctas=None if ctas == "all" else options.whole("--ctas", ctas, "all"),
        capacity=capacity,
        warp_mask=None if warps is None else tracing.parse_warps(warps),
        overhead=not no_overhead,
        cache=CacheMode(options.choice("--cache", cache, ("cold", "hot"))),
        launch=launch,
    )
    raw = _traced(workload, device, variant, space, knob, size, chosen, seed, allow_shared)
    timeline = tracing.decoded(raw)
    files: list[Path] = []
    if output is not None:
        tracing.write(raw, timeline, output)
        files.append(output)
    if record is not None:
        from ..kernels.recorder import short_name

        files.append(tracing.record(raw, record, short_name(tracing.info_of(raw).name)))
    return _present(timeline, files, show=show, as_json=as_json)


def _is_file(path: Path) -> bool:
    """Whether a trace's file is meant, which may have any name or be missing, and not a workload."""
    from ..core import tracing

    return path.is_file() or (path.suffix.lower() in tracing.FORMATS and not path.is_dir())


def _traced(
    workload: str,
    device: str,
    variant: str | None,
    space: str | None,
    knob: list[str] | None,
    size: int | None,
    chosen: TraceOptions,
    seed: int,
    allow_shared: bool,
) -> RawTrace:
    from ..core.tracing import info_of
    from ..sessions.traces import trace_named

    raw = trace_named(
        workload,
        device=device,
        variant=variant,
        space=space,
        knobs=options.pairs(knob),
        size=size,
        options=chosen,
        seed=seed,
        allow_shared=allow_shared,
    )
    info = info_of(raw)
    if info.recorded and not device.startswith("recorded:"):
        message(f"no CUDA GPU here; {info.label}")
    if info.recorded and (given := _beside_the_point(chosen)):
        warning(f"a recorded trace is shown as it was recorded: without {', '.join(given)}")
    return raw


def _beside_the_point(chosen: TraceOptions) -> list[str]:
    """The options that choose what a live launch records, as far as they were given."""
    asked = {
        "--ctas": "ctas",
        "--capacity": "capacity",
        "--warps": "warp_mask",
        "--cache": "cache",
        "--launch": "launch",
    }
    return [name for name, key in asked.items() if getattr(chosen, key) != getattr(type(chosen)(), key)]


def _saved(path: Path, output: Path | None, *, show: bool, as_json: bool, record: Path | None) -> int:
    from ..core import tracing

    if record is not None:
        raise UsageError("--record keeps what a GPU has just run; copy the .wdtrace file instead")
    timeline = tracing.read(path)
    files: list[Path] = []
    if output is not None:
        tracing.convert(path, timeline, output)
        files.append(output)
    return _present(timeline, files, show=show, as_json=as_json)


def _present(timeline: Timeline, files: list[Path], *, show: bool, as_json: bool) -> int:
    from ..core.tracing import document

    found = document(timeline)
    if as_json:
        json_document({**found, "files": [str(file) for file in files]})
    elif not show:
        _report(found)
    for text in _warnings(found):
        warning(text)
    if not as_json:
        for file in files:
            message(f"written: {file}")
    if show:
        from .. import tui

        return tui.run_timeline(timeline)
    return ExitCode.OK


def _warnings(found: Mapping[str, Any]) -> list[str]:
    texts = [*found["warnings"], *(note for note in found["notes"] if note != found["clock"]["reason"])]
    if found["stale"]:
        texts.append("the kernel's source has changed since this trace was recorded")
    if found["dropped"]:
        again = f": `{found['command']}` traces it again at the exact size" if found["command"] else ""
        texts.append(f"{found['dropped']:,} events found no room and were dropped{again}")
    if found["mispaired"]:
        first = found["mispaired_at"][0] if found["mispaired_at"] else None
        where = (
            f"; the first: {first['stage']}, CTA {first['cta']}, warp {first['warp']}: {first['problem']}"
            if first
            else ""
        )
        texts.append(f"{found['mispaired']:,} begins or ends have no partner{where}")
    return texts


def _report(found: Mapping[str, Any]) -> None:
    config = " ".join(f"{k}={v}" for k, v in found["config"].items())
    size = f"size {found['case']}" if found["case"] else ""
    line(" ".join(filter(None, [found["workload"], found["variant"], config, size])) or "a launch")
    line(f"{found['device']['label']}; {_scope(found)}")
    if found["stages"]:
        table(
            ["stage", "count", "total", "self", "median", "95%", "share", "warps", "CTAs"],
            [
                (
                    stage["name"],
                    f"{stage['count']:,}",
                    _time(stage["total_ns"]),
                    _time(stage["self_ns"]),
                    _time(stage["p50_ns"]),
                    _time(stage["p95_ns"]),
                    _share(stage["share"]),
                    _ratio(stage.get("imbalance_warps")),
                    _ratio(stage.get("imbalance_ctas")),
                )
                for stage in found["stages"]
            ],
            right=(1, 2, 3, 4, 5, 6, 7, 8),
        )
        line("self: without nested ranges. share: of self in the warps' lifetimes.")
        line("warps, CTAs: the most loaded one against the mean.")
    if found["longest"]:
        line()
        line("longest waits:")
        table(
            ["stage", "CTA", "warp", "at", "lasts", "payload"],
            [
                (
                    item["stage"],
                    item["cta"],
                    item["warp"],
                    _time(item["start_ns"]),
                    _time(item["duration_ns"]),
                    item.get("payload"),
                )
                for item in found["longest"][:LONGEST]
            ],
            right=(1, 2, 3, 4, 5),
        )
    line()
    clock = found["clock"]
    line(
        f"{found['events']:,} events, {found['dropped']:,} dropped, {found['mispaired']:,} mispaired; "
        f"between SMs ±{found['uncertainty_ns']:.1f} ns"
        + (f" ({clock['method']}: {clock['reason']})" if clock["reason"] else "")
    )
    line(_cost(found["overhead"], found["ctas"]))
    line("see it: add --show, or -o FILE.pftrace for ui.perfetto.dev")


def _scope(found: Mapping[str, Any]) -> str:
    ctas = found["ctas"]
    which = f"{ctas['traced']:,}" + (f" of {ctas['of']:,}" if ctas["of"] else "")
    cache = f", {found['cache']} cache" if found["cache"] else ""
    return f"{which} CTAs, {found['warps']:,} warps, {_time(found['span_ns'])}{cache}"


def _cost(overhead: Mapping[str, Any] | None, ctas: Mapping[str, Any]) -> str:
    if not overhead:
        return "the trace's own cost wasn't measured"
    text = (
        f"tracing costs {_percent(overhead)}: "
        f"{_time(overhead['untraced_ms'] * 1e6)} untraced, {_time(overhead['traced_ms'] * 1e6)} traced"
    )
    if recording := overhead.get("recording"):
        return f"{text};\na CTA that records pays {_percent(recording)}, by a launch in which all did"
    return f"{text}, every CTA recording" if ctas["traced"] == ctas["of"] else text


def _percent(cost: Mapping[str, Any]) -> str:
    lo, hi = ((x - 1) * 100 for x in cost["ci"])
    return f"{(cost['ratio'] - 1) * 100:+.2f}% ({lo:+.2f} to {hi:+.2f})"


def _time(ns: float | None) -> str | None:
    if ns is None:
        return None
    for limit, unit, scale in ((1e3, "ns", 1.0), (1e6, "µs", 1e3), (1e9, "ms", 1e6)):
        if abs(ns) < limit:
            return f"{ns / scale:.{0 if unit == 'ns' else 2}f} {unit}"
    return f"{ns / 1e9:.2f} s"


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _ratio(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f}×"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(trace)

"""`sweep`: every configuration of a space, to a table and CSV, or into a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ExitCode
from ..sessions.budgets import ALL_STEPS
from . import names, options
from .output import json_document, line, message, stderr_is_terminal, warning
from .watching import Signals, watch

if TYPE_CHECKING:
    from ..sessions.spec import RunSpec


def sweep(
    workloads: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD",
            help="Bundled workloads' names, or folders.",
            autocompletion=names.workloads,
        ),
    ],
    device: options.Device = "auto",
    space: Annotated[str, typer.Option("--space", metavar="NAME", help="Search space.")] = "classic",
    size: options.Sizes = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write a row for every configuration and size."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="FILE", help="Measure in rounds, into a recording's file, or a folder."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The recording's name. [default: the GPU's]")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="With --record: passes over the space.")
    ] = 8,
    per_round: Annotated[
        int, typer.Option("--per-round", metavar="N", min=1, help="With --record: samples in each round.")
    ] = 4,
    counters: Annotated[
        bool,
        typer.Option(
            "--counters",
            help="Read hardware counters too, into phase1_result.csv or --csv; with --record: add them to the"
            " recordings that are there.",
        ),
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout-s",
            metavar="S",
            min=1,
            max=options.MAX_SECONDS,
            help="With --counters: of one start of ncu.",
        ),
    ] = 120.0,
    cache: options.Cache = "cold",
    samples: options.Samples = 100,
    warmup: options.Warmup = 10,
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Measure every configuration of a space.

    Plain, it is a run of the agent `sweep` for each workload. With --record it measures by the rules for
    recordings (cold and hot, randomised rounds) on a live device.
    """
    if record is not None and counters:
        return _record_counters(
            workloads,
            record,
            device=device,
            space=space,
            sizes=size or (),
            name=name,
            cache=options.choice("--cache", cache, ("cold", "hot")),
            timeout_s=timeout_s,
            seed=seed,
            allow_shared=allow_shared,
            as_json=as_json,
        )
    if record is not None:
        return _record(
            workloads,
            record,
            device=device,
            space=space,
            size=size,
            name=name,
            seed=seed,
            rounds=rounds,
            per_round=per_round,
            allow_shared=allow_shared,
            as_json=as_json,
        )
    from ..sessions import process

    process.begin(device)
    from ..sessions import phase1
    from ..sessions.launch import check, launch_runs
    from ..sessions.listing import remove_unused
    from ..sessions.spec import RunSpec

    options.choice("--cache", cache, ("cold", "hot"))
    if counters:
        csv = csv or Path(phase1.FILE)
    options.writable(csv, "--csv")
    specs = [
        RunSpec(
            workload=workload,
            agent="sweep",
            device=device,
            space=space,
            sizes=tuple(size or ()),
            steps=ALL_STEPS,
            cache=cache,
            samples=samples,
            warmup=warmup,
            seed=seed,
            allow_shared=allow_shared,
        )
        for workload in workloads
    ]
    for spec in specs:  # the last one's mistake, too, is told before anything is measured
        check(spec)
    sessions = []
    with Signals() as signals:
        for launched in launch_runs(specs, starting=signals.hold):
            code = watch(launched, signals, silent=as_json)
            if code != ExitCode.OK:
                remove_unused(launched.following)
                return code
            sessions.append(launched.folder)
            if not as_json:
                line()
    if counters:
        assert csv is not None
        return _phase1(list(zip(specs, sessions, strict=True)), csv, timeout_s, as_json)
    return _table(sessions, csv, as_json)


def _phase1(runs: list[tuple[RunSpec, Path]], csv: Path, timeout_s: float, as_json: bool) -> int:
    """The phase 1 table of the sessions: to a file, and as JSON."""
    from ..sessions import phase1
    from ..sessions.report import write_text

    with _progress() as draw:
        rows = phase1.rows(runs, timeout_s=timeout_s, progress=draw)
    write_text(csv, phase1.csv_text(rows))
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows if not row["ok"]))
    lacking = sum(not row["ok"] for row in rows)
    if reasons:
        more = f", and {len(reasons) - 1} other reason(s)" if len(reasons) > 1 else ""
        warning(f"{lacking} of {len(rows)} rows have no counters: {reasons[0]}{more}")
    if as_json:
        sessions = [folder.name for _, folder in runs]
        json_document({"sessions": sessions, "without_counters": lacking, "rows": rows, "csv": str(csv)})
    else:
        line(f"wrote {csv}: {len(rows)} rows, {len(rows) - lacking} with counters")
    return ExitCode.OK


def _table(sessions: list[Path], csv: Path | None, as_json: bool) -> int:
    """The phase 0 table of the sessions: to a file, and as JSON."""
    from ..sessions import phase0
    from ..sessions.report import write_text
    from ..sessions.store import SessionStore

    rows, failures = [], 0
    for folder in sessions:
        with SessionStore.open(folder) as store:
            more, failed = phase0.rows(store)
        rows += more
        failures += failed
    if csv is not None:
        write_text(csv, phase0.csv_text(rows))
        if not as_json:
            line(f"wrote {csv}: {len(rows)} rows, {failures} failed configuration(s) left out")
    if as_json:
        document = {"sessions": [folder.name for folder in sessions], "failures": failures, "rows": rows}
        json_document({**document, "csv": None if csv is None else str(csv)})
    return ExitCode.OK


def _record(workloads: list[str], target: Path, *, size: list[int] | None, as_json: bool, **settings) -> int:
    from ..kernels.recorder import record_spaces

    files = []
    with _progress() as draw:
        for path in record_spaces(workloads, target, sizes=size or (), progress=draw, **settings):
            files.append(str(path))
            if not as_json:
                line(str(path))
    if as_json:
        json_document({"recordings": files})
    return ExitCode.OK


def _record_counters(workloads: list[str], target: Path, *, cache: str, as_json: bool, **settings) -> int:
    from ..core.model import CacheMode
    from ..kernels.recorder import record_counters

    done = []
    with _progress() as draw:
        for added in record_counters(workloads, target, cache=CacheMode(cache), progress=draw, **settings):
            done.append({"path": str(added.path), "configs": added.configs, "failed": dict(added.failed)})
            if not as_json:
                line(f"{added.path}: counters of {added.configs} configuration(s)")
            for key, reason in added.failed.items():
                warning(f"{added.path.name}: {key}: {reason}")
    if as_json:
        json_document({"recordings": done})
    return ExitCode.OK


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal's stderr; elsewhere a line where what is done changes."""
    if not stderr_is_terminal():
        said: list[str] = []

        def tell(what: str, done: int, total: int) -> None:
            if said[-1:] != [what]:
                said.append(what)
                message(what)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(sweep)

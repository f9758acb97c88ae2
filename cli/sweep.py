"""`sweep`: every configuration of a space, to a table and CSV, or into a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ExitCode
from . import options
from .output import json_document, line, message, stderr_is_terminal
from .tune import SWEEP_STEPS, watch


def sweep(
    workloads: Annotated[
        list[str], typer.Argument(metavar="WORKLOAD...", help="Bundled workloads' names, or folders.")
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
    from ..sessions.launch import check, launch_runs
    from ..sessions.listing import remove_unused
    from ..sessions.spec import RunSpec

    options.choice("--cache", cache, ("cold", "hot"))
    options.writable(csv, "--csv")
    specs = [
        RunSpec(
            workload=workload,
            agent="sweep",
            device=device,
            space=space,
            sizes=tuple(size or ()),
            steps=SWEEP_STEPS,
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
    for launched in launch_runs(specs):
        code = watch(launched, silent=as_json)
        if code != ExitCode.OK:
            remove_unused(launched.following)
            return code
        sessions.append(launched.folder)
        if not as_json:
            line()
    return _table(sessions, csv, as_json)


def _table(sessions: list[Path], csv: Path | None, as_json: bool) -> int:
    """The phase 0 table of the sessions: to a file, and as JSON."""
    from ..sessions import phase0
    from ..sessions.store import SessionStore

    rows, failures = [], 0
    for folder in sessions:
        with SessionStore.open(folder) as store:
            more, failed = phase0.rows(store)
        rows += more
        failures += failed
    if csv is not None:
        csv.write_text(phase0.csv_text(rows), encoding="utf-8")
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

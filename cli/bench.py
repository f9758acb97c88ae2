"""`bench`: is my edited kernel faster than the last one?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ExitCode, UsageError, WarpdeckError
from . import options
from .output import clock_words, error, json_document, json_line, line, message, table, warning

if TYPE_CHECKING:
    from ..core.compare import Comparison

POLL_S = 0.3
SETTLE_S = 0.15  # an editor may write a file in several steps


def bench(
    workload: options.Workload,
    variant: options.Variant = None,
    knob: options.Knobs = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="F",
            help="A source file, a session (its best), or knobs as K=V,K=V. [default: the sources as last "
            "benched; else the baseline]",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat whenever a source file is saved.")] = False,
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            "--fail-if-slower",
            metavar="PCT",
            min=0,
            help="Exit 1 if it is shown to take PCT % longer, or more.",
        ),
    ] = None,
    device: options.Device = "auto",
    space: options.KnobSpace = None,
    size: options.Sizes = None,
    cache: options.Cache = "cold",
    samples: options.Samples = 100,
    warmup: options.Warmup = 10,
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Is my edit faster? Check both, time them interleaved, and say win, loss or tie.

    With --json, --watch prints one JSON document a line.
    """
    from ..core.model import CacheMode, Protocol
    from ..sessions.contenders import Duel

    if watch and fail_if_slower is not None:
        raise UsageError("--watch goes on until it is interrupted: leave --fail-if-slower out")
    protocol = Protocol(
        cache=CacheMode(options.choice("--cache", cache, ("cold", "hot"))),
        warmup=warmup,
        samples=samples,
        min_samples=min(30, samples),
    )
    duel = Duel(
        workload,
        device=device,
        variant=variant,
        knobs=options.pairs(knob),
        against=against,
        space=space,
        sizes=size or (),
        protocol=protocol,
        seed=seed,
        allow_shared=allow_shared,
    )
    try:
        if duel.notice:
            message(duel.notice)
        if watch and duel.recorded:
            raise UsageError("--watch needs a CUDA GPU: a recording can't judge an edit")
        if not watch:
            outcome = duel.run()
            _show(outcome, as_json=as_json, stream=False)
            if duel.forgotten:
                warning(duel.forgotten)
            return _exit_code(outcome, fail_if_slower)
        return _watch(duel, as_json)
    finally:
        duel.close()


def _watch(duel, as_json: bool) -> int:
    """Bench, then again after every save, until interrupted. A broken edit is a message, not the end."""
    message(f"watching {duel.folder}; Ctrl-C ends")
    seen: dict[Path, int] | None = None
    while True:
        now = duel.stamps()
        if now != seen:
            time.sleep(SETTLE_S)
            seen = duel.stamps()
            try:
                _show(duel.run(), as_json=as_json, stream=True)
            except UsageError as problem:
                error(str(problem))
            except WarpdeckError as problem:
                warning(f"{problem}; waiting for the next save")
        time.sleep(POLL_S)


def _exit_code(outcome: Comparison, fail_if_slower: float | None) -> int:
    from ..core.model import Status

    if outcome.failed_check:
        return ExitCode.VERIFICATION
    if outcome.subject_evaluation.status is not Status.OK or outcome.rival_evaluation.status is not Status.OK:
        return ExitCode.RUN_FAILED
    if fail_if_slower is not None and outcome.slower_by_more_than(fail_if_slower):
        error(f"slower by more than {fail_if_slower:g}%")
        return ExitCode.RUN_FAILED
    return ExitCode.OK


def _show(outcome: Comparison, *, as_json: bool, stream: bool) -> None:
    if as_json:
        (json_line if stream else json_document)(outcome.to_json())
        return
    floor = outcome.subject_evaluation.event_floor_ms
    clock = f", {clock_words(outcome.clock, floor)}" if outcome.clock else ""
    line(f"{outcome.workload}, {outcome.device.label}, {outcome.cache} cache{clock}")
    line(f"  this     {outcome.subject.label}")
    line(f"  against  {outcome.rival.label}")
    for side, evaluation in (("this", outcome.subject_evaluation), ("against", outcome.rival_evaluation)):
        if evaluation.status != "ok":
            line(f"{side}: {evaluation.status}: {evaluation.message}")
    if outcome.identical:
        line("tie: both compile to the same machine code")
    elif outcome.speedup is not None:
        table(
            ["case", "this", "against", "speedup", "95% interval"],
            [
                (
                    c.case.name,
                    f"{c.subject_ms * 1e3:.2f} µs",
                    f"{c.rival_ms * 1e3:.2f} µs",
                    f"{c.speedup.ratio:.3f}",
                    f"{c.speedup.lo:.3f} to {c.speedup.hi:.3f}",
                )
                for c in outcome.cases
            ],
            right=(1, 2, 3),
        )
        s = outcome.speedup
        line(f"{outcome.verdict}: {s.ratio:.3f}× ({s.lo:.3f} to {s.hi:.3f}), {s.blocks} interleaved blocks")
        throttled = sorted({reason for c in outcome.cases for reason in c.throttle})
        if throttled:
            warning(f"clocks were held down meanwhile: {', '.join(throttled)}")
    if stream:
        line()


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(bench)

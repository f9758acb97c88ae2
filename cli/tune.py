"""`tune`, `attach` and `replay`: the main job, and looking at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import ExitCode, UsageError, WarpdeckError
from . import options
from .output import (
    clock_words,
    error,
    json_document,
    json_line,
    line,
    message,
    stderr_is_terminal,
    stdout_is_terminal,
    table,
    warning,
)

if TYPE_CHECKING:
    from ..sessions.launch import Launched
    from ..sessions.state import RunState

POLL_S = 0.1
WAIT_S = 20  # for the process to go once its last state is logged
STOP_GRACE_S = 60
FULL_BYTES = 64 << 10  # less can't hold the next events
DEFAULT_STEPS = 100
SWEEP_STEPS = 10**6  # a sweep ends with its space
MOST_TIED = 8
WITH_RESULT = (ExitCode.OK, ExitCode.BUDGET, ExitCode.INTERRUPTED)

Session = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="A session's name, a unique beginning of it, a path, or `last`."),
]


def tune(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORKLOAD]",
            help="A bundled workload's name, or a folder; may be left out where a recording names it.",
        ),
    ] = None,
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="Search strategy: tpe, random, sweep or ppo.")
    ] = "tpe",
    device: options.Device = "auto",
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            metavar="NAME",
            help="Search space: classic or full. [full; an imported recording: its own]",
        ),
    ] = None,
    size: options.Sizes = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Evaluations, failures included. [100; sweep: all]"),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="S", help="Seconds after which the search ends; exit code 4."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="cold|hot",
            help="State of the L2 cache before each timed launch. [cold; an imported recording: as recorded]",
        ),
    ] = None,
    samples: options.Samples = 100,
    warmup: options.Warmup = 10,
    seed: options.Seed = 0,
    agent_option: Annotated[
        list[str] | None,
        typer.Option("--agent-option", metavar="K=V", help="A setting of the agent's own; repeatable."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Name of the session. [default: made up]")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="SESSION", help="Go on with an interrupted or stopped run."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="SESSION|FILE", help="Try what was best there first."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="At the end trace and profile the best and the baseline: why is it fast?"
        ),
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="No dashboard, also on a terminal.")] = False,
    as_json: options.Json = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Stream the run's events, one JSON object a line.")
    ] = False,
    allow_shared: options.AllowShared = False,
) -> int:
    """Search a workload's space for its fastest configuration.

    On a terminal the dashboard opens; quitting it leaves the run going. Headless, Ctrl-C stops the run
    after the present evaluation. The session is kept either way.
    """
    from ..kernels.recordings import subject_of
    from ..sessions import paths
    from ..sessions.launch import launch_run, resume_run
    from ..sessions.spec import RunSpec
    from ..sessions.warmstart import starting_from

    if as_json and as_jsonl:
        raise UsageError("--json and --jsonl exclude each other")
    notice = paths.home().notice
    if notice:
        message(notice)
    if resume is not None:
        if workload is not None or session is not None or source is not None:
            raise UsageError(
                "--resume goes on as the session was started: leave WORKLOAD, --session, --from out"
            )
        launched = resume_run(paths.resolve(resume), steps=steps, time_limit_s=time_limit)
    else:
        if cache is not None:
            options.choice("--cache", cache, ("cold", "hot"))
        subject = subject_of(device, workload, space, cache)
        spec = RunSpec(
            workload=subject.workload,
            agent=agent,
            device=device,
            space=subject.space,
            sizes=tuple(size or ()),
            steps=steps or (SWEEP_STEPS if agent == "sweep" else DEFAULT_STEPS),
            time_limit_s=time_limit,
            cache=subject.cache,
            samples=samples,
            warmup=warmup,
            seed=seed,
            options=options.pairs(agent_option, "--agent-option"),
            allow_shared=allow_shared,
            explain=explain,
        )
        if source is not None:
            spec = starting_from(spec, source)
        launched = launch_run(spec, name=session)
    if stdout_is_terminal() and not (headless or as_json or as_jsonl):
        from .. import tui

        code = tui.run_live(launched.folder)
        _show_if_ended(launched)
        return code
    return watch(launched, as_json=as_json, as_jsonl=as_jsonl)


def _show_if_ended(launched: Launched) -> None:
    """What the dashboard showed last stays in the terminal's history."""
    from ..sessions.report import tune_document
    from ..sessions.store import SessionStore

    with SessionStore.open(launched.folder) as store:
        state = store.state()
        if state.lifecycle.final and state.best is not None:
            show_result(tune_document(store, state))


def watch(launched: Launched, *, as_json: bool = False, as_jsonl: bool = False, silent: bool = False) -> int:
    """Follow a run that was started here to its end, and print its result (unless `silent`)."""
    from ..sessions.alive import as_seen, is_running
    from ..sessions.events import Lifecycle
    from ..sessions.listing import remove
    from ..sessions.report import tune_document
    from ..sessions.store import SessionStore

    interrupted = False
    try:
        _follow(launched, as_jsonl)
    except KeyboardInterrupt:
        interrupted = True
        _stop(launched)
    code = ExitCode.INTERRUPTED if interrupted else launched.wait(WAIT_S)
    with SessionStore.open(launched.folder) as store:
        running = is_running(launched.folder)
        state = as_seen(store.state(), running=running)
        if code not in WITH_RESULT:
            error(_why(launched, state))
        document = tune_document(store, state)
        if code is ExitCode.USAGE:
            pass  # another process runs it, say: what it found isn't this command's result
        elif as_json and state.info is not None:  # also without a best: the counts say what happened
            json_document(document)
        elif state.best is not None and not as_json and not as_jsonl and not silent:
            show_result(document)
    if state.info is None and code in (ExitCode.USAGE, ExitCode.NO_DEVICE) and not running:
        remove(launched.folder)  # nothing was begun: a mistyped device is no session, least of all `last`
    if code is ExitCode.BUDGET:
        message(
            "the time limit ended the search; more seconds in all: "
            f"warpdeck tune --resume {launched.session} --time-limit S"
        )
    if state.lifecycle in (Lifecycle.INTERRUPTED, Lifecycle.CANCELLED):
        message(f"session {launched.session} is kept; go on with: warpdeck tune --resume {launched.session}")
    return code


def _why(launched: Launched, state: RunState) -> str:
    """Why a run failed, as far as it could say; a full disk keeps it from saying so."""
    from ..sessions.events import Lifecycle

    if state.lifecycle is Lifecycle.INTERRUPTED and shutil.disk_usage(launched.folder).free < FULL_BYTES:
        return f"the disk of {launched.folder} is full; free some space"
    return state.reason or launched.last_words() or "the run ended without saying why"


def _follow(launched: Launched, as_jsonl: bool) -> None:
    """Draw progress on a terminal's stderr, pass messages on, stream events, until the run has ended."""
    from ..sessions.events import Kind
    from ..sessions.store import SessionStore
    from ..sessions.tail import follow

    seen, named = 0, False
    kinds = () if as_jsonl else (Kind.MESSAGE,)
    with SessionStore.open(launched.folder) as store, _progress() as draw:
        for state in follow(launched.folder, poll_s=POLL_S):
            if state.info is not None and not named:  # it has begun
                message(f"session {launched.session}")
                named = True
            for event in store.events(seen, state.seq, kinds):
                if event.kind == Kind.MESSAGE:
                    _pass_on(event.data)
                if as_jsonl:
                    json_line({"seq": event.seq, "t": event.t, "kind": str(event.kind), "data": event.data})
            seen = state.seq
            draw(state)


def _pass_on(said: Mapping[str, Any]) -> None:
    """A message of the run's; its errors are told once, at the end."""
    if said.get("level") == "warning":
        warning(str(said.get("text")))
    elif said.get("level") != "error":
        message(str(said.get("text")))


@contextmanager
def _progress() -> Iterator[Callable[[RunState], None]]:
    """A progress line on a terminal's stderr; nothing elsewhere."""
    if not stderr_is_terminal():
        yield lambda state: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def draw(state: RunState) -> None:
            if state.info is None:
                return
            best = state.best_speedup
            text = f"{state.info.workload}, {state.device_label}"
            if best is not None:
                text += f", best {best:.3f}×"
            progress.update(task, description=text, completed=state.evaluations, total=_total(state))

        yield draw


def _total(state: RunState) -> int | None:
    """Evaluations to expect: the budget, or the whole space if that is smaller."""
    if state.info is None:
        return None
    known = [n for n in (state.info.steps, state.info.data.get("total_configs")) if n]
    return min(known, default=None)


def _stop(launched: Launched) -> None:
    """Ctrl-C: stop between two steps; a second one at once."""
    message("stopping after the present evaluation; Ctrl-C again stops at once")
    try:
        _stop_run(launched, STOP_GRACE_S)
    except KeyboardInterrupt:
        _stop_run(launched, 0)


def _stop_run(launched: Launched, grace_s: float) -> None:
    from ..sessions.launch import stop_run
    from ..sessions.tail import send

    for folder in launched.following:
        with suppress(WarpdeckError):  # it may just have come to its turn and gone
            send(folder, "stop", "Ctrl-C")
    stop_run(launched.folder, process=launched.process, grace_s=grace_s, origin="Ctrl-C", notify=message)


def show_result(document: Mapping[str, Any]) -> None:
    """A run's document for people."""
    device, best, baseline = document["device"] or {}, document["best"], document["baseline"]
    protocol = document.get("protocol") or {}
    line(f"{document['workload']}, {device.get('label', 'an unknown device')}")
    line(
        f"  agent {document['agent']}, seed {document['seed']}, space {document['space']};"
        f" {_protocol(document, protocol)}"
    )
    counts = ", ".join(f"{n} {status}" for status, n in document["counts"].items())
    line(f"  evaluations: {counts}")
    line()
    line(f"baseline  {_us(baseline['score_ms']):>12}  {_config(baseline['config'])}")
    line(f"best      {_us(best['score_ms']):>12}  {_config(best['config'])}")
    line(f"speedup   {_ratio(best['speedup']):>12}  {_interval(best['speedup_ci'])}")
    if document["provisional"]:
        line("          from the search alone: the finalists were not re-measured")
    line()
    table(
        ["case", "best", "baseline", "speedup", "95% interval", "vendor/best", "floor/best"],
        [
            (
                case["name"],
                _us(case["median_ms"]),
                _us(case["baseline_ms"]),
                _ratio(case["speedup"]),
                _interval(case["speedup_ci"]),
                _ratio(case["vendor_ratio"]),
                _ratio(case["floor_ratio"]),
            )
            for case in document["cases"]
        ],
        right=(1, 2, 3, 5, 6),
    )
    tied = [c for c in document["tied"] if c != best["config"]]
    if tied:
        line()
        line(f"{len(tied)} more can't be told from the best:")
        for config in tied[:MOST_TIED]:
            line(f"  {_config(config)}")
        if len(tied) > MOST_TIED:
            line(f"  … and {len(tied) - MOST_TIED} more (--json lists them)")


def _protocol(document: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    cache, clock = document["cache"], clock_words(document["clock"], document.get("event_floor_ms"))
    if cache == "as recorded":
        return f"cache and clock as recorded, up to {protocol.get('samples')} samples, unpaired"
    if (document["device"] or {}).get("recorded"):
        drawn = f"{protocol.get('samples')} samples in {protocol.get('rounds')} rounds"
        return f"{cache} cache, {clock}, {drawn}, as recorded"
    return (
        f"{cache} cache, {clock}, {protocol.get('warmup')} warm-ups, up to {protocol.get('samples')} samples"
    )


def _us(ms: float | None) -> str:
    return "–" if ms is None else f"{ms * 1e3:.2f} µs"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}×"


def _interval(ends: Any) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}" if ends and None not in ends else "–"


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())


def attach(session: Session) -> int:
    """Join a run that goes on, or look at one that has ended, in the dashboard."""
    from .. import tui
    from ..sessions import paths

    folder = paths.resolve(session)
    _need_terminal(f"warpdeck sessions show {folder.name}")
    return tui.run_attach(folder)


def replay(
    session: Session,
    speed: Annotated[float, typer.Option("--speed", metavar="X", help="Seconds of the log a second.")] = 1.0,
    start: Annotated[float, typer.Option("--from", metavar="T", min=0, help="Seconds into the log.")] = 0.0,
) -> int:
    """Play a session back in the dashboard: pause, speed, seek."""
    from .. import tui
    from ..sessions import paths

    if not 0 < speed <= 1000:
        raise UsageError(f"--speed {speed:g}: use more than 0, and at most 1000")
    folder = paths.resolve(session)
    _need_terminal(f"warpdeck sessions show {folder.name}")
    return tui.run_replay(folder, speed, start)


def _need_terminal(instead: str) -> None:
    if not stdout_is_terminal():
        raise UsageError(f"the dashboard needs a terminal; without one: {instead}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (tune, attach, replay):
        app.command()(command)

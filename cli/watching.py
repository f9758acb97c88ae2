"""Follow a run that was started here: progress on stderr, its messages, and its result at the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from ..core.errors import ExitCode, WarpdeckError
from .output import ReaderGone, error, json_document, json_line, message, stderr_is_terminal, warning
from .results import show_result

if TYPE_CHECKING:
    from ..sessions.launch import Launched
    from ..sessions.state import RunState

POLL_S = 0.1
WAIT_S = 20  # for the process to go once its last state is logged
STOP_GRACE_S = 60
FULL_BYTES = 64 << 10  # less can't hold the next events
WITH_RESULT = (
    *(ExitCode.OK, ExitCode.BUDGET),
    *(ExitCode.INTERRUPTED, ExitCode.TERMINATED, ExitCode.HUNG_UP),
)


class Ended(KeyboardInterrupt):
    """A signal that ends a process; here it ends the run too."""

    def __init__(self, number: int) -> None:
        super().__init__("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        self.code = ExitCode(128 + number)


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP raise `Ended`, one that is ignored (nohup) stays so. From `hold` on, when a
    run is started that must not be left behind, one that comes waits until it is `heard`."""

    def __init__(self) -> None:
        self._terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]
        self._before: dict[int, Any] = {}
        self._held = False
        self._came: int | None = None

    def __enter__(self) -> Self:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on they wait."""
        self._held = True

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Here they are raised, the first one that waited at once; afterwards they wait again."""
        self._held = False
        try:
            number, self._came = self._came, None
            if number is not None:
                self._arrive(number, None)
            yield
        finally:
            self._held = True

    def release(self) -> None:
        """The run is over: they are raised again, and what came is forgotten."""
        self._held, self._came = False, None

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._came = self._came or number
            return
        if number not in (signal.SIGINT, signal.SIGTERM):  # the terminal is gone: writing to it would fail
            for stream in self._terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise Ended(number)


def watch(
    launched: Launched,
    signals: Signals,
    *,
    as_json: bool = False,
    as_jsonl: bool = False,
    silent: bool = False,
    told: int = 0,
) -> int:
    """Follow a run that was started here, with signals held, to its end, and print its result (unless
    `silent`). Its messages up to event `told` were seen before.

    Ctrl-C, SIGTERM and a hangup stop the run: it would go on without anyone to see what it spends. (SIGKILL
    can't be answered: then it does.)
    """
    from ..sessions.alive import as_seen, is_running
    from ..sessions.events import Lifecycle
    from ..sessions.listing import remove
    from ..sessions.report import tune_document
    from ..sessions.store import SessionStore

    try:
        with signals.heard():
            _follow(launched, as_jsonl, told)
            code = launched.wait(WAIT_S)
    except Ended as end:
        code = end.code
        _stop(launched, signals, str(end))
    except ReaderGone:
        _stop(launched, signals, "a closed stdout")
        raise
    if not launched.following:
        signals.release()
    with SessionStore.open(launched.folder) as store:
        running = is_running(launched.folder)
        state = as_seen(store.state(), running=running)
        if state.lifecycle is Lifecycle.INTERRUPTED and state.seq and code not in WITH_RESULT:
            code = ExitCode.RUN_FAILED  # whatever it died with
        if code not in WITH_RESULT or state.lifecycle is Lifecycle.FAILED:
            error(_why(launched, state))
        document = tune_document(store, state)
        if code is ExitCode.USAGE:
            pass  # another process runs it, say: what it found isn't this command's result
        elif as_json and state.info is not None:  # also without a best: the counts say what happened
            json_document(document)
        elif document["best"] is not None and not as_json and not as_jsonl and not silent:
            show_result(document)
    if state.info is None and code in (ExitCode.USAGE, ExitCode.NO_DEVICE) and not running:
        remove(launched.folder)  # nothing was begun: a mistyped device is no session, least of all `last`
    if code is ExitCode.BUDGET and state.reason.startswith("the time limit"):
        message(
            "the time limit ended the search; more seconds in all: "
            f"warpdeck tune --resume {launched.session} --time-limit S"
        )
    elif code is ExitCode.BUDGET and state.lifecycle is not Lifecycle.FAILED:
        message(f"to go on from its best: warpdeck tune --agent llm --from {launched.session}")
    if state.lifecycle in (Lifecycle.INTERRUPTED, Lifecycle.CANCELLED):
        message(f"session {launched.session} is kept; go on with: warpdeck tune --resume {launched.session}")
    return code


def _why(launched: Launched, state: RunState) -> str:
    """Why a run failed, as far as it could say; a full disk keeps it from saying so."""
    from ..sessions.events import Lifecycle

    if state.lifecycle is Lifecycle.INTERRUPTED and shutil.disk_usage(launched.folder).free < FULL_BYTES:
        return f"the disk of {launched.folder} is full; free some space"
    if state.lifecycle is Lifecycle.INTERRUPTED and state.seq:
        status = launched.process.returncode
        said = launched.last_words() if status is not None and status > 0 else None
        return f"{state.reason} ({_how(status)})" + (f": {said}" if said else "")
    return state.reason or launched.last_words() or "the run ended without saying why"


def _how(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None or status >= 0:
        return f"exit code {status}" if status is not None else "it isn't this command's"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _follow(launched: Launched, as_jsonl: bool, told: int) -> None:
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
                if event.kind == Kind.MESSAGE and event.seq > told:
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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
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
            progress.update(task, description=text, completed=state.evaluations, total=state.info.steps)

        yield draw


def _stop(launched: Launched, signals: Signals, name: str) -> None:
    """What ends the console stops the run, too: between two steps; Ctrl-C or a signal meanwhile, at once."""
    message(f"{name}: stopping after the present evaluation; Ctrl-C stops at once")
    try:
        with signals.heard():
            _stop_run(launched, STOP_GRACE_S, name)
    except Ended:
        _stop_run(launched, 0, name)


def _stop_run(launched: Launched, grace_s: float, origin: str) -> None:
    from ..sessions.launch import stop_run
    from ..sessions.tail import send

    for folder in launched.following:
        with suppress(WarpdeckError):  # it may just have come to its turn and gone
            send(folder, "stop", origin)
    stop_run(launched.folder, process=launched.process, grace_s=grace_s, origin=origin, notify=message)

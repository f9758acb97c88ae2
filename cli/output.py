"""What leaves the program: stdout is data, stderr is messages, and every failure has its exit code.

The one module that writes to stderr, ends the process, and knows how JSON documents look.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from ..core.crash import save_traceback
from ..core.errors import ExitCode, WarpdeckError

SCHEMA_VERSION = 1
# What commands a terminal, or turns the direction of what follows.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class ReaderGone(Exception):
    """Nobody reads stdout any more. Not an OSError: Typer would leave with 1 on those."""


class _State:
    """Set by the root options."""

    quiet = False


def set_quiet(quiet: bool) -> None:
    """Leave out messages that are neither warnings nor errors."""
    _State.quiet = quiet


def stderr_is_terminal() -> bool:
    """Whether progress may be drawn."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"


def stdout_is_terminal() -> bool:
    """Whether a dashboard may be opened (together with a terminal on stdin)."""
    return sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "") != "dumb"


def message(text: str) -> None:
    """A line for people."""
    if not _State.quiet:
        _stderr(text)


def warning(text: str) -> None:
    """A line that nobody should miss."""
    _stderr(f"warpdeck: warning: {text}")


def error(text: str) -> None:
    """Why the command failed, in one plain line."""
    _stderr(f"warpdeck: error: {' '.join(str(text).split())}")


def _stderr(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(_tame(text), file=sys.stderr, flush=True)


def line(text: str = "") -> None:
    """A line of data."""
    _write(_tame(text))


def _tame(text: str) -> str:
    """Without characters that command a terminal: kernels' errors and imported names come from elsewhere."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def confirmed(question: str) -> bool:
    """Ask on stderr; no without a terminal to answer on."""
    if not sys.stdin.isatty():
        error(f"{question} (no terminal to answer on: pass --yes)")
        return False
    _stderr(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def json_document(document: Mapping[str, Any]) -> None:
    """The one document of a `--json` command."""
    _write(json.dumps(_plain({"schema_version": SCHEMA_VERSION, **document}), indent=2, allow_nan=False))


def json_line(record: Mapping[str, Any]) -> None:
    """One record of a `--jsonl` stream."""
    _write(json.dumps(_plain(record), separators=(",", ":"), allow_nan=False))


def _write(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as problem:  # a full disk behind `> file`
        problem.filename = problem.filename or "stdout"
        raise


def _plain(value: Any) -> Any:
    """JSON's own types; not-a-number and infinities become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _plain(value.tolist())
    return str(value)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Aligned columns on stdout; `right` are the indices of right-aligned ones. None prints as a dash."""
    cells = [["–" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(headers)]
    for row in [list(headers), *cells]:
        parts = [
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        line("  ".join(parts).rstrip())


def guarded(command: Callable[[], object]) -> int:
    """Run a command and turn whatever happens into an exit code and at most one line on stderr."""
    _steady_streams()
    try:
        code = command()
        sys.stdout.flush()
        if code == ExitCode.INTERRUPTED and not isinstance(code, ExitCode):
            _stderr("warpdeck: interrupted")  # Typer took the Ctrl-C; a command that took it has said so
        return code if isinstance(code, int) else ExitCode.OK
    except KeyboardInterrupt:
        _stderr("warpdeck: interrupted")
        return ExitCode.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        # The reader (`head`, say) has seen enough. Keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except WarpdeckError as problem:
        error(str(problem))
        return problem.exit_code
    except _refusal():
        return ExitCode.RUN_FAILED
    except _parser_problem() as problem:
        return _parser_error(problem)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        error(f"{where}{problem.strerror or problem}")
        return ExitCode.RUN_FAILED
    except Exception as problem:  # noqa: BLE001 - the last resort of the program
        return _unexpected(problem)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and a hangup end a command like Ctrl-C does, so that whatever it started (Nsight Compute, a
    worker) is ended with it. One that is ignored (nohup) or handled stays so."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in before:  # what is started must be ended, however often we are told
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(ExitCode(128 + number))

    numbers = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))  # Windows has no SIGHUP
    before = [n for n in numbers if n is not None and signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # whose they are
        before = []
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_DFL)


def _steady_streams() -> None:
    """Streams that are there and take every character, whatever the process was started with.

    A closed one becomes the null device, before a database could get its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _refusal() -> type[Exception]:
    import typer  # here, since a dashboard that needs no parser shouldn't wait for it

    return typer.Abort


def _parser_problem() -> type[Exception]:
    """What Typer's parser (click, which it carries privately) raises: reached through the public subclass."""
    import typer

    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _parser_error(problem: Exception) -> int:
    context = getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError":
        _stderr(str(getattr(problem, "message", "")) or (context.get_help() if context else ""))
        return ExitCode.USAGE
    text = problem.format_message() if hasattr(problem, "format_message") else str(problem)  # type: ignore[attr-defined]
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    error(text.rstrip(".") + hint)
    return ExitCode.USAGE


def clock_words(clock: str | None, event_floor_ms: float | None) -> str:
    """The clock that times come from; event pairs with what an empty pair reads."""
    if event_floor_ms is not None:
        return f"event clock (an empty pair reads {event_floor_ms * 1e3:.2f} µs)"
    return f"{clock} clock"


def _unexpected(problem: BaseException) -> int:
    """One line, and the traceback in a file that a report can quote."""
    path = save_traceback(problem)
    where = f"; the traceback is in {path}" if path else ""
    error(f"unexpected {type(problem).__name__}: {problem}{where}")
    return ExitCode.RUN_FAILED

"""How long a key takes to show while things go wrong, on a real pseudo-terminal.

    python benchmarks/console_faults.py [--keys 40] [FAULT …]

A run of 20 steps a second goes on, and keys move the leaderboard's cursor at random times; each is answered
when its sign was written. The target is 50 ms at the 95th percentile where the dashboard has a processor, and
in any case an answer. Faults: `none`; `busy`: a process at full speed for each core; `long`: a session of
100,000 steps; `locked`: another process holds the database's write lock; `killed`: the run was killed;
`removed`: its folder was deleted; `resized`: another size 20 times a second; `pasted`: 1 MB of random bytes
before the keys; `stopped`: a terminal that reads nothing for five seconds before the keys; `logged`: 2,000
events a second instead of 43.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import console_session
from console_terminal import Terminal
from key_latency import BUSY, CURSOR, KEYS

STEPS = 2000


class Case:
    """A session with a run in a process of its own, and the dashboard on it."""

    def __init__(
        self, stack: ExitStack, steps: int = STEPS, rate: float = console_session.STEPS_PER_S
    ) -> None:
        self.home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.folder = console_session.write(self.home / "sessions", steps)
        cost = str(Path(__file__).with_name("console_cost.py"))
        self.run = subprocess.Popen([sys.executable, cost, "--write", str(self.folder), "--rate", str(rate)])
        stack.callback(self.run.wait)
        stack.callback(self.run.kill)
        command = [sys.executable, "-m", "warpdeck", "attach", str(self.folder)]
        self.terminal = Terminal(command, home=self.home)
        stack.callback(self.terminal.close)
        self.terminal.until(b"Leaderboard, best", seconds=60)
        self.terminal.read(2)


@contextmanager
def busy(case: Case) -> Iterator[None]:
    """An agent's processes take every core."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def locked(case: Case) -> Iterator[None]:
    """The run can write nothing, and the dashboard ask for nothing."""
    database = sqlite3.connect(case.folder / "session.db", isolation_level=None, timeout=10)
    database.execute("BEGIN IMMEDIATE")
    try:
        case.terminal.key(b" ")  # a pause, which can't be asked for just now
        yield
    finally:
        database.execute("ROLLBACK")
        database.close()


@contextmanager
def killed(case: Case) -> Iterator[None]:
    """Nobody says that the run has ended."""
    case.run.kill()
    case.run.wait()
    yield


@contextmanager
def removed(case: Case) -> Iterator[None]:
    """What is shown isn't there any more."""
    case.run.kill()
    case.run.wait()
    shutil.rmtree(case.folder)
    yield


@contextmanager
def resized(case: Case) -> Iterator[None]:
    """A window that is dragged, never too small to show the board."""
    ended = threading.Event()

    def work() -> None:
        rng = random.Random(1)
        while not ended.wait(0.05):
            size = struct.pack("HHHH", rng.randint(30, 50), rng.randint(100, 160), 0, 0)
            with contextlib.suppress(OSError, ProcessLookupError):
                fcntl.ioctl(case.terminal.controller, termios.TIOCSWINSZ, size)
                case.terminal.process.send_signal(signal.SIGWINCH)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def pasted(case: Case) -> Iterator[None]:
    """Bytes of anything, as if a file were dropped into the terminal."""
    data = bytes(b for b in random.Random(1).randbytes(1 << 20) if b not in (0x03, 0x11, 0x1B, 0x1A))
    os.set_blocking(case.terminal.controller, False)
    data = b"\x1b[200~" + data + b"\x1b[201~"
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(case.terminal.controller, data[:4096]) :]
        case.terminal.drain()
    os.set_blocking(case.terminal.controller, True)
    yield


@contextmanager
def stopped(case: Case) -> Iterator[None]:
    """A terminal that shows nothing for a while (Ctrl-S, a lost connection)."""
    time.sleep(5)
    yield


@contextmanager
def nothing(case: Case) -> Iterator[None]:
    """All is well, but for the session."""
    yield


FAULTS: dict[
    str, tuple[Callable[[ExitStack], Case], Callable[[Case], contextlib.AbstractContextManager[None]]]
] = {
    "none": (Case, nothing),
    "busy": (Case, busy),
    "long": (lambda stack: Case(stack, 100_000), nothing),
    "locked": (Case, locked),
    "killed": (Case, killed),
    "removed": (Case, removed),
    "resized": (Case, resized),
    "pasted": (Case, pasted),
    "stopped": (Case, stopped),
    "logged": (lambda stack: Case(stack, rate=920), nothing),
}


def measure(fault: str, keys: int) -> dict[str, float | str]:
    """Milliseconds from a key to its answer while a fault lasts, and that the dashboard ends as it should."""
    make, trouble = FAULTS[fault]
    rng = random.Random(1)
    with ExitStack() as stack:
        case = make(stack)
        terminal, found = case.terminal, []
        with trouble(case):
            terminal.read(1)
            for i in range(keys):
                terminal.read(rng.uniform(0.05, 0.25))
                terminal.drain()
                began = time.perf_counter()
                terminal.key(KEYS[i % len(KEYS)])
                terminal.until(CURSOR, seconds=10)
                found.append((time.perf_counter() - began) * 1e3)
        terminal.read(1)
        terminal.key(b"\x11\x11")  # quit, and yes
        deadline = time.perf_counter() + 10
        while terminal.process.poll() is None and time.perf_counter() < deadline:
            terminal.read(0.05)
        ended = terminal.process.poll()
    found.sort()
    p95 = found[int(0.95 * (len(found) - 1))]
    times = {"p50_ms": statistics.median(found), "p95_ms": p95, "max_ms": found[-1]}
    return {
        **{name: round(ms, 1) for name, ms in times.items()},
        "exit": "hangs" if ended is None else str(ended),
    }


def main() -> None:
    """Measure each fault and print a JSON document a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--keys", type=int, default=40)
    options = parser.parse_args()
    for fault in options.faults or FAULTS:
        print(json.dumps({"fault": fault, **measure(fault, options.keys)}), flush=True)


if __name__ == "__main__":
    main()

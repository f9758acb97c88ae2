"""How long until the console shows a run: from the start of `warpdeck attach` to the run's data on a real
pseudo-terminal.

`python benchmarks/first_paint.py [--runs N] [--steps N] [--recorded | --start]`. The target is 700 ms at the
median. `--recorded`: of a real run on the recording that ships instead of a made-up one; `--start`: of the
start screen with that session.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import console_session

TARGET_MS = 700


RUN, START = (b"Leaderboard, best", b"softmax"), (b"Recent sessions", b"1 session, ", b"softmax")


def measure(
    folder: Path, *, start: bool = False, size: tuple[int, int] = (120, 40)
) -> tuple[float, int, float]:
    """(milliseconds to the first full screen, resident kilobytes then, its CPU milliseconds so far) of one
    fresh process that shows a session, or the folder that it is in. Full: its own data are there, and not
    only empty panes."""
    parts, arguments = (START, []) if start else (RUN, ["attach", str(folder)])
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment["WARPDECK_HOME"] = str(folder.parents[1])
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "warpdeck", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        start_new_session=True,
    )
    os.close(terminal)
    output = b""
    try:
        while not all(part in output for part in parts):
            if not select.select([controller], [], [], 10)[0]:
                raise SystemExit(f"nothing was painted within 10 s; the terminal got {output[-500:]!r}")
            output += os.read(controller, 65536)
        elapsed = (time.perf_counter() - began) * 1e3
        status = Path(f"/proc/{child.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        user, system = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return elapsed, resident, (int(user) + int(system)) * 1e3 / os.sysconf("SC_CLK_TCK")
    finally:
        child.send_signal(signal.SIGTERM)
        deadline = time.perf_counter() + 5
        while child.poll() is None and time.perf_counter() < deadline:
            if select.select([controller], [], [], 0.1)[0]:
                try:
                    os.read(controller, 65536)
                except OSError:
                    break  # the child closed its side
        child.wait(5)
        os.close(controller)


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--start", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if options.recorded:
            run = console_session.recorded(Path(home) / "sessions", options.steps)
            run.wait()
            folder = run.folder
        else:
            folder = console_session.write(Path(home) / "sessions", options.steps)
        measure(folder, start=options.start)  # file cache and byte code
        results = [measure(folder, start=options.start) for _ in range(options.runs)]
    times = sorted(ms for ms, _, _ in results)
    print(
        json.dumps(
            {
                "first_paint_ms": {"median": statistics.median(times), "min": times[0], "max": times[-1]},
                "cpu_ms": statistics.median(cpu for _, _, cpu in results),
                "rss_mb": max(kb for _, kb, _ in results) / 1024,
                "runs": options.runs,
                "steps": options.steps,
                "target_ms": TARGET_MS,
                "ok": statistics.median(times) <= TARGET_MS,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()

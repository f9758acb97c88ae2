"""How long until the console shows a run: from the start of `warpdeck attach` to the run's data on a real
pseudo-terminal.

`python benchmarks/first_paint.py [--runs N] [--steps N] [--recorded | --start]`. The target is 700 ms at the
median. `--recorded`: of a real run on the recording that ships instead of a made-up one; `--start`: of the
start screen with that session.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import console_session
from console_terminal import Terminal

TARGET_MS = 700

RUN, START = (b"Leaderboard, best", b"softmax"), (b"Recent sessions", b"1 session, ", b"softmax")


def measure(
    folder: Path, *, start: bool = False, size: tuple[int, int] = (120, 40)
) -> tuple[float, float, float]:
    """(milliseconds to the first full screen, resident megabytes then, its CPU milliseconds so far) of one
    fresh process that shows a session, or the folder that it is in. Full: its own data are there, and not
    only empty panes."""
    parts, arguments = (START, []) if start else (RUN, ["attach", str(folder)])
    command = [sys.executable, "-m", "warpdeck", *arguments]
    terminal = Terminal(command, size=size, home=folder.parents[1])
    try:
        terminal.until(*parts)
        elapsed = (time.perf_counter() - terminal.began) * 1e3
        return elapsed, terminal.rss_mb(), terminal.cpu_s() * 1e3
    finally:
        terminal.close()


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
                "rss_mb": max(mb for _, mb, _ in results),
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

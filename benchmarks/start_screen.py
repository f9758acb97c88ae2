"""What the start screen costs with many sessions: the first reading of the folder, each one after it, and the
whole program at rest on a pseudo-terminal.

`python benchmarks/start_screen.py [--sessions N] [--steps N] [--seconds N]`. It reads every 3 seconds; the
target is 1% of a core.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import console_session
from console_terminal import Terminal

from warpdeck.sessions import listing
from warpdeck.tui.screens.sessions import INTERVAL_S

TARGET_PERCENT = 1


def at_rest(home: Path, sessions: int, seconds: float) -> dict[str, float]:
    """Processor time, terminal output and memory of `warpdeck` while nobody touches it."""
    terminal = Terminal([sys.executable, "-m", "warpdeck"], home=home)
    try:
        terminal.until(f"{sessions} sessions, ".encode())
        terminal.read(5)
        cpu, written = terminal.cpu_s(), terminal.written
        terminal.read(seconds)
        return {
            "cpu_percent": 100 * (terminal.cpu_s() - cpu) / seconds,
            "output_kb_s": (terminal.written - written) / seconds / 1024,
            "rss_mb": terminal.rss_mb(),
        }
    finally:
        terminal.close()


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--steps", type=int, default=200, help="in each session")
    parser.add_argument("--seconds", type=float, default=15, help="at rest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "sessions"
        first = console_session.write(folder, options.steps, "session-0", ended=True)
        for number in range(1, options.sessions):
            shutil.copytree(first, folder / f"session-{number}")
        readings: list[float] = []
        found: list[listing.SessionInfo] = []
        sessions = listing.Listing(folder)
        for _ in range(6):
            began = time.process_time()
            found = sessions.read()
            readings.append((time.process_time() - began) * 1e3)
        assert len(found) == options.sessions
        resting = at_rest(Path(home), options.sessions, options.seconds)
    again = statistics.median(readings[1:])
    percent = again / (INTERVAL_S * 10)
    measured = {"first_ms": readings[0], "again_ms": again, "reading_percent": percent, **resting}
    print(
        json.dumps(
            {
                "sessions": options.sessions,
                "measured": {name: round(value, 2) for name, value in measured.items()},
                "targets": {"cpu_percent": TARGET_PERCENT},
                "ok": resting["cpu_percent"] <= TARGET_PERCENT,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()

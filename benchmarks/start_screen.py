"""What the start screen costs with many sessions: the first reading of the folder, and each one after it.

`python benchmarks/start_screen.py [--sessions N] [--steps N]`. It reads every 3 seconds; the target is 1% of
a core.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import console_session

from warpdeck.sessions import listing
from warpdeck.tui.screens.sessions import INTERVAL_S

TARGET_PERCENT = 1


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--steps", type=int, default=200, help="in each session")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        first = console_session.write(Path(home), options.steps, "session-0", ended=True)
        for number in range(1, options.sessions):
            shutil.copytree(first, Path(home) / f"session-{number}")
        readings: list[float] = []
        found: list[listing.SessionInfo] = []
        sessions = listing.Listing(Path(home))
        for _ in range(6):
            began = time.process_time()
            found = sessions.read()
            readings.append((time.process_time() - began) * 1e3)
        assert len(found) == options.sessions
    again = statistics.median(readings[1:])
    percent = again / (INTERVAL_S * 10)
    measured = {"first_ms": readings[0], "again_ms": again, "cpu_percent": percent}
    print(
        json.dumps(
            {
                "sessions": options.sessions,
                "measured": {name: round(value, 2) for name, value in measured.items()},
                "targets": {"cpu_percent": TARGET_PERCENT},
                "ok": percent <= TARGET_PERCENT,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()

"""How long a key takes to show: from its byte on a real pseudo-terminal to the answer, while a run goes on
and both cores are busy.

`python benchmarks/key_latency.py [--keys N] [--busy N] [--polite]`. The target is 50 ms at the 95th
percentile. Each busy process loops in Python at the usual priority, as an agent's does (`--busy`: how many;
default one for each core). The run writes 20 steps/s into the session. The terminal's own drawing isn't told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import console_session
from console_terminal import Terminal

TARGET_MS = 50
BUSY = "x = 0\nwhile True:\n    x = (x * 31 + 7) % 1000003\n"
# Keys in turn: the leaderboard's cursor down and up. The answer is the marked row's sign in another row.
KEYS = (b"j", b"j", b"j", b"k", b"k", b"k")
CURSOR = "▸".encode()


def measure(folder: Path, keys: int, size: tuple[int, int]) -> list[float]:
    """Milliseconds from each key, typed at random times, until the cursor's sign is written."""
    rng = random.Random(1)
    terminal = Terminal([sys.executable, "-m", "warpdeck", "attach", str(folder)], size=size)
    try:
        terminal.until(b"Leaderboard", seconds=30)
        terminal.read(2)
        found = []
        for i in range(keys):
            terminal.read(rng.uniform(0.05, 0.25))
            terminal.drain()
            began = time.perf_counter()
            terminal.key(KEYS[i % len(KEYS)])
            terminal.until(CURSOR, seconds=10)
            found.append((time.perf_counter() - began) * 1e3)
        return found
    finally:
        terminal.close()


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--polite", action="store_true", help="the busy processes at nice 10")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = console_session.write(Path(home), 2000)
        cost = str(Path(__file__).with_name("console_cost.py"))
        others = [subprocess.Popen([sys.executable, cost, "--write", str(folder)])]
        nice = ["nice", "-n", "10"] if options.polite else []
        others += [subprocess.Popen([*nice, sys.executable, "-c", BUSY]) for _ in range(options.busy)]
        try:
            times = sorted(measure(folder, options.keys, (120, 40)))
        finally:
            for other in others:
                other.kill()
                other.wait()
    p95 = times[int(0.95 * (len(times) - 1))]
    measured = {"p50": statistics.median(times), "p95": p95, "max": times[-1]}
    print(
        json.dumps(
            {
                "key_to_screen_ms": {name: round(ms, 1) for name, ms in measured.items()},
                "keys": options.keys,
                "busy": options.busy,
                "nice": 10 if options.polite else 0,
                "cores": os.cpu_count(),
                "load": [round(x, 1) for x in os.getloadavg()],
                "target_ms": TARGET_MS,
                "ok": p95 <= TARGET_MS,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()

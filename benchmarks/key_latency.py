"""How long a key takes to show: from its byte on a real pseudo-terminal to the answer, while a run goes on
and both cores are busy.

`python benchmarks/key_latency.py [--keys N] [--busy N] [--polite]`. The target is 50 ms at the 95th
percentile. Each busy process loops in Python at the usual priority, as an agent's does (`--busy`: how many;
default one for each core). The run writes 20 steps/s into the session. The terminal's own drawing isn't told.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
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

TARGET_MS = 50
BUSY = "x = 0\nwhile True:\n    x = (x * 31 + 7) % 1000003\n"
# Keys in turn: the leaderboard's cursor down and up. The answer is the marked row's sign in another row.
KEYS = (b"j", b"j", b"j", b"k", b"k", b"k")
CURSOR = "▸".encode()


class Console:
    """`warpdeck attach` on a terminal."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "warpdeck", "attach", str(folder)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(terminal)

    def read(self, until: bytes, seconds: float) -> bytes:
        """What is written up to and with `until`."""
        deadline, output = time.perf_counter() + seconds, b""
        while until not in output:
            left = deadline - time.perf_counter()
            if left <= 0 or not select.select([self.controller], [], [], left)[0]:
                raise SystemExit(f"never saw {until!r}; the terminal got {output[-500:]!r}")
            output += os.read(self.controller, 1 << 16)
        return output

    def drain(self, quiet_s: float) -> None:
        """Read until nothing has come for so long."""
        while select.select([self.controller], [], [], quiet_s)[0]:
            os.read(self.controller, 1 << 16)

    def key(self, key: bytes) -> float:
        """Milliseconds until the cursor's sign is written."""
        self.drain(0.0)
        began = time.perf_counter()
        os.write(self.controller, key)
        self.read(CURSOR, 10)
        return (time.perf_counter() - began) * 1e3

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        deadline = time.perf_counter() + 5
        while self.process.poll() is None and time.perf_counter() < deadline:
            if select.select([self.controller], [], [], 0.1)[0]:
                try:
                    os.read(self.controller, 1 << 16)
                except OSError:
                    break
        self.process.wait(5)
        os.close(self.controller)


def measure(folder: Path, keys: int, size: tuple[int, int]) -> list[float]:
    """Milliseconds of each key, at random times."""
    rng = random.Random(1)
    console = Console(folder, size)
    try:
        console.read(b"Leaderboard", 30)
        end = time.perf_counter() + 2
        while time.perf_counter() < end:
            console.drain(0.05)
        found = []
        for i in range(keys):
            pause = time.perf_counter() + rng.uniform(0.05, 0.25)
            while (left := pause - time.perf_counter()) > 0:
                if select.select([console.controller], [], [], left)[0]:
                    os.read(console.controller, 1 << 16)
            found.append(console.key(KEYS[i % len(KEYS)]))
        return found
    finally:
        console.close()


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

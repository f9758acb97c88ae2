"""What memory the console takes, and how it grows: thousands of refreshes of a run that goes on, as fast as
they can be made.

`python benchmarks/console_memory.py [--refreshes N] [--rate N]`. Targets: 80 MB, and 5 MB an hour. An hour is
14,400 refreshes, at 4 a second, in which the run makes `--rate` steps a second (default 2, as a GPU run does;
20 are those of a long fast one). Layout, compositor and ANSI encoding are paid; the bytes are dropped. Growth
is the slope of a straight line through resident memory, after a warm-up of a half, in which what is bounded
(messages, the leaderboard) fills. The run is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import console_session
import numpy as np
from console_cost import CountingDriver, resident_mb

from warpdeck.sessions import alive
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.memory import settle
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.sources import LiveSource

HZ = 4
AN_HOUR = 3600 * HZ  # refreshes


def write(folder: Path) -> None:
    """The run: as many steps as a line on stdin says, and a line back."""
    lock = alive.RunLock.acquire(folder)
    with SessionStore.open(folder, writable=True) as store:
        events = console_session.stream(seed=2, first=store.state().step + 1)
        for line in sys.stdin:
            for _ in range(int(line)):
                store.append_many(next(events))
            print(flush=True)
    lock.release()


async def measure(folder: Path, refreshes: int, rate: float, size: tuple[int, int]) -> list[float]:
    """Resident megabytes after each refresh."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, __file__, "--write", str(folder)]
    run = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert run.stdin is not None and run.stdout is not None
    reader, writer = run.stdout, run.stdin
    screen = RunScreen(LiveSource(folder), interval=None)
    app = WarpdeckApp(screen)
    app.driver_class = CountingDriver
    found: list[float] = []

    async def drive() -> None:
        while not screen.is_attached:
            await asyncio.sleep(0.05)
        owed = 0.0
        for _ in range(refreshes):
            owed += rate / HZ
            if owed >= 1:
                writer.write(f"{int(owed)}\n".encode())
                owed %= 1
                await reader.readline()
            await screen.tick()
            await asyncio.sleep(0.005)  # the compositor's turn
            found.append(resident_mb())
        app.exit()

    driving = asyncio.create_task(drive())
    await app.run_async(size=size)
    await driving
    writer.close()
    await run.wait()
    return found


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refreshes", type=int, default=14_400)
    parser.add_argument("--rate", type=float, default=2)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return
    settle()
    with tempfile.TemporaryDirectory() as home:
        folder = console_session.write(Path(home), 1000)
        memory = np.array(asyncio.run(measure(folder, options.refreshes, options.rate, (120, 40))))
    warm = len(memory) // 2
    slope = float(np.polyfit(np.arange(warm, len(memory)), memory[warm:], 1)[0]) * AN_HOUR
    measured = {
        "rss_mb": float(np.median(memory)),
        "rss_mb_max": float(memory.max()),
        "growth_mb_an_hour": slope,
        "growth_bytes_a_step": slope * 1e6 / 3600 / options.rate,
    }
    targets = {"rss_mb": 80, "growth_mb_an_hour": 5}
    print(
        json.dumps(
            {
                "measured": {name: round(value, 2) for name, value in measured.items()},
                "refreshes": options.refreshes,
                "steps_a_second": options.rate,
                "targets": targets,
                "ok": all(measured[name] <= limit for name, limit in targets.items()),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()

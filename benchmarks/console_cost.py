"""What the console costs: a plot's refresh, CPU and terminal output while a run goes on, memory.

`python benchmarks/console_cost.py [--seconds N] [--recorded] [--hz 4] [--size 120x40]`. Targets: 20 ms a plot
refresh at 10,000 points, 15% of a core and 30 KB/s at 4 Hz, 4% at 1 Hz, 80 MB. Layout, compositor and ANSI
encoding are paid; the bytes are dropped. `--recorded`: while a real run on the recording that ships goes on,
instead of a made-up one at 20 steps/s.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import console_session
import numpy as np
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver

from warpdeck.sessions import alive
from warpdeck.sessions.series import Series
from warpdeck.sessions.store import SessionStore
from warpdeck.tui import curves
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.lean import lean
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.sources import LiveSource
from warpdeck.tui.widgets.plot import Plot


class CountingDriver(HeadlessDriver):
    """No terminal, but everything that would be written to one is made and counted."""

    written = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        CountingDriver.written += len(lean(data).encode())


def resident_mb() -> float:
    """Resident memory of this process now."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def plot_ms(app: WarpdeckApp, screen: RunScreen, points: int, repeats: int = 25) -> float:
    """Median process milliseconds to replace both plots' data and paint them."""
    rng = np.random.default_rng(0)
    speedup = rng.gamma(4, 0.3, points)
    rows = [np.arange(points), speedup - 1, speedup, np.maximum.accumulate(speedup)]
    series = Series().extend([row.tolist() for row in rows])
    costs = []
    for _ in range(repeats):
        began = time.process_time()
        state = screen.state
        object.__setattr__(state, "steps", series)  # the frozen state of a run this long
        screen.query_one("#reward", Plot).show(curves.reward_series(state))
        screen.query_one("#speedup", Plot).show(curves.speedup_series(state))
        await painted(app)
        costs.append((time.process_time() - began) * 1e3)
    return statistics.median(costs) / 2


async def painted(app: App[Any]) -> None:
    """Until what was asked to be redrawn has been written."""
    before = CountingDriver.written
    while CountingDriver.written == before:
        await asyncio.sleep(0.001)


async def measure(folder: Path, seconds: float, size: tuple[int, int], hz: float) -> dict[str, float]:
    """Open the console on a run that goes on, refreshed `hz` times a second, and measure."""
    screen = RunScreen(LiveSource(folder), interval=1 / hz)
    app = WarpdeckApp(screen)
    app.driver_class = CountingDriver
    found: dict[str, float] = {}

    async def watch() -> None:
        while screen.state.info is None:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)
        step = screen.state.step
        cpu, wall, written = time.process_time(), time.perf_counter(), CountingDriver.written
        await asyncio.sleep(seconds)
        took = time.perf_counter() - wall
        found["cpu_percent"] = 100 * (time.process_time() - cpu) / took
        found["output_kb_s"] = (CountingDriver.written - written) / took / 1024
        found["rss_mb"] = resident_mb()
        found["steps_s"] = (screen.state.step - step) / took
        if screen._timer is not None:
            screen._timer.pause()
        await asyncio.sleep(0.3)
        for points in (10_000, 100_000):
            found[f"plot_ms_{points}"] = await plot_ms(app, screen, points)
        app.exit()

    watching = asyncio.create_task(watch())
    await app.run_async(size=size)
    await watching
    return {name: round(value, 2) for name, value in found.items()}


def write_on(folder: Path, rate: float) -> None:
    """The run: append so many steps a second until killed."""
    lock = alive.RunLock.acquire(folder)
    with SessionStore.open(folder, writable=True) as store:
        first = store.state().step + 1
        for events in itertools.islice(console_session.stream(seed=2, first=first), 100_000):
            store.append_many(events)
            time.sleep(1 / rate)
    lock.release()


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument(
        "--steps", type=int, default=2000, help="already in the session; with --recorded, that the run makes"
    )
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--hz", type=float, default=4)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--rate", type=float, default=console_session.STEPS_PER_S, help="steps a second")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_on(options.write, options.rate)
        return
    os.environ["COLORTERM"] = "truecolor"  # the longest codes
    width, height = options.size.split("x")
    size = (int(width), int(height))
    with tempfile.TemporaryDirectory() as home:
        if options.recorded:
            run = console_session.recorded(Path(home), options.steps)
            folder, writer = run.folder, run.process
        else:
            folder = console_session.write(Path(home), options.steps)
            writer = subprocess.Popen(
                [sys.executable, __file__, "--write", str(folder), "--rate", str(options.rate)]
            )
        try:
            found = asyncio.run(measure(folder, options.seconds, size, options.hz))
        finally:
            writer.kill()
            writer.wait()
    targets = {
        "cpu_percent": 4 if options.hz <= 1 else 15,
        "output_kb_s": 30,
        "rss_mb": 80,
        "plot_ms_10000": 20,
        "plot_ms_100000": 30,
    }
    print(json.dumps({"measured": found, "targets": targets}, indent=2))


if __name__ == "__main__":
    main()

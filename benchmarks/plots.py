"""What a refresh of the Run screen's panes costs by the number of steps: process CPU, paint and output.

`python benchmarks/plots.py [--repeats N]`. Targets: 20 ms a plot at 10,000 steps, 30 ms at 100,000. Layout,
compositor and ANSI encoding are paid; the bytes are counted and dropped. Each refresh has one step more than
the one before, as in a live run. "view" is the chart's data: made from the run's state, with the expectation
of a random search, which is computed again only when what it follows from has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import console_session
import numpy as np
from console_cost import CountingDriver, painted

from warpdeck.sessions.series import Series
from warpdeck.sessions.state import RunState
from warpdeck.tui import curves
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.sources import LiveSource
from warpdeck.tui.widgets.effects import EffectsPane
from warpdeck.tui.widgets.plot import Plot

KNOBS = {
    "block_size": [64, 128, 256, 512, 1024],
    "items": [1, 2, 4, 8, 16, 32],
    "vector": [1, 2, 4],
    "unroll": [1, 2, 4, 8],
    "stages": [1, 2, 3, 4],
    "reg_cap": [0, 32, 64, 96, 128, 168],
    "swizzle": [0, 1, 2, 3],
    "split": [1, 2, 4, 8],
}
COUNTS = (100, 10_000, 100_000)


def steps(count: int) -> Series:
    """A run's steps: as many configurations of a space of 138,240, drawn at random; every ninth failed."""
    rng = np.random.default_rng(0)
    space = int(np.prod([len(values) for values in KNOBS.values()]))
    codes = rng.permutation(space)[:count]
    speedup = rng.gamma(4, 0.3, count)
    speedup[::9] = np.nan
    best = np.fmax.accumulate(speedup)
    series = Series()
    for i in range(count):
        reward = -1.0 if np.isnan(speedup[i]) else speedup[i] - 1
        series = series.append(i + 1, reward, speedup[i], best[i], int(codes[i]))
    return series


async def measure(folder: Path, size: tuple[int, int], repeats: int) -> list[list[str]]:
    """Rows of the table at one size of terminal."""
    screen = RunScreen(LiveSource(folder), interval=None)
    app = WarpdeckApp(screen)
    app.driver_class = CountingDriver
    rows: list[list[str]] = []

    async def watch() -> None:
        while not screen.is_mounted:
            await asyncio.sleep(0.01)
        await screen.tick()
        while screen.state.info is None:
            await screen.tick()
        for _ in range(5):
            await screen.tick()
        await asyncio.sleep(0.5)
        info = screen.state.info
        assert info is not None
        object.__setattr__(info, "data", {**info.data, "knobs": KNOBS})
        info.__dict__.pop("_places", None)
        for count in COUNTS:
            for name, act in panes(screen).items():
                rows.append(
                    [f"{size[0]}×{size[1]}", f"{count:,}", name, *await cost(screen, act, count, repeats)]
                )
        app.exit()

    watching = asyncio.create_task(watch())
    await app.run_async(size=size)
    await watching
    return rows


def panes(screen: RunScreen) -> dict[str, Callable[[RunState], None]]:
    """What refreshes each pane."""
    chance = curves.Chance()
    reward, speedup = (screen.query_one(f"#{name}", Plot) for name in ("reward", "speedup"))
    effects = screen.query_one(EffectsPane)

    def zoomed(state: RunState) -> None:
        if speedup.window is None:
            for _ in range(3):
                speedup.action_zoom(1)
        speedup.show(curves.speedup_series(state, chance.of(state)))

    found: dict[str, Callable[[RunState], None]] = {
        "speedup plot": lambda state: speedup.show(curves.speedup_series(state, chance.of(state))),
        "speedup plot, zoomed": zoomed,
    }
    if reward.size.width:
        found["reward plot"] = lambda state: reward.show(curves.reward_series(state))
    if effects.size.width:
        found["knob effects"] = lambda state: effects.show(*curves.knob_effects(state), empty="")
    return found


async def cost(
    screen: RunScreen, act: Callable[[RunState], None], count: int, repeats: int
) -> tuple[str, str, str]:
    """Median and 95th percentile of process ms, and bytes written, for a refresh after one more step."""
    state, series = screen.state, steps(count)
    taken, written = [], []
    for i in range(repeats + 1):
        series = series.append(count + i + 1, 0.2, 1.2 + 0.1 * (i % 2), 3.0 + 0.01 * i, i)
        object.__setattr__(state, "steps", series)  # the frozen state of a run this long
        before, began = CountingDriver.written, time.process_time()
        act(state)
        await painted(screen.app)
        if i:  # the first has everything to compute and draw
            taken.append((time.process_time() - began) * 1e3)
            written.append(CountingDriver.written - before)
    p95 = statistics.quantiles(taken, n=20)[-1]
    return f"{statistics.median(taken):.1f}", f"{p95:.1f}", f"{statistics.median(written) / 1024:.1f}"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    print("| terminal | steps | pane | ms a refresh | p95 | KB written |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        folder = console_session.write(Path(home), 100, ended=True)
        for size in ((80, 24), (120, 40)):
            for row in asyncio.run(measure(folder, size, options.repeats)):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

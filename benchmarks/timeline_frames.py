"""Frame times of the timeline screen: panning at three zooms, 120×40 and 80×24.

`python benchmarks/timeline_frames.py [--ranges N…] [--frames N] [--trace FILE] [--disk] [--compare]`. A range
is two events. The trace is the worst case: every range has a stage, a length and a gap drawn at random, so
that nearly every column differs from the next. `--disk`: the trace is written as a .wdtrace of as many events
first, and `read_s` is reading and decoding that file, `open_s` from before reading to the first frame (the
console itself being up). `--compare`: the screen with two such traces, linked: each frame draws both.
`--trace`: the frames of a recorded trace instead, and the wall time from starting `warpdeck trace FILE
--show` in a terminal to its first frame.
Layout, compositor and ANSI encoding are paid; the bytes are dropped. Each size runs in a process of its own,
with the garbage collector as the console sets it.
Targets at 120×40: 16 ms (median) and 33 ms (95%) at 100,000 events, 25 ms (median) at a million; a million
loaded in 1 s, in 150 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import numpy as np
from textual.drivers.headless_driver import HeadlessDriver
from textual.screen import Screen

from warpdeck.core.tracing import read
from warpdeck.telemetry.trace.timeline import Clock, Marks, Slices, Timeline, Warps
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.lean import lean
from warpdeck.tui.memory import settle
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen

ROWS, STAGES = 64, 8
ZOOMS = {"all": 1, "20x": 20, "1000x": 1000}


class CountingDriver(HeadlessDriver):
    """No terminal, but everything that would be written to one is made and counted."""

    written = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        CountingDriver.written += len(lean(data).encode())


def noise(ranges: int, seed: int = 0) -> Timeline:
    """A trace of 64 warps with `ranges` ranges of 8 stages at random."""
    rng = np.random.default_rng(seed)
    each = ranges // ROWS
    length, gap = rng.integers(5, 50, (ROWS, each)), rng.integers(0, 10, (ROWS, each))
    end = np.cumsum(length + gap, axis=1).astype(np.float64)
    row = np.repeat(np.arange(ROWS, dtype=np.int32), each)
    count = len(row)
    warp = np.arange(ROWS, dtype=np.int32)
    zero = np.zeros(count, dtype=np.int16)
    slices = Slices(
        row,
        rng.integers(0, STAGES, count).astype(np.int16),
        (end - length).ravel(),
        end.ravel(),
        zero,
        np.arange(count, dtype=np.int32) % 1000,
        zero.astype(np.uint8),
        zero.astype(np.uint8),
        row,
    )
    warps = Warps(
        warp // 4,
        warp % 4,
        warp // 4,
        np.zeros(ROWS),
        np.full(ROWS, end.max()),
        np.full(ROWS, 2 * each),
        np.zeros(ROWS, dtype=np.int64),
        np.ones(ROWS, dtype=bool),
    )
    none = np.zeros(0)
    marks = Marks(none.astype(np.int32), none.astype(np.int16), none, none.astype(np.int32), none)
    names = tuple(f"stage{i}" for i in range(STAGES))
    return Timeline(names, warps, slices, marks, (), 0, Clock("fit", 1.98, 0.5, 2.0, 33))


async def painted(screen: Screen[None]) -> None:
    """Until what was asked to be redrawn has been written; no time is spent meanwhile."""
    done = asyncio.Event()
    screen.call_after_refresh(done.set)
    await done.wait()


def write_noise(ranges: int, path: Path) -> None:
    """The same as a trace on disk, as the GPU would have recorded it: `ranges` pairs of events."""
    tests = Path(__file__).parents[1] / "tests"
    sys.path.insert(0, str(tests))
    import trace_synthetic

    from warpdeck.telemetry.trace import store

    iterations = max(1, ranges // (ROWS * 2))  # two ranges an iteration
    store.save(trace_synthetic.loops(ctas=ROWS // 4, warps=4, iterations=iterations, shape="flat"), path)


async def measure(
    source: int | Path, frames: int, size: tuple[int, int], compare: bool = False
) -> dict[str, object]:
    """Open the screen and pan, in processor milliseconds a frame."""
    began = time.perf_counter()
    timeline = noise(source) if isinstance(source, int) else read(source)
    read_s = time.perf_counter() - began
    second = noise(source, seed=1) if compare and isinstance(source, int) else None
    found: dict[str, object] = {"ranges": len(timeline.slices.row), "size": f"{size[0]}x{size[1]}"}
    if isinstance(source, Path):
        found.update(trace=source.name, events=timeline.events, read_s=round(read_s, 3))
        if not source.name.startswith("noise"):
            found["first_frame_s"] = round(first_frame_s(source, size), 3)
    began = time.perf_counter()
    screen = TimelineScreen(timeline) if second is None else CompareTimelineScreen(timeline, second)
    app = WarpdeckApp(screen)
    app.driver_class = CountingDriver

    async def watch() -> None:
        while not CountingDriver.written or not screen.is_current:
            await asyncio.sleep(0.005)
        found["load_s"] = round(time.perf_counter() - began, 3)
        found["open_s"] = round(time.perf_counter() - began + read_s, 3)
        await asyncio.sleep(1.0)
        pane = screen.pane if isinstance(screen, TimelineScreen) else screen.panes[0]
        for name, factor in ZOOMS.items():
            costs, written = [], CountingDriver.written
            span = (pane.high - pane.low) / factor
            for i in range(frames):
                start = pane.low + (pane.high - pane.low - span) / 2 + i * span / 100
                if (
                    factor == 1
                ):  # all is visible: nothing to pan to, so go from slightly less to slightly more
                    span, start = (pane.high - pane.low) * (1 - 0.001 * (i % 90)), pane.low
                cpu = time.process_time()
                pane.set_view(start, start + span)
                await painted(screen)
                costs.append((time.process_time() - cpu) * 1e3)
            costs.sort()
            found[name] = {
                "p50_ms": round(statistics.median(costs), 1),
                "p95_ms": round(costs[int(0.95 * len(costs))], 1),
                "kb": round((CountingDriver.written - written) / frames / 1024, 1),
            }
        # Not getrusage's: that begins with the peak of the process which started this one.
        found["peak_mb"] = round(memory_mb("VmHWM"), 1)
        found["rss_mb"] = round(memory_mb("VmRSS"), 1)
        app.exit()

    watching = asyncio.create_task(watch())
    await app.run_async(size=size)
    await watching
    return found


def first_frame_s(trace: Path, size: tuple[int, int]) -> float:
    """From starting the console on a trace, in a terminal of its own, to the first frame, seconds."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        rows_columns = struct.pack("HHHH", size[1], size[0], 0, 0)
        fcntl.ioctl(0, termios.TIOCSWINSZ, rows_columns)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "warpdeck", "trace", str(trace), "--show"])
    seen = b""
    while b"Timeline" not in seen:
        seen += os.read(terminal, 65536)
    took = time.perf_counter() - began
    os.write(terminal, b"q")
    with contextlib.suppress(OSError):  # the terminal is gone when its process is
        while os.read(terminal, 65536):
            pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return took


def memory_mb(name: str) -> float:
    """Resident memory of this process, now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


def main() -> None:
    """Measure each size in a process of its own and print a JSON document a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranges", type=int, nargs="*", default=[50_000, 100_000, 500_000, 1_000_000])
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        settle()  # as the console does
        os.environ["COLORTERM"] = "truecolor"
        source, width, height = options.one
        known = int(source) if source.isdecimal() else Path(source)
        found = asyncio.run(measure(known, options.frames, (int(width), int(height)), options.compare))
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as scratch:
        sources: list[int | Path] = [options.trace] if options.trace else list(options.ranges)
        if options.disk:
            paths = [Path(scratch, f"noise-{ranges}.wdtrace") for ranges in options.ranges]
            for ranges, path in zip(options.ranges, paths, strict=True):
                write_noise(ranges, path)
            sources = list(paths)
        for source in sources:
            for width, height in ((120, 40), (80, 24)):
                one = ["--one", str(source), str(width), str(height), "--frames", str(options.frames)]
                more = ["--compare"] if options.compare else []
                subprocess.run([sys.executable, __file__, *one, *more], check=True)


if __name__ == "__main__":
    main()

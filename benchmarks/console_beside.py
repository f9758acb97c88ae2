"""The dashboard beside nvitop, where both do the same: first screen, processor time, output, memory.

    pip install nvitop; python benchmarks/console_beside.py [--seconds 12] [--runs 5]

On a machine with a GPU. A real `warpdeck tune` goes on meanwhile, in front of both. Each is on a
pseudo-terminal of 120×40; the first screen is there when the GPU's name, or the best configuration, was
written. The dashboard is measured as it is (4 Hz) and at 1 Hz, nvitop at 1 Hz. The dashboard's NVML readings
are made by a process of the run's, without a dashboard too: its processor time is a line of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console_terminal import Terminal

from warpdeck.sessions.launch import launch_run
from warpdeck.sessions.spec import RunSpec

AT_1_HZ = (
    "import sys; from pathlib import Path; from warpdeck import tui; tui._hasten();"
    "from warpdeck.tui.sources import LiveSource; from warpdeck.tui.screens.run import RunScreen;"
    "tui._run(RunScreen(LiveSource(Path(sys.argv[1]), attach=True), interval=1.0))"
)


def measure(
    command: Sequence[str], first: bytes, seconds: float, runs: int, home: Path
) -> dict[str, float] | str:
    """What a program costs; why it can't be told."""
    paints = []
    for run in range(runs + 1):
        terminal = Terminal(command, home=home)
        try:
            terminal.until(first)
            paints.append((time.perf_counter() - terminal.began) * 1e3)
            if run < runs:
                continue
            terminal.read(3)
            cpu, written, began = terminal.cpu_s(), terminal.written, time.perf_counter()
            terminal.read(seconds)
            took = time.perf_counter() - began
            return {
                "first_screen_ms": round(statistics.median(paints[1:])),  # without the one that fills caches
                "cpu_percent": round(100 * (terminal.cpu_s() - cpu) / took, 2),
                "output_kb_s": round((terminal.written - written) / took / 1024, 1),
                "rss_mb": round(terminal.rss_mb(), 1),
            }
        except SystemExit as problem:
            return str(problem)
        finally:
            terminal.close()
    raise AssertionError(runs)


def reader(parent: int) -> int | None:
    """The process that reads NVML for a run."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
            line = status.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(words[1]) == parent and b"nvml" in line:
            return int(status.parent.name)
    return None


def cpu_s(pid: int) -> float:
    """Processor seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the run ends with this
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        spec = RunSpec("gemm", agent="random", device=options.device, sizes=(1024,), steps=100_000, seed=1)
        run = launch_run(spec, name="beside", sessions=home / "sessions")
        try:
            attach = [sys.executable, "-m", "warpdeck", "attach", str(run.folder)]
            slow = [sys.executable, "-c", AT_1_HZ, str(run.folder)]
            other = [sys.executable, "-m", "nvitop", "--monitor", "full", "--interval", "1"]
            waiting = Terminal(attach, home=home)
            waiting.until(b"Leaderboard, best", seconds=60)  # the run has begun
            waiting.close()
            pid = reader(run.process.pid)
            began, before = time.perf_counter(), cpu_s(pid) if pid else 0.0
            best = b"Leaderboard, best"
            found["warpdeck, 4 Hz"] = measure(attach, best, options.seconds, options.runs, home)
            found["warpdeck, 1 Hz"] = measure(slow, best, options.seconds, options.runs, home)
            if importlib.util.find_spec("nvitop"):
                found["nvitop, 1 Hz"] = measure(other, b"H200", options.seconds, options.runs, home)
            else:
                found["nvitop, 1 Hz"] = "not installed"
            if pid:
                share = 100 * (cpu_s(pid) - before) / (time.perf_counter() - began)
                found["the run's reader of NVML"] = {"cpu_percent": round(share, 2)}
        finally:
            run.process.terminate()
            run.process.wait(30)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""Synthetic runs, and the screens over them with an injected source and clock: no timers, no sleeping."""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.widgets import Input
from textual.worker import WorkerCancelled

from warpdeck.core.errors import WarpdeckError
from warpdeck.sessions.events import Event
from warpdeck.sessions.state import RunState, reduce_all
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.sources import Capabilities

START = 1_796_000_000.0
RECORDED = {
    "name": "NVIDIA H200",
    "spec": "recorded:h200",
    "recorded": True,
    "date": "2026-11-20",
    "compute_capability": [9, 0],
    "sm_count": 132,
    "l2_bytes": 62914560,
    "memory_bytes": 150_000_000_000,
    "dram_gbs": 4812.8,
    "fp32_tflops": 66.9,
    "sm_clock_max_mhz": 1980.0,
    "driver": "580.95",
}
LIVE = {**RECORDED, "spec": "cuda:0", "recorded": False, "date": None}


def evaluation(step: int, rng: random.Random, baseline_ms: float = 0.02) -> dict[str, Any]:
    """One `evaluation` event's data; every ninth is incorrect."""
    config = {
        "block_size": rng.choice([64, 128, 256]),
        "items": rng.choice([1, 2, 4, 8]),
        "reg_cap": rng.choice([0, 32]),
    }
    data: dict[str, Any] = {
        "step": step,
        "candidate": f"{config['block_size']}-{config['items']}-{config['reg_cap']}",
        "variant": "tiled",
        "source_hash": "0" * 12,
        "config": config,
        "status": "ok",
        "message": "",
        "score_ms": None,
        "measurements": [],
        "resources": {"registers": 16 + config["items"] * 4, "occupancy": 0.75, "code_hash": ""},
        "same_as": None,
    }
    if step % 9 == 0:
        return {**data, "status": "incorrect", "message": "case odd: element 3 is 1.0, expected 2.0"}
    ms = baseline_ms * (1.2 - 0.05 * config["items"]) * rng.uniform(0.98, 1.02)
    data["score_ms"] = ms
    data["measurements"] = [
        {
            "case": "1024",
            "cache": "cold",
            "clock": "cupti",
            "median_ms": ms,
            "ci95_ms": [ms * 0.99, ms * 1.01],
        }
    ]
    return data


def run_events(
    steps: int = 60, device: dict[str, Any] = RECORDED, *, planned: int | None = None, end: bool = False
) -> list[Event]:
    """A run of `steps` steps, one a second."""
    rng = random.Random(7)
    events: list[Event] = []

    def add(kind: str, data: dict[str, Any], t: float) -> None:
        events.append(Event(len(events) + 1, START + t, kind, data))

    add("state", {"state": "running", "reason": ""}, 0.0)
    add(
        "start",
        {
            "workload": "softmax",
            "agent": "random",
            "seed": 1,
            "space": "full",
            "cases": [{"name": "1024", "params": {"n": 1024}}],
            "device": device,
            "protocol": {"cache": "cold", "samples": 100},
            "steps": planned or steps,
            "baseline": {"block_size": 256, "items": 1, "reg_cap": 0},
            "knobs": {"block_size": [64, 128, 256], "items": [1, 2, 4, 8], "reg_cap": [0, 32]},
            "vendor": {"1024": {"name": "PyTorch", "median_ms": 0.018}},
            "floors": {"1024": 0.008},
        },
        0.1,
    )
    base = evaluation(1, random.Random(0))
    base.update(candidate="baseline", config={"block_size": 256, "items": 1, "reg_cap": 0}, score_ms=0.02)
    base["measurements"] = [
        {"case": "1024", "cache": "cold", "clock": "cupti", "median_ms": 0.02, "ci95_ms": [0.0199, 0.0201]}
    ]
    add("baseline", base, 0.5)
    add("message", {"level": "info", "text": "softmax on the device"}, 0.6)
    best = None
    for step in range(1, steps + 1):
        data = evaluation(step, rng)
        speedup = None if data["score_ms"] is None else 0.02 / data["score_ms"]
        best = max((s for s in (best, speedup) if s is not None), default=None)
        add("evaluation", data, float(step))
        if data["status"] != "ok":
            add("message", {"level": "warning", "text": f"step {step}: {data['status']}"}, float(step))
        if not device["recorded"]:
            add(
                "sample",
                {
                    "t": START + step,
                    "gpu_util": 87,
                    "mem_util": 41,
                    "mem_used": 30_000_000_000,
                    "mem_total": 150_000_000_000,
                    "temp_c": 54,
                    "power_w": 412.0,
                    "power_limit_w": 700.0,
                    "sm_mhz": 1755,
                    "sm_max_mhz": 1980,
                    "mem_mhz": 3201,
                    "mem_max_mhz": 3201,
                    "throttle": ["software power cap"] if step % 2 else [],
                },
                float(step),
            )
        add(
            "step",
            {
                "step": step,
                "reward": -1.0 if speedup is None else speedup - 1,
                "speedup": speedup,
                "best_speedup": best,
                "config": data["config"],
                "status": data["status"],
            },
            float(step),
        )
    if end:
        add("state", {"state": "finished", "reason": "step budget reached"}, float(steps) + 1)
    return events


class FakeSource:
    """A RunSource over a list of events; `arrive(n)` lets n more in."""

    def __init__(self, events: list[Event], *, attach: bool = False) -> None:
        self.capabilities = Capabilities(live=True, attach=attach)
        self.session = "softmax-random-20261129-151204-3f9c"
        self.folder: Path | None = None
        self.events = events
        self.arrived = len(events)
        self.clock = events[-1].t
        self.commands: list[str] = []
        self.trouble: str | None = None
        self.closed = False
        self.stops = 0
        self._state = RunState()

    def poll(self) -> RunState | None:
        if self.trouble:
            raise WarpdeckError(self.trouble)
        new = self.events[self._state.seq : self.arrived]
        if not new:
            return None
        self._state = reduce_all(new, self._state)
        return self._state

    def now(self) -> float:
        return self.clock

    def command(self, name: str) -> None:
        if self.trouble:
            raise WarpdeckError(self.trouble)
        self.commands.append(name)

    def stop(self, notify: Callable[[str], None]) -> str:
        self.stops += 1
        notify("it did not stop within 10 s; sending SIGTERM")
        return "terminated"

    def close(self) -> None:
        self.closed = True


def screen_lines(app: WarpdeckApp) -> list[str]:
    """The screen as text, row by row."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


class Console:
    """A running app: what it shows, and keys pressed into it; each key is followed by a poll."""

    def __init__(self, app: WarpdeckApp, pilot: Pilot[int], screen: Any) -> None:
        self.app, self.pilot, self.screen = app, pilot, screen

    @property
    def lines(self) -> list[str]:
        return screen_lines(self.app)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def dialog(self) -> str:
        """The words in the dialog on top."""
        box = self.app.screen.query_one("#dialog").region
        rows = self.lines[box.y : box.bottom]
        return " ".join(" ".join(row[box.x + 1 : box.right - 1] for row in rows).split())

    async def poll(self) -> None:
        """As the timer would."""
        await self.screen.tick()
        await self.settle()

    async def settle(self) -> None:
        """Until workers are done and what they notified is on the screen.

        Every pause waits until all widgets have handled their messages, and then paints. Textual's own also
        sleeps until the process has been idle for 20 ms, which is most of a test's time.
        """
        for worker in list(self.app.workers):
            with suppress(WorkerCancelled):  # a newer one of its group took its place
                await worker.wait()
        for _ in range(2):
            await self.pilot.pause(0)

    async def told(self, words: str) -> bool:
        """Whether a notification with these words comes to the screen, however its lines are broken there."""
        return await self.until(
            lambda: any(words in str(toast.render()) for toast in self.app.screen.query("Toast"))
        )

    async def until(self, condition: Callable[[], object]) -> bool:
        """Whether it becomes true: what follows from a key may take several rounds on a busy machine."""
        for _ in range(500):
            if condition():
                return True
            await self.pilot.pause(0.02)
        return False

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.tap(key)
            await self.settle()

    async def tap(self, key: str) -> None:
        """A key, by its name; what it does is done on return, but not yet what follows from that."""
        try:
            character = unicodedata.lookup(key.replace("_", " "))
        except KeyError:
            character = key if len(key) == 1 else None
        self.app.post_message(events.Key(key, character))
        await self.pilot.pause(0)


@pytest.fixture(autouse=True)
def kernels_are_compiled_once(compiled_once: None) -> None:
    """The same few are shown everywhere."""


@pytest.fixture(autouse=True)
def nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freezing what exists is for a process with one app: here every test's garbage would stay for good."""
    monkeypatch.setattr("warpdeck.tui.app._freeze", lambda: None)


@pytest.fixture(autouse=True)
def words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was notified stays on the screen, however slow the machine is."""
    monkeypatch.setattr(Notification, "time_left", property(lambda self: 3600.0))


@pytest.fixture(autouse=True)
def cursors_do_not_blink(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a picture shows of a text field doesn't depend on when it is taken."""
    monkeypatch.setattr(Input, "_toggle_cursor", lambda self: None)


@asynccontextmanager
async def opened(source: Any, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Console]:
    screen = RunScreen(source, interval=None)
    app = WarpdeckApp(screen)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        console = Console(app, pilot, screen)
        await console.poll()
        yield console


@asynccontextmanager
async def shown(screen: Any, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Console]:
    """A screen that isn't polled."""
    app = WarpdeckApp(screen)
    async with app.run_test(size=size, notifications=True) as pilot:
        console = Console(app, pilot, screen)
        await console.settle()
        yield console


def write_session(sessions: Path, events: list[Event], name: str = "softmax-random-1") -> Path:
    """The events as a session on disk."""
    with SessionStore.create(sessions, name, {"workload": "softmax"}) as store:
        store.append_many([(e.kind, e.data, e.t) for e in events])
        return store.folder


class Kit:
    """What the tests build with; the conftest can't be imported."""

    source = FakeSource
    events = staticmethod(run_events)
    open = staticmethod(opened)
    show = staticmethod(shown)
    console = Console
    write = staticmethod(write_session)
    live = LIVE
    start = START


@pytest.fixture
def kit() -> Kit:
    return Kit()


SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def snapshot_text() -> Callable[[str, str], None]:
    """Compare a screen's text with the stored one; `WARPDECK_UPDATE_SNAPSHOTS=1` stores it anew."""

    def check(name: str, text: str) -> None:
        shown = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        file = SNAPSHOTS / f"{name}.txt"
        if os.environ.get("WARPDECK_UPDATE_SNAPSHOTS") == "1":
            file.parent.mkdir(exist_ok=True)
            file.write_text(shown, encoding="utf-8")
        assert shown == file.read_text(encoding="utf-8"), f"{file.name} differs"

    return check

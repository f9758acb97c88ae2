"""Screenshots for README and documentation: seeded runs on a recording and the session that comes with the
package, shown by the console itself.

`python docs/screenshots.py [--device recorded:h200] [--out docs/images]` writes one SVG a screen. The same
code and recording give the same bytes: runs are seeded, sizes are fixed, and the events of the runs made here
are shown as if they had come at even intervals from a fixed time on. Braille is redrawn as dots, since most
fonts that viewers fall back to have none; nothing is fetched when a picture is viewed.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpdeck.telemetry.ncu.counters import Counters
    from warpdeck.telemetry.trace.timeline import Timeline
    from warpdeck.tui.screens.run import RunScreen

SIZES = {"wide": (120, 40), "small": (80, 24)}
BEGAN = 1_795_953_600.0  # 2026-11-29 12:00 UTC
EVENT_S = 0.02  # between two events, as if on a GPU
MAIN = "softmax-tpe-1"
# name, workload, agent, sizes, steps: the last is what the Run screen shows.
RUNS = (
    ("reduction-random-1", "reduction", "random", (8192,), 60),
    ("gemm-tpe-1", "gemm", "tpe", (1024, 4096), 80),
    ("softmax-random-1", "softmax", "random", (1024, 4096, 8192), 120),
    (MAIN, "softmax", "tpe", (1024, 4096, 8192), 120),
)
LADDER = "gemm-ladder-h200"  # bundled: a climb that was measured
BEST = 40  # its attempt that was kept last, of 51
LAPTOP: tuple[
    tuple[Any, ...], ...
] = (  # what a machine without a GPU is told, the same wherever the pictures are made
    ("python", True, "Python 3.12 on Linux x86_64"),
    ("driver", False, "no NVIDIA driver", "to measure here, install an NVIDIA driver"),
    ("gpu", False, "no CUDA GPU", "use --device recorded:h200, or a machine with a GPU"),
    ("sandbox", True, "code of others runs under bubblewrap"),
    ("disk space", True, "60.0 GiB free"),
)
MADE_UP = "warpdeck (an example: answers and times are made up)"
# Keys before a picture: the cursor to a wait of the first consumer warp, between two tiles.
KEYS = {"timeline": ("[right_square_bracket]",) * 4}
# Dot numbering of Unicode braille: bit i is at (column, row).
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
TEXT = re.compile(
    r'<text class="(?P<class>[^"]*)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="(?P<length>[\d.]+)"'
    r"[^>]*>(?P<text>[^<]*)</text>"
)
LINE_CLIP = re.compile(
    r'<clipPath id="[^"]*line-\d+">.*?</clipPath>\s*| clip-path="url\(#[^"]*line-\d+\)"', re.DOTALL
)
BLANK_TEXT = re.compile(r"<text [^>]*>(?:&#160;|\xa0|\s)*</text>")
CRISP, CRISP_RULE = ' shape-rendering="crispEdges"', "g rect { shape-rendering: crispEdges }"
FONT_FACE = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
FONTS = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace'


def portable(svg: str, line_height: float = 24.4) -> str:
    """The SVG without fonts from elsewhere, and with dots of its colour for every braille character."""

    def redraw(match: re.Match[str]) -> str:
        text = html.unescape(match["text"]).replace("\xa0", " ")
        if not any(0x2800 <= ord(c) < 0x2900 for c in text):
            return match[0]
        width = float(match["length"]) / len(text)
        left, top = float(match["x"]), float(match["y"]) - 0.75 * line_height
        dots = []
        for i, character in enumerate(text):
            bits = ord(character) - 0x2800
            if not 0 <= bits < 256:
                bits = 0
            for bit, (column, row) in enumerate(DOTS):
                if bits >> bit & 1:
                    x = left + (i + 0.28 + 0.5 * column) * width
                    y = top + (0.125 + 0.25 * row) * line_height
                    dots.append(f"M{x - 1.7:.0f} {y - 1.7:.0f}h3v3h-3z")
        rest = "".join(" " if 0x2800 <= ord(c) < 0x2900 else c for c in text).replace(" ", "\xa0")
        kept = match[0].replace(match["text"], html.escape(rest)) if rest.strip("\xa0") else ""
        return f'{kept}<path class="{match["class"]}" d="{"".join(dots)}"/>'

    svg = FONT_FACE.sub("", svg).replace("Fira Code, monospace", FONTS)
    svg = re.sub(r"terminal-\d+-", "t-", TEXT.sub(redraw, svg))
    svg = LINE_CLIP.sub(
        "", svg
    )  # every text says its length: there is nothing to clip, and it doubles the size
    svg = BLANK_TEXT.sub("", svg).replace(CRISP, "").replace("<style>", f"<style>\n{CRISP_RULE}", 1)
    return re.sub(r"\n\s*", "\n", svg)


def respaced(folder: Path, sessions: Path, name: str, began: float) -> Path:
    """A copy of the session whose events are `EVENT_S` apart, so that no picture depends on how fast this
    machine is."""
    from warpdeck.sessions.store import SessionStore

    with SessionStore.open(folder) as source, SessionStore.create(sessions, name, source.header()) as copy:
        events = [e for e in source.events(0) if e.kind != "artifact"]
        copy.append_many([(e.kind, e.data, began + i * EVENT_S) for i, e in enumerate(events)])
        return copy.folder


def example(sessions: Path) -> Path:
    """A session of the `llm` agent as the tests build it: no model was asked and nothing was measured."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import llm_logs

    from warpdeck.sessions.store import SessionStore

    with SessionStore.create(sessions, "row_sum-llm-1", {"workload": "row_sum"}) as store:
        store.append_many([(e.kind, e.data, e.t) for e in llm_logs.llm_events()])
        llm_logs.write_sources(store.folder)
        return store.folder


async def shoot(
    save: Callable[[Any, str], None], screen: Any, size: tuple[int, int], *shots: str, theme: str = "dark"
) -> None:
    """Open an app on a screen; a shot is the picture's name, or keys in brackets."""
    from warpdeck.tui.app import WarpdeckApp
    from warpdeck.tui.screens.run import RunScreen
    from warpdeck.tui.settings import Settings

    app = WarpdeckApp(screen, Settings(theme=theme))
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        for shot in shots:
            if isinstance(screen, RunScreen):
                for _ in range(5):  # the plots and the table are drawn less often than polled
                    await screen.tick()
            for _ in range(3):  # what a worker brings is laid out, then painted
                await app.workers.wait_for_complete()
                await pilot.pause()
            if shot.startswith("["):
                await pilot.press(shot.strip("[]"))
                await app.workers.wait_for_complete()
            else:
                save(app, shot)


def recorded_screens(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(picture, what makes its screen) of the traces and counters that the recording holds."""
    from warpdeck.core.tracing import decoded
    from warpdeck.sessions.profiles import profile_one
    from warpdeck.sessions.traces import trace_named
    from warpdeck.tui.screens.code import CodeScreen
    from warpdeck.tui.screens.counters import CountersScreen
    from warpdeck.tui.screens.counters_compare import CompareCountersScreen
    from warpdeck.tui.screens.timeline import TimelineScreen
    from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen
    from warpdeck.tui.source_files import of_counters

    def trace(variant: str) -> Timeline:
        return decoded(trace_named("gemm", device=device, variant=variant))

    def profile(variant: str) -> Counters:
        return profile_one("gemm", device, variant=variant)

    yield "timeline", lambda: TimelineScreen(trace("pipelined"))
    yield "timeline-compare", lambda: CompareTimelineScreen(trace("tiled"), trace("cuda"))
    yield "counters", lambda: CountersScreen(profile_one("softmax", device))
    yield "counters-compare", lambda: CompareCountersScreen(profile("classic"), profile("tiled"))
    yield "code", lambda: CodeScreen(*of_counters(profile("pipelined"), None))


async def screens(sessions: Path, out: Path, device: str) -> None:
    """Write every picture."""
    from warpdeck.core.doctor import Check
    from warpdeck.core.errors import WarpdeckError
    from warpdeck.tui.screens.new_run import NewRunScreen
    from warpdeck.tui.screens.run import RunScreen
    from warpdeck.tui.screens.sessions import SessionsScreen
    from warpdeck.tui.screens.start import StartScreen
    from warpdeck.tui.sources import LiveSource, ReplaySource

    def save(app: Any, name: str, title: str = "warpdeck") -> None:
        path = out / f"{name}.svg"
        path.write_text(portable(app.export_screenshot(title=title)))
        print(path)

    def save_example(app: Any, name: str) -> None:
        save(app, name, MADE_UP)

    def replay(start: float) -> RunScreen:
        return RunScreen(ReplaySource(sessions / MAIN, start=start, clock=lambda: 0.0), interval=None)

    def live() -> RunScreen:
        return RunScreen(LiveSource(sessions / MAIN), interval=None)

    await shoot(save, live(), SIZES["wide"], "run", "[question_mark]", "help")
    await shoot(save, live(), SIZES["small"], "run-80x24")
    await shoot(save, live(), SIZES["wide"], "run-light", theme="light")
    await shoot(save, replay(math.inf), SIZES["wide"], "[6]", "replay")

    def climb() -> RunScreen:
        return RunScreen(ReplaySource(sessions / LADDER, start=math.inf, clock=lambda: 0.0), interval=None)

    await shoot(save, climb(), SIZES["wide"], "[g]", *["[j]"] * (BEST - 1), "ladder")
    await shoot(save, climb(), SIZES["wide"], "[g]", *["[j]"] * 6, "[s]", "source")
    with tempfile.TemporaryDirectory() as scratch:
        folder = example(Path(scratch))
        for size, name in ((SIZES["wide"], "llm"), (SIZES["small"], "llm-80x24")):
            source = ReplaySource(folder, start=math.inf, clock=lambda: 0.0)
            await shoot(save_example, RunScreen(source, interval=None), size, name)
    start = StartScreen(sessions, interval=None, checks=lambda: [Check(*told) for told in LAPTOP])
    await shoot(save, start, SIZES["wide"], "start")
    await shoot(save, NewRunScreen(sessions, delay=0), SIZES["wide"], "new-run")
    listed = SessionsScreen(sessions, interval=None)
    await shoot(save, listed, SIZES["wide"], "[j]", "[m]", "[m]", "[c]", "compare")
    for name, make in recorded_screens(device):
        try:
            await shoot(save, make(), SIZES["wide"], *KEYS.get(name, ()), name)
        except WarpdeckError as error:
            print(f"{name}: left out: {error}")


def main() -> None:
    """Make the runs, then the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.absolute()
    os.environ.pop("NO_COLOR", None)
    os.environ["TZ"] = "UTC"
    time.tzset()
    from warpdeck.sessions.examples import resolve
    from warpdeck.sessions.launch import launch_run
    from warpdeck.sessions.spec import RunSpec

    with tempfile.TemporaryDirectory() as scratch:
        os.environ["HOME"] = scratch  # the start screen shows where the sessions are
        home = Path(scratch, ".local/share/warpdeck")
        shown = home / "sessions"
        specs = [
            (name, RunSpec(workload, agent=agent, device=options.device, sizes=sizes, steps=steps, seed=1))
            for name, workload, agent, sizes, steps in RUNS
        ]
        for number, (name, spec) in enumerate(specs):
            os.environ["WARPDECK_HOME"] = str(Path(scratch, "runs"))
            run = launch_run(spec, name=name)
            if run.wait():
                raise SystemExit(f"the run failed: {run.last_words()}")
            os.environ["WARPDECK_HOME"] = str(home)
            respaced(run.folder, shown, name, BEGAN + 600 * number)
        os.environ["WARPDECK_HOME"] = str(home)
        resolve(LADDER)  # unpacks it
        asyncio.run(screens(shown, out, options.device))


if __name__ == "__main__":
    main()

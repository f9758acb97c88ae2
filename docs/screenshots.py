"""Screenshots for README and documentation: a seeded run on a recording, shown by the console itself.

`python docs/screenshots.py [--device recorded:h200] [--out docs/images]` writes one SVG a screen. Braille is
redrawn as dots, since most fonts that viewers fall back to have none.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import math
import os
import re
import tempfile
from pathlib import Path

SIZE = (120, 36)
# Dot numbering of Unicode braille: bit i is at (column, row).
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
TEXT = re.compile(
    r'<text class="(?P<class>[^"]*)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="(?P<length>[\d.]+)"'
    r"[^>]*>(?P<text>[^<]*)</text>"
)


def with_dots(svg: str, line_height: float = 24.4) -> str:
    """The SVG with every braille character replaced by circles of its colour."""

    def redraw(match: re.Match[str]) -> str:
        text = html.unescape(match["text"]).replace("\xa0", " ")
        if not any(0x2800 <= ord(c) < 0x2900 for c in text):
            return match[0]
        width = float(match["length"]) / len(text)
        left, top = float(match["x"]), float(match["y"]) - 0.75 * line_height
        circles = []
        for i, character in enumerate(text):
            bits = ord(character) - 0x2800
            if not 0 <= bits < 256:
                bits = 0
            for bit, (column, row) in enumerate(DOTS):
                if bits >> bit & 1:
                    x = left + (i + 0.28 + 0.5 * column) * width
                    y = top + (0.125 + 0.25 * row) * line_height
                    circles.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.9"/>')
        rest = "".join(" " if 0x2800 <= ord(c) < 0x2900 else c for c in text).replace(" ", "\xa0")
        kept = match[0].replace(match["text"], html.escape(rest)) if rest.strip("\xa0") else ""
        return f'{kept}<g class="{match["class"]}">{"".join(circles)}</g>'

    return TEXT.sub(redraw, svg)


async def shoot(folder: Path, out: Path) -> None:
    """Write the screens over the one session in `folder`'s parent."""
    from warpdeck.tui.app import WarpdeckApp
    from warpdeck.tui.screens.run import RunScreen
    from warpdeck.tui.screens.sessions import SessionsScreen
    from warpdeck.tui.sources import ReplaySource

    def save(app: WarpdeckApp, name: str) -> None:
        path = out / f"{name}.svg"
        path.write_text(with_dots(app.export_screenshot(title="warpdeck")))
        print(path)

    run = RunScreen(ReplaySource(folder, start=math.inf, clock=lambda: 0.0), interval=None)
    app = WarpdeckApp(run)
    async with app.run_test(size=SIZE) as pilot:
        await run.tick()
        await pilot.pause()
        save(app, "run")
        await pilot.press("question_mark")
        await pilot.pause()
        save(app, "help")
    start = SessionsScreen(folder.parent, interval=None)
    app = WarpdeckApp(start)
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        save(app, "sessions")


def main() -> None:
    """Make a run, then its screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--workload", default="softmax")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    from warpdeck.sessions.launch import launch_run
    from warpdeck.sessions.spec import RunSpec

    with tempfile.TemporaryDirectory() as home:
        os.environ["WARPDECK_HOME"] = home
        spec = RunSpec(
            options.workload,
            agent="tpe",
            device=options.device,
            sizes=(options.size,),
            steps=options.steps,
            seed=1,
        )
        run = launch_run(spec, name="softmax-tpe-screenshots")
        if run.wait():
            raise SystemExit(f"the run failed: {run.last_words()}")
        asyncio.run(shoot(run.folder, options.out))


if __name__ == "__main__":
    main()

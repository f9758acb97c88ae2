"""The console on a real pseudo-terminal: what it copies, what is pasted into it, how it ends in a crash."""

from __future__ import annotations

import base64
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pseudo import Pseudo
from test_tui.conftest import LIVE, run_events, write_session
from textual import events

from warpdeck.sessions import alive
from warpdeck.tui.reading import BURST, MOST_PASTED, PASTE_S, Reader, plain


@pytest.fixture
def session(isolated_home: Path) -> Path:
    return write_session(isolated_home / "sessions", run_events(30, LIVE, end=True))


@pytest.fixture
def going_on(isolated_home: Path) -> Iterator[Path]:
    """A run that goes on: this process holds its lock."""
    folder = write_session(isolated_home / "sessions", run_events(30, LIVE))
    lock = alive.RunLock.acquire(folder)
    yield folder
    lock.release()


def attach(folder: Path, *options: str) -> Pseudo:
    return Pseudo(["-m", "warpdeck", *options, "attach", str(folder)])


def quit_and_check(console: Pseudo) -> None:
    """Whatever is on the screen, quitting works, and the terminal is as before."""
    for _ in range(60):
        console.send(b"\x11\x11")  # ctrl+q, and again as the answer; what comes with a flood is lost with it
        for _ in range(10):
            console.read()
        if console.process.poll() is not None:
            break
    assert console.end() == 0
    console.assert_clean()
    assert "crashed" not in console.text and "Error" not in console.text


def test_copy_reaches_the_terminal(session: Path) -> None:
    with attach(session) as console:
        console.until("Leaderboard")
        console.forget()
        console.send(b"y")
        console.until("copied")
        (encoded,) = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07", console.written)
        assert "--knob" in base64.b64decode(encoded).decode()
        quit_and_check(console)


def test_a_pasted_flood_of_garbage(going_on: Path) -> None:
    rng = random.Random(1)
    with attach(going_on) as console:
        console.until("Leaderboard")
        garbage = bytes(
            rng.choice(b"xyqzXY \r\n\t\x00\x03\x07\x08\x0e\x1a\x1b\x7f\x80\xff[]") for _ in range(1 << 16)
        )
        assert b"\x1b[201~" not in garbage
        console.send(b"\x1b[200~" + 48 * garbage + b"\x1b[201~")  # 3 MB, marked as a paste
        console.forget()
        console.send(b"?")
        console.until(" does ")  # it answers, and none of it was taken for keys
        console.send(b"q")
        quit_and_check(console)
        assert "the run goes on" in console.text
        assert b"Stop the run?" not in console.written


def test_bytes_that_are_no_text(going_on: Path) -> None:
    """What Textual's own reader ends at: bytes that aren't UTF-8, old mouse reports, numbers too large."""
    with attach(going_on) as console:
        console.until("Leaderboard")
        for data in (
            b"\xff\xfe\xc3\x28\xa0",
            b"\x1b[M \xf0\xf1",  # a mouse beyond column 95 in the old encoding, as on reattaching in tmux
            b"\x1b[99999999999999u",
            b"\x1b[<0;99999999999999999999;1M",
            b"\x1b[" + b"9" * 5000 + b"~",
            b"\x1b" * 300,
            b"\x1b[200~\x1b[200~\x1b[201~",
        ):
            console.send(data)
        rng = random.Random(2)
        console.send(bytes(rng.randrange(256) for _ in range(200_000)))
        console.send(b"y" * 100_000)
        console.forget()
        quit_and_check(console)


def test_keys_while_every_core_is_busy(going_on: Path) -> None:
    """As an agent keeps them. `benchmarks/key_latency.py` measures it; this bound is for a machine that runs
    other tests as well."""
    with attach(going_on) as console:
        console.until("Leaderboard")
        busy = [sys.executable, "-c", "while True: pass"]
        loops = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
        try:
            took = []
            for key in b"jjjjjkkkkk" * 2:
                console.forget()
                began = time.perf_counter()
                console.send(bytes([key]))
                console.until("▸")
                took.append(time.perf_counter() - began)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        assert statistics.median(took) < 2, took
        quit_and_check(console)


def test_resized_to_almost_nothing_and_back(session: Path) -> None:
    with attach(session) as console:
        console.until("Leaderboard")
        for width, height in ((20, 5), (1, 1), (300, 2), (20, 5)):
            console.resize(width, height)
            console.send(b"zjkp")
        console.until("60×16")
        console.forget()
        console.resize(120, 40)
        console.until("Leaderboard")
        quit_and_check(console)


CRASH = """
import sys
from warpdeck.tui import run_attach
from warpdeck.tui.widgets.plot import Plot
from warpdeck.tui.screens.run import RunScreen

usual = Plot.render_line

def broken(self, y):
    if RunScreen.broken:
        raise RuntimeError("injected into a widget")
    return usual(self, y)

def action_copy(self):
    RunScreen.broken = True
    for plot in self.query(Plot):
        plot.refresh()

Plot.render_line, RunScreen.broken, RunScreen.action_copy = broken, False, action_copy
sys.exit(run_attach(sys.argv[1]))
"""


def test_a_crash_inside_a_widget(going_on: Path) -> None:
    with Pseudo(["-c", CRASH, str(going_on)]) as console:
        console.until("Leaderboard")
        console.forget()
        console.send(b"y")
        assert console.end() == 1
        console.assert_clean()
        told = re.search(
            r"^warpdeck: error: the dashboard crashed: RuntimeError: injected into a widget;"
            r" the traceback is in (\S+)\r\nthe run goes on: `warpdeck attach softmax-random-1` comes back",
            console.text[console.text.index("warpdeck: error") :],
        ) or pytest.fail(console.text[-2000:])
        report = Path(told[1])
        assert "injected into a widget" in report.read_text() and "render_line" in report.read_text()
        report.unlink()
        assert "Traceback" not in console.text
    assert alive.is_running(going_on)


def test_mistakes_in_the_settings_are_told_on_the_screen(session: Path, isolated_home: Path) -> None:
    (isolated_home / "config.toml").write_text(
        'theme = "ligth"\n[keys]\n"run.quit" = "F4"\n"run.pick" = "y"\n'
    )
    with attach(session, "--no-mouse") as console:
        console.until("ligth")  # its line may be broken anywhere else
        console.until("run.copy")  # which has y
        assert b"\x1b[?1000h" not in console.written
        console.send(b"\x1bOS")  # F4
        assert console.end() == 0
        assert not re.search(rb"\x1b\[\?1049h(?!.*\x1b\[\?1049l)", console.written, re.DOTALL)


# The reader alone


def keys(found: Sequence[object]) -> str:
    return "".join(event.character or "?" for event in found if isinstance(event, events.Key))


def pasted(found: Sequence[object]) -> list[str]:
    return [event.text for event in found if isinstance(event, events.Paste)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096])
def test_pastes_however_they_are_cut(size: int) -> None:
    reader = Reader()
    text = "ab\x1b[200~one\r\ntwo\x07\x1b[31m\x1b[201~cd\x1b[200~\x1b[201~e"
    found = [e for i in range(0, len(text), size) for e in reader.feed(text[i : i + size], float(i))]
    assert keys(found) == "abcde"
    assert pasted(found) == ["one\ntwo[31m", ""]


def test_what_is_too_fast_is_a_paste_even_without_marks() -> None:
    reader = Reader()
    found = list(reader.feed("the quick brown fox jumps over the lazy dog; y\n" * 3, 1.0))
    assert keys(found) == "" and len(pasted(found)) == 1
    found = list(reader.feed("xyzq more of it", 1.05))
    assert keys(found) == "" and len(pasted(found)) == 1
    assert keys(list(reader.feed("xy", 1.1))) == "xy"  # two keys at once are keys
    # A key that is held, and arrows, however many come at once, are keys.
    assert keys(list(reader.feed("j" * 400, 9.0))) == "j" * 400
    arrows = list(reader.feed("\x1b[A" * 300, 19.0))
    assert len(arrows) == 300 and not pasted(arrows)


def test_an_endless_paste_is_bounded_and_ends() -> None:
    reader = Reader()
    assert list(reader.feed("\x1b[200~", 1.0)) == []
    for i in range(40):
        assert list(reader.feed("x" * 100_000, 1.0 + i / 10)) == []
    assert list(reader.tick(6.0)) == []
    (event,) = reader.tick(4.9 + PASTE_S)
    assert isinstance(event, events.Paste) and len(event.text) == MOST_PASTED
    assert keys(list(reader.feed("q", 20.0))) == "q"


def test_plain() -> None:
    assert plain("a\r\nb\rc\td\x00\x1b[2J\x9b\u2028\ufffd") == "a\nb\nc\td[2J"
    assert len(plain("x" * 10_000_000)) == MOST_PASTED and BURST > 32

"""End to end in a real terminal: tune, pause, quit, attach, stop, on a synthetic recording."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import synthetic
from pseudo import Pseudo

from warpdeck.kernels import load_workload

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PATIENCE_S = 60  # for a loaded machine


class Terminal:
    """A tmux session of its own server with one shell in it."""

    def __init__(self, socket: Path, home: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "NO_COLOR")}
        environment |= {"WARPDECK_HOME": str(home), "PS1": "ready$ ", "TERM": "screen-256color"}
        shell = ["bash", "--norc", "--noprofile", "-i"]
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "120", "-y", "40", *shell], env=environment, check=True
        )

    def send(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def type(self, line: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-l", line], check=True)
        self.send("Enter")

    def resize(self, width: int, height: int) -> None:
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run([*self._tmux, "resize-window", *size], check=True)

    def screen(self) -> str:
        return subprocess.run(
            [*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True
        ).stdout

    def until(self, seen: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows it."""
        test = seen if callable(seen) else lambda screen: seen in screen
        deadline = time.monotonic() + PATIENCE_S
        while not test(screen := self.screen()):
            assert time.monotonic() < deadline, f"never saw {seen}; the screen is\n{screen}"
            time.sleep(0.05)
        return screen

    def tmux(self, *command: str) -> str:
        """A command of tmux's, and what it prints."""
        return subprocess.run([*self._tmux, *command], check=True, capture_output=True, text=True).stdout

    @contextmanager
    def client(self, width: int, height: int) -> Iterator[Pseudo]:
        """Somebody who looks at the session, on a terminal of such a size, and detaches."""
        with Pseudo([*self._tmux, "attach"], (width, height), python=False) as looking:
            yield looking
            self.tmux("detach-client")
            looking.end()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


@pytest.fixture
def terminal(tmp_path: Path, isolated_home: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "tmux", isolated_home)
    try:
        yield opened
    finally:
        opened.close()


def prompt(screen: str) -> bool:
    """The shell is back, on the normal screen."""
    return screen.rstrip().endswith("ready$") and "Leaderboard" not in screen


def test_tune_pause_quit_attach_stop_and_look_back(tmp_path: Path, terminal: Terminal) -> None:
    recording = synthetic.write(tmp_path, load_workload("softmax"), "full", [256])[0]
    warpdeck = f"{sys.executable} -m warpdeck"
    terminal.until("ready$")
    terminal.type(f"{warpdeck} tune softmax --agent tpe --device recorded:{recording} --size 256 --steps 500")
    terminal.until(lambda screen: re.search(r"▶ running · step [1-9]", screen) is not None)
    terminal.send("Space")
    screen = terminal.until("‖ paused")
    assert "recorded on Synthetic GPU, 2026-01-01" in screen
    assert "No GPU here" in screen

    terminal.resize(80, 24)
    terminal.until(lambda screen: "Reward" not in screen and "Speedup" in screen and "Leaderboard" in screen)
    terminal.send("q")
    terminal.until("Quit the console?")
    terminal.send("y")
    screen = terminal.until(prompt)
    assert "the run goes on" in screen

    terminal.type("clear")
    terminal.type(f"{warpdeck} attach last")
    screen = terminal.until("attached · softmax")
    terminal.until("‖ paused")
    terminal.send("Space")
    terminal.until("▶ running")
    terminal.send("x")
    terminal.until("Stop the run?")
    terminal.send("y")
    terminal.until("◼ cancelled")
    terminal.send("q")
    terminal.until(prompt)

    terminal.type(warpdeck)
    terminal.until(lambda screen: "1 session, 0 running" in screen and "cancelled" in screen)
    terminal.send("Enter")
    terminal.until("REPLAY · softmax")
    terminal.send("q")
    terminal.until("1 session, 0 running")
    terminal.send("q")
    terminal.until(prompt)
    # The terminal is as it was.
    terminal.type('echo "$((6 * 7)):$(stty -a | grep -ow -e "echo" -e "icanon" | sort | tr "\\n" " ")"')
    terminal.until("42:echo icanon")


def test_a_killed_console_leaves_a_clean_terminal(tmp_path: Path, terminal: Terminal) -> None:
    recording = synthetic.write(tmp_path, load_workload("softmax"), "full", [256])[0]
    warpdeck = f"{sys.executable} -m warpdeck"
    terminal.until("ready$")
    terminal.type(
        f"{warpdeck} tune softmax --agent random --device recorded:{recording} --size 256 --steps 9"
    )
    terminal.until("✔ finished")
    consoles = subprocess.run(
        ["pgrep", "-f", f"warpdeck tune softmax.*{recording}"], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run(["kill", "-TERM", *consoles], check=True)
    terminal.until(prompt)
    terminal.type("echo $((6 * 7))")
    terminal.until("42")


def pause(terminal: Terminal) -> None:
    """As soon as the run goes: on a recording it is over in seconds, with the agent tpe in some more."""
    terminal.until(lambda screen: re.search(r"▶ running · step [1-9]", screen) is not None)
    terminal.send("Space")
    terminal.until("‖ paused")


def test_detached_and_attached_by_others_of_other_sizes(tmp_path: Path, terminal: Terminal) -> None:
    """tmux itself is left and come back to while a run goes on, and a copy reaches its buffer."""
    recording = synthetic.write(tmp_path, load_workload("softmax"), "full", [256])[0]
    terminal.tmux("set-option", "-s", "set-clipboard", "on")
    terminal.tmux("set-option", "-g", "window-size", "latest")
    terminal.until("ready$")
    terminal.type(
        f"{sys.executable} -m warpdeck tune softmax --agent tpe --device recorded:{recording} --size 256"
        " --steps 5000"
    )
    pause(terminal)
    for width, height in ((120, 41), (81, 25), (20, 6), (200, 60)):
        with terminal.client(width, height) as looking:
            if width >= 60:
                looking.until("Leaderboard")
                # A mouse as old terminals tell it, and as new ones do; then ctrl+p.
                looking.send(b"\x1b[M \xf0\xf1\x1b[<35;199;59M\x10")
                terminal.until("Search for commands")
                looking.send(b"\x1b")
                terminal.until(lambda screen: "Search for commands" not in screen)
            else:
                terminal.until("60×16")
        terminal.until(lambda screen: screen.strip() != "")
    terminal.resize(120, 40)
    terminal.until("‖ paused")
    terminal.send("y")
    terminal.until("copied")
    assert "--knob" in terminal.tmux("show-buffer")
    terminal.send("x")
    terminal.until("Stop the run?")
    terminal.send("y")
    terminal.until("◼ cancelled")
    terminal.send("q")
    terminal.until(prompt)


def test_a_run_started_in_the_dashboard(terminal: Terminal) -> None:
    """The start screen's form starts it, on the recording that ships; a read-only dashboard looks on."""
    warpdeck = f"{sys.executable} -m warpdeck"
    terminal.until("ready$")
    terminal.type(warpdeck)
    terminal.until("no sessions yet")
    terminal.send("n")
    terminal.until("$ warpdeck tune softmax")

    def started(screen: str) -> bool:
        if "^s Start" in screen:  # what the form says is still looked at: until then it can't be started
            terminal.send("C-s")
        return re.search(r"▶ running|✔ finished", screen) is not None

    terminal.until(started)
    terminal.send("C-q")
    terminal.until(lambda screen: "Quit the console?" in screen or "1 session" in screen)
    terminal.send("y")
    terminal.until("1 session")
    terminal.send("q")
    terminal.until(prompt)
    terminal.type("clear")
    terminal.type(f"{warpdeck} --readonly --theme high-contrast attach last")
    terminal.until("READ ONLY")
    terminal.send("x")
    terminal.until(lambda screen: "doesn't stop" in screen or "✔ finished" in screen)
    terminal.send("C-q", "C-q")
    terminal.until(prompt)


def test_a_crash_leaves_the_run_and_the_terminal(tmp_path: Path, terminal: Terminal) -> None:
    recording = synthetic.write(tmp_path, load_workload("softmax"), "full", [256])[0]
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\n"
        "from warpdeck.cli.app import run\n"
        "from warpdeck.tui.screens.run import RunScreen\n"
        "def action_copy(self):\n"
        "    raise RuntimeError('injected')\n"
        "RunScreen.action_copy = action_copy\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    terminal.until("ready$")
    terminal.type(
        f"{sys.executable} {broken} tune softmax --agent tpe --device recorded:{recording} --size 256"
        " --steps 5000"
    )
    pause(terminal)
    terminal.send("y")
    screen = terminal.until(prompt)
    assert "the dashboard crashed: RuntimeError: injected; the traceback is in" in screen.replace("\n", "")
    assert "the run goes on" in screen
    (report,) = re.findall(r"(\S+/warpdeck-traceback-\S+\.txt)", screen.replace("\n", ""))
    Path(report).unlink()
    terminal.type("clear")
    terminal.type(f"{sys.executable} -m warpdeck attach last")
    terminal.until("‖ paused")
    terminal.send("x")
    terminal.until("Stop the run?")
    terminal.send("y")
    terminal.until("◼ cancelled")
    terminal.send("q")
    terminal.until(prompt)

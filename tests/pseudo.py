"""A program on a pseudo-terminal: every byte that it writes, keys and garbage into it, resizes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence

PATIENCE_S = 60  # for a loaded machine
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])")


class Pseudo:
    """A process on a terminal of its own: Python, or any command. Use in a `with` statement."""

    def __init__(
        self, arguments: Sequence[str], size: tuple[int, int] = (120, 40), *, python: bool = True
    ) -> None:
        self._controller, self._terminal = pty.openpty()
        self.resize(*size)
        self.modes = termios.tcgetattr(self._terminal)
        environment = {
            k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "TMUX")
        }
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, *arguments] if python else list(arguments),
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env=environment,
            start_new_session=True,
        )

    def resize(self, width: int, height: int) -> None:
        """Another size, and the signal that tells of it."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def send(self, data: bytes) -> None:
        """Type, reading what is written meanwhile, so that neither side waits for the other."""
        deadline = time.monotonic() + PATIENCE_S
        while data:
            assert time.monotonic() < deadline, f"{len(data)} bytes were never read"
            readable, writable, _ = select.select([self._controller], [self._controller], [], 0.1)
            if readable:
                self.read(0)
            if writable:
                data = data[os.write(self._controller, data[:4096]) :]

    def read(self, wait_s: float = 0.1) -> bool:
        """Take what was written; False if nothing was, or the terminal was closed."""
        if not select.select([self._controller], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self._controller, 1 << 16)
        except OSError:
            return False
        self.written += data
        return bool(data)

    @property
    def text(self) -> str:
        """What was written, without escape sequences."""
        return _SEQUENCE.sub("", self.written.decode(errors="replace"))

    def until(self, seen: str | Callable[[str], bool]) -> str:
        """Read until it was written (since `forget`)."""
        test = seen if callable(seen) else lambda text: seen in text
        deadline = time.monotonic() + PATIENCE_S
        while not test(text := self.text):
            assert time.monotonic() < deadline, f"never saw {seen!r} but {text[-3000:]!r}"
            assert self.read() or self.process.poll() is None, f"it ended with {text[-3000:]!r}"
        return text

    def forget(self) -> None:
        """Begin anew with what was written."""
        while self.read(0):
            pass
        self.written = b""

    def end(self) -> int:
        """Read until it has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it never ended; {self.text[-3000:]!r}"
            self.read()
        while self.read(0):
            pass
        return self.process.returncode

    def assert_clean(self) -> None:
        """The terminal is as it was: modes, screen, cursor, mouse, paste marks."""
        assert termios.tcgetattr(self._terminal) == self.modes
        for name, off in (("1049", "l"), ("25", "h"), ("1000", "l"), ("1003", "l"), ("2004", "l")):
            found = re.findall(rb"\x1b\[\?%s([hl])" % name.encode(), self.written)
            assert found and found[-1].decode() == off, name

    def __enter__(self) -> Pseudo:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._controller)
        os.close(self._terminal)

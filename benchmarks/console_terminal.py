"""A program on a pseudo-terminal of its own: what it writes, and what it costs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PIECE = 1 << 16


class Terminal:
    """Starts `command`. `written` are the bytes that it has written, `began` when it was started."""

    def __init__(
        self, command: Sequence[str], *, size: tuple[int, int] = (120, 40), home: Path | None = None
    ) -> None:
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.written = 0
        self._keeper: threading.Thread | None = None
        self._closing = threading.Event()
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(home),
            start_new_session=True,
        )
        os.close(terminal)

    def _piece(self, seconds: float) -> bytes:
        if not select.select([self.controller], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            piece = os.read(self.controller, PIECE)
        except OSError:  # the program closed its side
            time.sleep(min(max(0.0, seconds), 0.01))
            return b""
        self.written += len(piece)
        return piece

    def until(self, *parts: bytes, seconds: float = 20) -> bytes:
        """What it writes until each of `parts` was in it. Raises SystemExit if they don't come."""
        deadline, output = time.perf_counter() + seconds, b""
        while not all(part in output for part in parts):
            if time.perf_counter() > deadline or (self.process.poll() is not None and not output):
                raise SystemExit(
                    f"{parts} were not written within {seconds} s; the last was {output[-500:]!r}"
                )
            output += self._piece(0.1)
        return output

    def read(self, seconds: float) -> None:
        """Take what it writes in so many seconds."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self._piece(left)

    def drain(self, quiet_s: float = 0.0) -> None:
        """Take what it writes until nothing has come for so long."""
        while self._piece(quiet_s):
            pass

    def keep(self) -> None:
        """Take what it writes from now on, in a thread."""

        def work() -> None:
            while not self._closing.is_set():
                self._piece(0.05)

        self._keeper = threading.Thread(target=work, daemon=True)
        self._keeper.start()

    def key(self, key: bytes) -> None:
        """Type."""
        os.write(self.controller, key)

    def cpu_s(self) -> float:
        """Processor seconds that it has taken."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        deadline = time.perf_counter() + 5
        while self.process.poll() is None and time.perf_counter() < deadline:
            if self._keeper is None:
                self._piece(0.05)
            else:
                time.sleep(0.02)
        self._closing.set()
        if self._keeper is not None:
            self._keeper.join()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.controller)


def environment(home: Path | None = None) -> Mapping[str, str]:
    """Of a terminal with all colours; byte code is kept, as it is of an installed package, whatever the shell
    says."""
    found = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    if home is not None:
        found["WARPDECK_HOME"] = str(home)
        found.setdefault("PYTHONPYCACHEPREFIX", str(home / "pycache"))
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found

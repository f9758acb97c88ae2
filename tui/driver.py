"""A terminal whose input may be anything, and whose output costs little.

Textual's own reader decodes strictly: one byte of an old mouse report, as tmux sends on reattaching (Textual
issue 6668), ends the app. And it reads the terminal's size within the signal's handler, which the next signal
interrupts: of sizes that follow closely an earlier one could arrive last, and stay.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
from codecs import getincrementaldecoder

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size

from .lean import lean
from .reading import HELD_S, Reader

READ_BYTES = 64 << 10
TICK_S = 0.1


class SteadyDriver(LinuxDriver):
    """Textual's, with another reader and fewer bytes."""

    def write(self, data: str) -> None:
        """Write to the terminal."""
        super().write(lean(data))

    def start_application_mode(self) -> None:
        """Take the terminal over."""
        super().start_application_mode()
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGWINCH, lambda number, frame: loop.call_soon_threadsafe(self._resized))

    def _resized(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(Resize(size, size))

    def run_input_thread(self) -> None:
        """Read until the app ends or the terminal has gone."""
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        reader = Reader(debug=self._debug)
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(HELD_S / 2 if reader.waiting else TICK_S):
                    try:
                        data = os.read(self.fileno, READ_BYTES)
                    except OSError:
                        return  # SIGHUP follows
                    if not data:
                        return
                    for event in reader.feed(decode(data)):
                        self.process_message(event)
                for event in reader.tick():
                    self.process_message(event)

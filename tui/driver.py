"""A terminal whose input may be anything, and whose output costs little.

Textual's own reader decodes strictly: one byte of an old mouse report, as tmux sends on reattaching (Textual
issue 6668), ends the app.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder

from textual.drivers.linux_driver import LinuxDriver

from .lean import lean
from .reading import HELD_S, Reader

READ_BYTES = 64 << 10
TICK_S = 0.1


class SteadyDriver(LinuxDriver):
    """Textual's, with another reader and fewer bytes."""

    def write(self, data: str) -> None:
        """Write to the terminal."""
        super().write(lean(data))

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

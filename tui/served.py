"""A browser tab's dashboard: `python -m warpdeck.tui.served`, which the server starts with its driver."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

LOOK_S = 1.0  # between two looks at whether the server lives


def main() -> int:
    """Run the start screen; the exit code."""
    parser = argparse.ArgumentParser(prog="warpdeck web")
    parser.add_argument("--theme", required=True)
    parser.add_argument("--readonly", action="store_true")
    asked = parser.parse_args()

    from . import configure, run_start

    threading.Thread(target=_end_with, args=(os.getppid(),), name="server", daemon=True).start()
    configure(theme=asked.theme, readonly=asked.readonly)
    return run_start()


def _end_with(server: int) -> None:
    """A server that was killed can't tell its tabs, and the end of its input doesn't end Textual's driver."""
    while os.getppid() == server:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

"""A browser tab's dashboard: `python -m warpdeck.tui.served`, which the server starts with its driver."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Run the start screen; the exit code."""
    parser = argparse.ArgumentParser(prog="warpdeck web")
    parser.add_argument("--theme", required=True)
    parser.add_argument("--readonly", action="store_true")
    asked = parser.parse_args()

    from . import configure, run_start

    configure(theme=asked.theme, readonly=asked.readonly)
    return run_start()


if __name__ == "__main__":
    sys.exit(main())

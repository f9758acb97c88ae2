"""`python -m warpdeck`, and the entry point of the `warpdeck` script."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C while its modules are imported is no traceback either."""
    try:
        from .cli import quick

        code = quick.run(sys.argv[1:])
        if code is None:
            from .cli.app import run

            code = run()
    except KeyboardInterrupt:
        print("warpdeck: interrupted", file=sys.stderr)
        code = 130
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while Python ends, Ctrl-C ends it, without a traceback
    sys.exit(code)


if __name__ == "__main__":
    main()

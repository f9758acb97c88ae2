"""Entry point of a run's process: `python -m warpdeck.sessions.process [--cuda] DIR…`, as `launch` starts it.

`--cuda`: its sessions will want a GPU, whose workers come from a process of their own; it is started before
this one imports what `runner` needs, which takes as long.
"""

from __future__ import annotations

import sys

CUDA = "--cuda"


def main() -> int:
    """Run the sessions. Returns the process' exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == [CUDA]:
        from ..core import server_process

        del arguments[0]
        server_process.begin()
    from . import runner

    return runner.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

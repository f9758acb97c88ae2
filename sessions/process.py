"""A run's process. Its entry point is `python -m warpdeck.sessions.process [--cuda|--cuda-library] DIR…`.

`--cuda`: its sessions will want a GPU, whose workers come from a process of their own; it is started before
this one imports what `runner` needs, which takes as long. `--cuda-library`: and a vendor's library beside it,
which takes longer. `--wait` in place of the folders: they come as a line of JSON on stdin, once there are
any; without one it ends. This module imports nothing that takes long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

LOG = "run.log"  # in a session's folder: what the run process printed; nothing, if all is well

_CUDA, _LIBRARY, _WAIT = "--cuda", "--cuda-library", "--wait"
_begun: subprocess.Popen[bytes] | None = None


def begin(device: str) -> None:
    """Runs that need a vendor's times are about to be launched: start their process, to import meanwhile.

    Only for a GPU, where starting up counts. It ends with this process if nothing is launched.
    """
    global _begun
    if _begun is None and sys.executable and _wants_cuda(device):
        try:
            _begun = _popen([_LIBRARY, _WAIT], stdin=subprocess.PIPE)
        except OSError:  # whoever launches hears of it
            return


def start(folders: Sequence[Path], device: str) -> subprocess.Popen[bytes]:
    """Start the process that runs some sessions, or tell the one that was begun. Raises OSError."""
    global _begun
    begun, _begun = _begun, None
    names = [str(folder.absolute()) for folder in folders]
    if begun is not None and begun.stdin is not None:
        try:
            with begun.stdin as stdin:
                stdin.write(json.dumps(names).encode() + b"\n")
            return begun
        except BrokenPipeError:  # it has died
            begun.wait()
    with (folders[0] / LOG).open("ab") as log:
        return _popen(
            [*([_CUDA] if _wants_cuda(device) else []), *names],
            stdin=subprocess.DEVNULL,
            output=log.fileno(),
            folder=folders[0],
        )


def _wants_cuda(device: str) -> bool:
    return device == "auto" or device.startswith("cuda")


def _popen(
    arguments: Sequence[str], *, stdin: int, output: int = subprocess.DEVNULL, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    # -P: nothing in the working directory may shadow a module of the run.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "warpdeck.sessions.process", *arguments],
        stdin=stdin,
        stdout=output,
        stderr=output,
        cwd=folder,
        start_new_session=True,
    )


def move_to(folder: Path) -> None:
    """Work, and print, in a session's folder, as a process that was started for it alone."""
    os.chdir(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    with (folder / LOG).open("ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)


def main() -> int:
    """Run the sessions. Returns the process' exit code."""
    arguments = sys.argv[1:]
    cuda = bool(arguments) and arguments[0] in (_CUDA, _LIBRARY)
    if cuda:
        from ..core import server_process

        server_process.begin(library=arguments.pop(0) == _LIBRARY)
    from . import runner

    if cuda:
        import_module("..core.devices.cuda", __package__)  # not when it is opened
    if arguments == [_WAIT]:
        line = sys.stdin.readline()
        if not line:
            return 0
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        arguments = [str(name) for name in json.loads(line)]
        move_to(Path(arguments[0]))
    return runner.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""What a sandboxed process may do. Plain data; the layers (`commands`) make it hold."""

from __future__ import annotations

import functools
import os
import site
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError

GIB = 1 << 30
TASKS = 512  # processes and threads


@functools.cache
def default_memory() -> int:
    """Half of this machine's memory, in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 * GIB


@dataclass(frozen=True)
class Policy:
    """What one sandboxed process gets. Sizes are bytes.

    System programs and libraries (/usr, /lib …) can always be read; of /etc only what the dynamic linker
    needs; of the home folder nothing but what `read`, `write` and `python` name. There is never a network.

    Attributes:
        read: files and folders it may read and execute.
        write: files and folders it may change as well. The first one is its HOME, TMPDIR and current folder.
        listed: folders whose names (of files and folders below them too) it may see, not their contents.
        python: whether this interpreter and its installed packages can be read.
        processes: whether it may start other programs (a compiler does); threads are always allowed.
        memory: resident bytes of all its processes, and address space of each.
        address_space: False where programs reserve more than they use (AddressSanitizer, CUDA).
        file_size: of any one file it writes.
        disk: what `write` may hold in all.
        cpu_s: processor seconds of each process; None: no limit but the wall's.
        environment: variables on top of the few that are always there.
    """

    read: Sequence[Path] = ()
    write: Sequence[Path] = ()
    listed: Sequence[Path] = ()
    python: bool = False
    processes: bool = False
    memory: int = field(default_factory=default_memory)
    address_space: bool = True
    file_size: int = 4 * GIB
    disk: int = 8 * GIB
    cpu_s: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def readable(self) -> tuple[Path, ...]:
        """What it may read beside the system: absolute, without links, each once.

        Raises UsageError for a folder that contains the home folder.
        """
        paths = [*self.read, *(python_paths() if self.python else ())]
        return tuple(dict.fromkeys(_sound(path) for path in paths))

    def writable(self) -> tuple[Path, ...]:
        """What it may change. Raises as `readable`."""
        return tuple(dict.fromkeys(_sound(path) for path in self.write))


def _sound(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    home = Path(os.path.realpath(Path.home()))
    if real == Path("/") or (home != Path("/") and home.is_relative_to(real)):
        raise UsageError(f"{path}: a sandbox can't be given a folder that contains the home folder")
    return real


@functools.cache
def python_paths() -> tuple[Path, ...]:
    """Where this interpreter and its packages lie. Raises UsageError if that is the whole home folder."""
    found = [Path(sys.prefix), Path(sys.base_prefix), Path(os.path.realpath(sys.executable))]
    found += [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    if site.ENABLE_USER_SITE:
        found.append(Path(site.getusersitepackages()))
    return tuple(dict.fromkeys(_sound(path) for path in found if path.exists()))

"""The command line that starts a program in a sandbox."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import math
import os
import shutil
import stat
import struct
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..environment import without_secrets
from . import filters, launcher
from .errors import SandboxError
from .policy import TASKS, Policy


class Layer(StrEnum):
    """What keeps a process apart. Limits, filter and environment come with each of them."""

    BUBBLEWRAP = "bubblewrap"  # own mounts, processes and network
    LANDLOCK = "landlock"  # files by rule, the rest by the system-call filter
    NONE = "none"  # limits and environment only: with allow_unsandboxed


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_FACTS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_PROC = (
    "/proc/self",  # of the launcher, which becomes the target
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/sys/vm",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_KEPT_ENDING = "_NUM_THREADS"
_PATH = "/usr/local/bin:/usr/bin:/bin"

# Landlock's rights, by the ABI that brought them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_NODES = 1 << 6 | 1 << 9 | 1 << 11  # make character devices, sockets, block devices
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract UNIX sockets, signals
_CREATE_RULESET = 444


def command(argv: Sequence[str], policy: Policy, layer: Layer) -> list[str]:
    """The command that runs `argv` under a policy; see `programs.wrap`.

    Raises:
        UsageError: a path of the policy contains the home folder.
        SandboxError: there is no such program.
    """
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        raise SandboxError(f"{argv[0]}: there is no such program")
    data = marshal.dumps(_plan(policy, layer))
    return [sys.executable, "-I", "-S", _launcher(), data.hex(), program, *argv[1:]]


def environment(policy: Policy) -> dict[str, str]:
    """The variables that a sandboxed process gets: a short list, and the policy's own."""
    kept = {n: v for n, v in os.environ.items() if n in _KEPT or n.endswith(_KEPT_ENDING)}
    home = next(iter(policy.writable()), None)
    place = "/nonexistent" if home is None else str(home)
    return {
        **without_secrets(kept),
        "PATH": _PATH,
        "HOME": place,
        "TMPDIR": place,
        **without_secrets(policy.environment),
    }


def _plan(policy: Policy, layer: Layer) -> dict[str, Any]:
    """What the launcher applies."""
    home = next(iter(policy.writable()), None)
    plan: dict[str, Any] = {
        "parent": os.getpid(),
        "environment": environment(policy),
        "limits": _limits(policy),
        "folder": "" if home is None else str(home),
        "bubblewrap": [],
        "ruleset": b"",
        "rules": [],
    }
    abi = 0
    if layer is Layer.BUBBLEWRAP:
        plan["bubblewrap"] = _bubblewrap(policy, plan["folder"])
    elif layer is Layer.LANDLOCK:
        abi = landlock_abi()
        plan["ruleset"], plan["rules"] = _rules(policy, abi)
    plan["filter"] = filters.program(
        processes=policy.processes,
        # Linkers set the mode of what they write; whoever may start programs runs trusted ones.
        by_path=layer is not Layer.BUBBLEWRAP and not policy.processes,
        truncate=layer is Layer.LANDLOCK and abi < 3,
        signals=layer is not Layer.BUBBLEWRAP and abi < 6,
    )
    return plan


@functools.cache
def _launcher() -> str:
    """The launcher's compiled form where there is one (compiling it takes 3 ms), else its source."""
    source = str(launcher.__file__)
    compiled = importlib.util.cache_from_source(source)
    try:
        header = Path(compiled).read_bytes()[:16]
        state = Path(source).stat()
        current = struct.pack("<LLL", 0, int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)
        if header == importlib.util.MAGIC_NUMBER + current:
            return compiled
    except OSError:
        pass
    return source


# -- limits -----------------------------------------------------------------------------------------


def _limits(policy: Policy) -> list[tuple[int, int]]:
    import resource

    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, policy.file_size),
        (resource.RLIMIT_NOFILE, 4096),
        (resource.RLIMIT_MSGQUEUE, 0),
    ]
    if policy.cpu_s is not None:
        limits.append((resource.RLIMIT_CPU, max(math.ceil(policy.cpu_s), 1)))
    if policy.address_space:
        limits.append((resource.RLIMIT_AS, policy.memory))
    if os.geteuid() != 0:  # it counts all of the user's tasks, and root's not at all
        limits.append((resource.RLIMIT_NPROC, _tasks_of_user(int(time.monotonic() // 10)) + TASKS))
    return limits


@functools.lru_cache(1)
def _tasks_of_user(_now: int) -> int:
    """Threads of all of this user's processes; counted again every ten seconds."""
    user, total = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if entry.stat().st_uid == user:
                    total += Path(entry.path, "task").stat().st_nlink - 2
            except OSError:  # it has ended
                continue
    return total


# -- bubblewrap -------------------------------------------------------------------------------------


@functools.cache
def bubblewrap_path() -> str | None:
    """The program, if it is installed."""
    return shutil.which("bwrap")


def _bubblewrap(policy: Policy, folder: str) -> list[str]:
    arguments = [bubblewrap_path() or "bwrap", "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    arguments += ["--die-with-parent", "--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    for path in _SYSTEM:
        if Path(path).is_symlink():
            arguments += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            arguments += ["--ro-bind", path, path]
    for path in (*_ETC, *_FACTS):
        arguments += ["--ro-bind-try", path, path]
    bound = [(path, "--ro-bind-try") for path in policy.readable()]
    bound += [(path, "--bind-try") for path in policy.writable()]
    for path, how in sorted(bound, key=lambda item: len(item[0].parts)):  # what lies inside comes later
        arguments += [how, str(path), str(path)]
    arguments += _links([*policy.read, *policy.write, Path(sys.prefix)] if policy.python else policy.read)
    # Bubblewrap's own root and /dev are in memory, without a limit.
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
    return [*arguments, "--chdir", folder or "/"]


def _links(paths: Sequence[Path]) -> list[str]:
    """Links for paths that the policy names by another than their real name."""
    made: list[str] = []
    for path in dict.fromkeys(paths):
        absolute, real = os.path.abspath(path), os.path.realpath(path)  # noqa: PTH100 - keeps links
        system = any(Path(absolute).is_relative_to(folder) for folder in _SYSTEM)
        if absolute != real and not system and os.path.islink(absolute):  # noqa: PTH114
            made += ["--symlink", real, absolute]
    return made


# -- Landlock ---------------------------------------------------------------------------------------


@functools.cache
def landlock_abi() -> int:
    """The kernel's Landlock version; 0 without."""
    if sys.platform != "linux":
        return 0
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    abi = library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(int(abi), 0)


def _rules(policy: Policy, abi: int) -> tuple[bytes, list[tuple[str, int]]]:
    """The ruleset's attributes, and what it allows as (path, rights)."""
    handled = (1 << 13) - 1
    handled |= (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    handled |= _IOCTL_DEVICE if abi >= 5 else 0
    attributes = struct.pack("=Q", handled)
    if abi >= 4:
        attributes += struct.pack("=Q", _TCP)
    if abi >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    changing = handled & ~(_NODES | _IOCTL_DEVICE)
    wanted = [(path, _READ) for path in (*_SYSTEM, *_ETC, *_FACTS, *_PROC)]
    wanted += [(path, _READ_FILE | _WRITE_FILE) for path in _DEVICES]
    wanted += [(str(path), _READ) for path in policy.readable()]
    wanted += [(os.path.realpath(path), _READ_DIR) for path in policy.listed]
    wanted += [(str(path), changing) for path in policy.writable()]
    rules = []
    for path, rights in wanted:
        try:
            folder = stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - follows /proc/self here and there
        except OSError:
            continue
        rules.append((path, (rights if folder else rights & _OF_FILES) & handled))
    return attributes, rules

"""What a sandboxed process and all that it started use, read from /proc while it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .policy import TASKS, Policy

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
FILES = 20_000  # in the writable folders: more are counted as too much


@dataclass(frozen=True)
class Excess:
    """A limit that was exceeded: `kind` is memory, tasks or disk; `text` says it in words."""

    kind: str
    text: str


def excess(pid: int, policy: Policy) -> Excess | None:
    """Which limit the process and its descendants exceed now; None if none."""
    memory, tasks = usage(pid)
    if tasks > TASKS:
        return Excess("tasks", f"it started more than {TASKS} processes and threads")
    if memory > policy.memory:
        return Excess("memory", f"it used more than {policy.memory / 2**20:,.0f} MiB of memory")
    if policy.write:
        used, files = 0, 0
        for folder in policy.writable():
            more = held(folder, FILES - files)
            used, files = used + more[0], files + more[1]
        if used > policy.disk:
            return Excess("disk", f"it wrote more than {policy.disk / 2**20:,.0f} MiB")
        if files >= FILES:
            return Excess("disk", f"it made more than {FILES:,} files")
    return None


def usage(pid: int) -> tuple[int, int]:
    """Resident bytes, and processes and threads, of a process and its descendants; zeros if it is gone."""
    memory = tasks = 0
    todo = [pid]
    while todo and tasks <= TASKS:
        one = todo.pop()
        try:
            memory += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE
            threads = [entry.name for entry in os.scandir(f"/proc/{one}/task")]
            tasks += len(threads)
            for thread in threads[: TASKS + 1]:
                todo += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
        except (OSError, ValueError, IndexError):  # it ended meanwhile
            continue
    return memory, tasks


def held(folder: Path, limit: int = FILES) -> tuple[int, int]:
    """Bytes on disk and number of files below a folder; links count as themselves."""
    used = files = 0
    todo = [str(folder)]
    while todo and files < limit:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if files >= limit:
                        break
        except OSError:
            continue
    return used, files

"""Where things live: the home folder, the sessions in it, and how a name becomes a session's folder."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import platformdirs

from ..core.errors import UsageError, WarpdeckError

DATABASE = "session.db"
ARTIFACTS = "artifacts"
NEWEST = ("last", "latest")  # what stands for the newest session where one is named
STAMP = "created"  # an empty file, made with the session

# SQLite's write-ahead log needs shared memory between processes, which these don't give.
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ncpfs", "9p", "drvfs", "ceph", "glusterfs"}
    | {"lustre", "gpfs", "beegfs", "pvfs2", "orangefs", "ocfs2", "gfs2", "davfs"}
)
_NETWORK_FUSE = ("sshfs", "gluster", "ceph", "s3fs", "gcsfuse", "rclone", "juicefs", "davfs", "goofys", "smb")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class Home:
    """The user's folder. `notice` is a line for people when sessions had to go elsewhere."""

    path: Path
    sessions: Path
    notice: str | None = None


def home() -> Home:
    """`WARPDECK_HOME`, else the platform's data folder; sessions on a local disk in any case.

    Nothing is created. Raises UsageError if the local replacement for a network home isn't safe to use.
    """
    configured = os.environ.get("WARPDECK_HOME")
    path = Path(configured).expanduser() if configured else Path(platformdirs.user_data_dir("warpdeck"))
    path = path.absolute()
    kind = filesystem(path)
    if not is_network(kind):
        return Home(path, path / "sessions")
    local = Path("/var/tmp") / f"warpdeck-{_user_id()}"
    _refuse_foreign(local)
    return Home(
        path,
        local / "sessions",
        f"{path} is on {kind}, where SQLite's write-ahead log fails: sessions are in {local / 'sessions'}",
    )


def cache_dir() -> Path:
    """Where compiled kernels and other things that can be made again live."""
    from ..core.toolchain.cache import default_folder

    return default_folder().parent.absolute()


def filesystem(path: Path, mounts: str = "/proc/self/mounts") -> str | None:
    """The type of the file system that holds `path` (or its nearest existing parent); None if unknown."""
    try:
        table = Path(mounts).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # not Linux
    real = os.path.realpath(path)
    best, kind = -1, None
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1])
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:  # a later mount on the same point hides the earlier
            best, kind = len(mount), fields[2]
    return kind


def is_network(kind: str | None) -> bool:
    """Whether a file system type is one that other hosts share."""
    if kind is None:
        return False
    if kind.startswith("fuse."):
        return any(name in kind for name in _NETWORK_FUSE)
    return kind in NETWORK_FILESYSTEMS


def _user_id() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _refuse_foreign(folder: Path) -> None:
    """A folder in a directory that everyone can write must be ours alone."""
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != _user_id() or info.st_mode & 0o022:
        raise UsageError(
            f"{folder} isn't a private folder of this user; remove it or set WARPDECK_HOME to a local folder"
        )


def new_id(workload: str, agent: str, now: datetime | None = None) -> str:
    """A session id that sorts by time within a workload and agent: `softmax-tpe-20261129-151204-3f9c`."""
    stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(workload).name).strip("-._") or "run"
    return f"{name[:40]}-{agent}-{stamp}-{secrets.token_hex(2)}"


def check_name(name: str) -> str:
    """`name`, if it can be a session's. Raises UsageError otherwise."""
    if name in NEWEST:
        raise UsageError(f"session name {name!r} stands for the newest session; give another")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"session name {name!r}: use up to 80 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )
    return name


def make_folder(folder: Path) -> None:
    """Create a private session folder. Raises UsageError if it exists, WarpdeckError if it can't be made."""
    parent = folder.parent
    try:
        if parent.is_symlink() or parent.parent.is_symlink():  # to a folder that isn't there yet, perhaps
            parent = parent.resolve()
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
        (folder / ARTIFACTS).mkdir()
        (folder / STAMP).touch()
    except FileExistsError:
        raise UsageError(
            f"session {folder.name} exists already; give another name or remove it with "
            f"`warpdeck sessions rm {folder.name}`"
        ) from None
    except OSError as error:
        raise WarpdeckError(
            f"can't create {folder}: {error.strerror}; set WARPDECK_HOME to a folder you can write"
        ) from None


def session_folders(sessions: Path | None = None) -> list[Path]:
    """Every folder in the sessions folder, oldest first."""
    base = sessions or home().sessions
    try:
        folders = [path for path in base.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []
    return sorted(folders, key=lambda path: (_created(path), path.name))


def _created(folder: Path) -> int:
    """When a session was created, ns: a stamp, since a folder's own times change as it is read."""
    for path in (folder / STAMP, folder):
        try:
            return path.stat().st_mtime_ns
        except OSError:
            continue
    return 0


def resolve(name: str | Path, sessions: Path | None = None) -> Path:
    """The folder of a session, given its id, a unique beginning of it, `last`, or a path.

    Raises UsageError for an unknown or ambiguous name, with near ones.
    """
    text = str(name)
    if os.sep in text or text in (".", ".."):
        path = Path(text).expanduser()
        folder = path.parent if path.name == DATABASE else path
        if not (folder / DATABASE).exists():
            raise UsageError(f"{path}: no session there (a session is a folder with {DATABASE})")
        return folder.absolute()
    folders = {folder.name: folder for folder in session_folders(sessions)}
    if text in folders:
        return folders[text]
    if text in NEWEST:
        if folders:
            return list(folders.values())[-1]
        raise UsageError("there are no sessions yet; `warpdeck tune softmax` makes one")
    matching = [known for known in folders if known.startswith(text)] if text else []
    if len(matching) == 1:
        return folders[matching[0]]
    if matching:
        raise UsageError(f"session {text!r} could be {_some(matching)}; type more of it")
    near = difflib.get_close_matches(text, folders, n=3, cutoff=0.5)
    hint = f"did you mean {_some(near)}?" if near else "`warpdeck sessions list` shows them"
    raise UsageError(f"there is no session {text!r}; {hint}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (", …" if len(ordered) > 5 else "")

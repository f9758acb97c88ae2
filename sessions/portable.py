"""A session as one file that can be sent to others, and back.

An archive comes from somewhere else: nothing in it is trusted. Only plain files of known names are
unpacked, sizes are counted while they are unpacked, and the database must be whole before it is a session.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from ..core.errors import UsageError, WarpdeckError
from ..kernels.loader import FOREIGN
from ..telemetry.whole import whole
from . import paths
from .launch import LOG
from .store import SessionStore

MAX_BYTES = 4 << 30  # unpacked, altogether
MAX_FILES = 10_000
SUFFIXES = (".tar.gz", ".tgz", ".zip")
_CHUNK = 1 << 20


def export_session(folder: Path, target: Path) -> Path:
    """Pack a session (also one that runs: as it is now) into `target`, a .tar.gz or .zip.

    A `target` that is a folder gets `ID.tar.gz` in it. Returns the file. Raises UsageError for another
    suffix or a damaged session, WarpdeckError if the file can't be written.
    """
    if target.is_dir():
        target = target / f"{folder.name}.tar.gz"
    if not target.name.endswith(SUFFIXES):
        raise UsageError(f"{target}: a session is exported as .tar.gz or .zip")
    try:
        with (
            whole(target) as partial,
            tempfile.TemporaryDirectory(prefix="warpdeck-") as scratch,
            SessionStore.open(folder) as store,
        ):
            database = Path(scratch) / paths.DATABASE
            store.backup(database)
            files = [(database, paths.DATABASE), *_others(folder)]
            if target.name.endswith(".zip"):
                with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
                    for file, name in files:
                        archive.write(file, f"{folder.name}/{name}")
            else:
                with tarfile.open(partial, "w:gz") as archive:
                    for file, name in files:
                        archive.add(file, f"{folder.name}/{name}", filter=_anonymous)
    except OSError as error:
        raise WarpdeckError(f"can't write {target}: {error.strerror or error}") from None
    return target


def _others(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted((folder / paths.ARTIFACTS).rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path, path.relative_to(folder).as_posix()
    if (folder / LOG).is_file():
        yield folder / LOG, LOG


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def import_session(archive: Path, *, name: str | None = None, sessions: Path | None = None) -> Path:
    """Unpack an exported session among the others and return its folder.

    Args:
        archive: A file that `export_session` wrote, here or elsewhere.
        name: The session's id here; its own if None.
        sessions: Folder of sessions; the home's if None.

    Raises:
        UsageError: no such file, not a session's archive, unsafe or too large content, a damaged database, or
            a session of that name exists.
        WarpdeckError: the disk can't be written.
    """
    base = sessions or paths.home().sessions
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = Path(tempfile.mkdtemp(prefix=".import-", dir=base))
    except OSError as error:
        raise WarpdeckError(f"can't write {base}: {error.strerror}") from None
    try:
        own_name = _unpack(archive, scratch)
        _verify(scratch, archive)
        (scratch / paths.ARTIFACTS).mkdir(exist_ok=True)
        (scratch / FOREIGN).write_text("What is in this folder came with an imported session.\n")
        stamp = scratch / paths.STAMP
        stamp.touch()
        with SessionStore.open(scratch) as store:
            created = store.header().get("created")
        if isinstance(created, int | float):
            os.utime(stamp, (created, created))
        target = base / paths.check_name(name or own_name)
        if target.exists():
            raise UsageError(f"session {target.name} exists already; import it under another name")
        for leftover in ("-wal", "-shm"):
            (scratch / (paths.DATABASE + leftover)).unlink(missing_ok=True)
        scratch.rename(target)
        return target
    except OSError as error:
        raise WarpdeckError(f"can't import {archive}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(archive: Path, scratch: Path) -> str:
    """Unpack into `scratch`; returns the name of the folder in the archive."""
    tops: set[str] = set()
    total = count = 0
    with _members(archive) as members:
        for name, size, opened in members:
            count += 1
            if count > MAX_FILES:
                raise UsageError(f"{archive}: more than {MAX_FILES:,} files; that is no session")
            top, inner = _safe(name, archive)
            tops.add(top)
            if len(tops) > 1:
                raise UsageError(f"{archive}: more than one folder in it; a session is exactly one")
            if total + size > MAX_BYTES:
                raise UsageError(f"{archive}: larger than {MAX_BYTES >> 30} GiB unpacked; not imported")
            target = scratch.joinpath(*inner.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened() as source, target.open("xb") as sink:
                while chunk := source.read(_CHUNK):
                    total += len(chunk)
                    if total > MAX_BYTES:  # whatever its header promised
                        raise UsageError(
                            f"{archive}: larger than {MAX_BYTES >> 30} GiB unpacked; not imported"
                        )
                    sink.write(chunk)
    if not (scratch / paths.DATABASE).is_file():
        raise UsageError(f"{archive}: no session in it ({paths.DATABASE} is missing)")
    return tops.pop()


# What the two libraries raise for content that makes no sense.
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)

Member = tuple[str, int, Callable[[], IO[bytes]]]


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[Member]]:
    """(name, promised size, open) of every plain file; folders are skipped, anything else refused."""
    if archive.exists() and not archive.is_file():  # a device may never end, a pipe never begin
        raise UsageError(f"{archive}: no plain file; a session is imported from a .tar.gz or .zip")
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                yield _zip_members(pack, archive)
        else:
            with tarfile.open(archive, "r:gz") as pack:
                yield _tar_members(pack, archive)
    except FileNotFoundError:
        raise UsageError(f"{archive}: no such file") from None
    except FileExistsError:
        raise UsageError(f"{archive}: a file occurs twice in it; not imported") from None
    except _DAMAGE as error:
        raise _unreadable(archive, error) from None
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # gzip's way to tell damage, and a seek to nowhere
            raise _unreadable(archive, error) from None
        raise


def _unreadable(archive: Path, error: Exception) -> UsageError:
    return UsageError(f"{archive}: not a readable .tar.gz or .zip: {' '.join(str(error).split())}")


def _zip_members(pack: zipfile.ZipFile, archive: Path) -> Iterator[Member]:
    for member in pack.infolist():
        if member.is_dir():
            continue
        kind = member.external_attr >> 28  # the file type, where Unix wrote the archive
        if kind not in (0, 0o10):
            raise UsageError(f"{archive}: {member.filename} is no plain file; not imported")
        yield member.filename, member.file_size, lambda member=member: pack.open(member)


def _tar_members(pack: tarfile.TarFile, archive: Path) -> Iterator[Member]:
    for member in pack:
        if member.isdir():
            continue
        if not member.isreg():
            raise UsageError(f"{archive}: {member.name} is no plain file; not imported")
        source = pack.extractfile(member)
        assert source is not None
        yield member.name, member.size, lambda source=source: source
    rest = 0
    while pack.fileobj is not None and (chunk := pack.fileobj.read(_CHUNK)):  # to the checksum at the end
        rest += len(chunk)
        if rest > MAX_BYTES:
            raise UsageError(f"{archive}: larger than {MAX_BYTES >> 30} GiB unpacked; not imported")


def _safe(name: str, archive: Path) -> tuple[str, PurePosixPath]:
    """The folder and the path within it. Raises UsageError for a name that a session doesn't have."""
    path = PurePosixPath(name)
    unsafe = path.is_absolute() or "\\" in name or "\0" in name or ":" in name or ".." in path.parts
    if unsafe or len(path.parts) < 2 or len(name) > 1000:
        raise UsageError(f"{archive}: it has a file {name!r}, which a session doesn't; not imported")
    inner = PurePosixPath(*path.parts[1:])
    known = inner.as_posix() in (paths.DATABASE, LOG)
    if not known and (inner.parts[0] != paths.ARTIFACTS or len(inner.parts) < 2):
        raise UsageError(f"{archive}: it has a file {name!r}, which a session doesn't; not imported")
    return path.parts[0], inner


def _verify(folder: Path, archive: Path) -> None:
    """Read the whole database once: a session that is imported can be replayed."""
    try:
        with SessionStore.open(folder) as store:
            store.verify()
    except UsageError as error:
        raise UsageError(f"{archive}: {str(error).replace(str(folder), 'its session')}") from None

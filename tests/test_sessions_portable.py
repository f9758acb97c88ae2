"""Archives: what is exported comes back whole, and nothing else gets in."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import session_logs
from authored import KERNEL, REFERENCE, SIGNATURE
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError
from warpdeck.core.model import Trust
from warpdeck.kernels import load_workload
from warpdeck.kernels.assemble import assemble
from warpdeck.kernels.bare import MARK, read_bare
from warpdeck.kernels.parts import Parts
from warpdeck.sessions import (
    launch,
    listing,
    paths,
    portable,
)
from warpdeck.sessions.attempts import workload_of
from warpdeck.sessions.continuing import continued
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def sessions(isolated_home: Path) -> Path:
    return paths.home().sessions


@pytest.fixture
def swept(sessions: Path) -> Iterator[SessionStore]:
    with session_logs.swept_session(sessions) as store:
        yield store


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_an_exported_session_comes_back_whole(swept, sessions, tmp_path, suffix):
    file = portable.export_session(sessions / "swept", tmp_path / f"s{suffix}")
    with pytest.raises(UsageError, match="exists already"):
        portable.import_session(file)
    folder = portable.import_session(file, name="copy")
    with SessionStore.open(folder) as copy:
        assert copy.state() == swept.state()
        assert list(copy.events()) == list(swept.events())
        assert copy.header() == swept.header()
    assert (folder / "artifacts" / "note.txt").read_text() == "hi"
    assert listing.describe(folder).state == "finished"
    assert [path.name for path in sessions.iterdir() if path.name.startswith(".")] == []


def test_what_comes_with_a_session_is_code_of_others(swept, sessions, tmp_path):
    """Wherever in the session a workload lies: a best.cu names its folder itself."""
    launch = {"grid": ["m"], "block": [1]}
    parts = Parts(signature=SIGNATURE, reference=REFERENCE, kernel=KERNEL, launches=(launch,))
    own = assemble(parts, sessions / "swept" / "artifacts" / "else" / "where")
    assert own.trust is Trust.OWN
    archive = portable.export_session(sessions / "swept", tmp_path / "s.tar.gz")
    folder = portable.import_session(archive, name="copy")
    there = folder / "artifacts" / "else" / "where"
    assert load_workload(there).trust is Trust.REMOTE
    best = there / "best.cu"  # and it stays so in a run that goes on from it, whose folder is the user's
    plan = {"entry": "rowsum", "grid": ["m"], "block": ["1"], "shared": "0"}
    about = {"workload": "rowsum", "folder": ".", "plans": [[plan]], "cases": {}}
    best.write_text(f"{MARK}{json.dumps(about)}\n{KERNEL}")
    _, begun = continued(RunSpec(workload="", agent="llm", space="ladder"), str(best), named=False)
    assert begun is not None and assemble(begun, tmp_path / "again").trust is Trust.GENERATED
    placed = own.folder.rename(tmp_path / "placed")
    best.write_text(f"{MARK}{json.dumps(about | {'folder': str(placed)})}\n{KERNEL}")
    with pytest.raises(UsageError, match=f"best.cu was imported: its workload {placed}"):
        read_bare(best)
    spec = RunSpec(workload=str(placed), agent="ladder", space="ladder")
    with SessionStore.create(sessions, "points", {"spec": spec.to_json()}):
        pass
    load_workload(placed)
    pointing = portable.import_session(
        portable.export_session(sessions / "points", tmp_path / "p.zip"), name="pointing"
    )
    with SessionStore.open(pointing) as store, pytest.raises(UsageError, match="pointing was imported"):
        workload_of(store)
    with pytest.raises(UsageError, match="was imported: name the workload"):
        continued(RunSpec(workload="", agent="ladder", space="ladder"), "pointing", named=False)


@pytest.mark.parametrize(
    "odd",
    [
        {"agent": "llm", "space": "ladder", "options": {"base_url": "http://collect.example/v1"}},
        {"agent": "ladder", "space": "ladder", "allow_unsandboxed": True},
        {"workload": "/tmp"},
        {"agent": "ladder", "space": "ladder", "parts": {}},
        {},
    ],
)
def test_an_imported_session_doesnt_choose_who_gets_the_key_or_whose_code_runs(
    sessions: Path, tmp_path: Path, odd: dict[str, Any]
) -> None:
    spec = {"workload": "softmax", "device": "recorded:h200", "space": "classic"} | odd
    with SessionStore.create(sessions, "sent", {"spec": RunSpec.from_json(spec).to_json()}) as store:
        store.append("state", {"state": "interrupted"})
    file = portable.export_session(sessions / "sent", tmp_path / "s.zip")
    imported = portable.import_session(file, name="came")
    if odd:
        with pytest.raises(UsageError, match=r"was imported.*--from came"):
            launch.resume_run(imported)
    else:  # knobs of a bundled workload on a recording: nothing of a stranger's runs
        assert launch.resume_run(imported).wait(60) == 0


def test_a_session_is_exported_while_it_runs(sessions, tmp_path):
    with SessionStore.create(sessions, "live", {}) as store:
        store.append("state", {"state": "running"})
        portable.export_session(sessions / "live", tmp_path)
        store.append("message", {"text": "later"})
    folder = portable.import_session(tmp_path / "live.tar.gz", name="copy")
    assert listing.describe(folder).state == "interrupted"


def test_an_unknown_suffix_is_refused(swept, sessions, tmp_path):
    with pytest.raises(UsageError, match=r"\.tar\.gz or \.zip"):
        portable.export_session(sessions / "swept", tmp_path / "s.rar")


def tar_of(target: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(target, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target


def special(name: str, kind: bytes, link: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([(tarfile.TarInfo("../evil.txt"), b"x")], "which a session doesn't"),
        ([(tarfile.TarInfo("s/../../evil.txt"), b"x")], "which a session doesn't"),
        ([(tarfile.TarInfo("/tmp/evil.txt"), b"x")], "which a session doesn't"),
        ([(tarfile.TarInfo("s/artifacts/../../evil"), b"x")], "which a session doesn't"),
        ([(tarfile.TarInfo("s/run.lock"), b"x")], "which a session doesn't"),
        ([(tarfile.TarInfo("session.db"), b"x")], "which a session doesn't"),
        ([(special("s/artifacts/link", tarfile.SYMTYPE), b"")], "no plain file"),
        ([(special("s/artifacts/link", tarfile.LNKTYPE), b"")], "no plain file"),
        ([(special("s/artifacts/null", tarfile.CHRTYPE), b"")], "no plain file"),
        ([(tarfile.TarInfo("s/artifacts/a"), b"x"), (tarfile.TarInfo("t/artifacts/b"), b"y")], "one folder"),
        ([(tarfile.TarInfo("s/artifacts/a"), b"x"), (tarfile.TarInfo("s/artifacts/a"), b"y")], "twice"),
        ([(tarfile.TarInfo("s/artifacts/a"), b"x")], "session.db is missing"),
        ([(tarfile.TarInfo("s/session.db"), b"text")], "not a session"),
    ],
)
def test_unsafe_or_broken_archives_are_refused_and_leave_nothing(sessions, tmp_path, members, message):
    file = tar_of(tmp_path / "evil.tar.gz", *members)
    with pytest.raises(UsageError, match=message) as caught:
        portable.import_session(file)
    assert "\n" not in str(caught.value)
    assert list(sessions.iterdir()) == []
    assert not list(tmp_path.glob("**/evil.txt"))


def test_a_zip_with_a_link_is_refused(sessions, tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        info = zipfile.ZipInfo("s/artifacts/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UsageError, match="no plain file"):
        portable.import_session(tmp_path / "s.zip")


def test_too_much_is_refused_whatever_the_archive_promises(swept, sessions, tmp_path, monkeypatch):
    file = portable.export_session(sessions / "swept", tmp_path / "s.zip")
    monkeypatch.setattr(portable, "MAX_BYTES", 5000)
    with pytest.raises(UsageError, match="GiB unpacked"):
        portable.import_session(file, name="copy")
    monkeypatch.setattr(portable, "MAX_BYTES", 1 << 30)
    monkeypatch.setattr(portable, "MAX_FILES", 1)
    with pytest.raises(UsageError, match="more than 1 files"):
        portable.import_session(file, name="copy")


def test_a_database_with_a_trigger_is_refused(swept, sessions, tmp_path):
    swept.close()
    db = sqlite3.connect(sessions / "swept" / "session.db", isolation_level=None)
    db.execute("CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM meta; END")
    db.close()
    with pytest.raises(UsageError, match="trigger"):
        SessionStore.open(sessions / "swept")


def test_what_is_no_plain_file_is_refused_before_it_is_read(isolated_home, tmp_path):
    """/dev/zero never ends, a pipe without a writer never begins, a folder has no bytes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe, tmp_path):
        with pytest.raises(UsageError, match="no plain file"):
            portable.import_session(path)


def test_a_missing_archive_is_a_usage_error(isolated_home, tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        portable.import_session(tmp_path / "nothing.zip")


@pytest.fixture(scope="module", params=[".zip", ".tar.gz"])
def packed(request, tmp_path_factory) -> tuple[str, bytes]:
    base = tmp_path_factory.mktemp("packed")
    with SessionStore.create(base, "s", {}) as store:
        store.append("message", {"text": "hello"})
        file = portable.export_session(store.folder, base / f"s{request.param}")
    return file.name, file.read_bytes()


places = st.floats(0, 1, exclude_max=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4), st.floats(0, 1))
def test_damaged_archives_never_become_damaged_sessions(packed, tmp_path_factory, changes, kept):
    """Any bytes changed: refused with one line, or what comes back is a readable session."""
    base = tmp_path_factory.mktemp("fuzz")
    name, content = packed[0], bytearray(packed[1])
    for place, value in changes:
        content[int(place * len(content))] = value
    file = base / name
    file.write_bytes(content if kept > 0.5 else content[: int(2 * kept * len(content))])
    try:
        folder = portable.import_session(file, sessions=base / "b")
    except UsageError as error:
        assert "\n" not in str(error)
        assert not list((base / "b").iterdir())
    else:
        with SessionStore.open(folder) as copy:
            copy.verify()

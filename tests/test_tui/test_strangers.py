"""An imported session's word opens nothing of the reader's: no folder, no source, no recording, no GPU."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_tui.conftest import RECORDED, run_events

from warpdeck.core import recording
from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.kernels import load_workload
from warpdeck.kernels.loader import BUNDLED, FOREIGN
from warpdeck.sessions.attempts import workload_of
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.tui import code, evidence, others
from warpdeck.tui.evidence import Subject
from warpdeck.tui.source_files import Sources, load, of_counters, sources_of


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A workload of the reader's, whose kernel tells when it is run."""
    folder = tmp_path / "mine"
    shutil.copytree(BUNDLED / "softmax", folder, ignore=shutil.ignore_patterns("recordings", "__pycache__"))
    kernel = folder / "classic.py"
    ran = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    future = "from __future__ import annotations\n"
    kernel.write_text(kernel.read_text().replace(future, future + ran, 1))
    return folder


def session(folder: Path, workload: str, *, imported: bool) -> tuple[Path, Sources]:
    """A session that says it worked on this."""
    spec = RunSpec(workload=workload, device="recorded:h200")
    events = run_events(12, end=True)
    with SessionStore.create(folder, "sent", {"spec": spec.to_json()}) as store:
        for event in events:
            data = {**event.data, **({"variant": "classic"} if "variant" in event.data else {})}
            store.append(event.kind, data, event.t)
        state, at = store.state(), store.folder
    if imported:
        (at / FOREIGN).touch()
    return at, sources_of(state, at)


def test_ones_own_session_shows_and_compiles_its_workload(mine: Path, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    folder, sources = session(tmp_path, str(mine), imported=False)
    text = load(sources, sources.versions[0])
    assert any("touch()" in line for line in text.lines)
    version = dataclasses.replace(sources.versions[0], config={"block_size": 128, "reg_cap": 0})
    code.load(sources, version)
    assert (tmp_path / "ran").exists()
    with SessionStore.open(folder) as store:
        assert workload_of(store).folder == mine


@pytest.mark.parametrize("written", ["{}", "{}/workload.toml", "{}/../mine", "mine", "~/mine"])
def test_an_imported_one_doesnt(
    written: str, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder, sources = session(tmp_path, written.format(mine), imported=True)
    for version in sources.versions:
        with pytest.raises(UsageError, match="was imported"):
            load(sources, version)
        assert "was imported" in code.load(sources, version).why_code
    with SessionStore.open(folder) as store, pytest.raises(UsageError, match="was imported"):
        workload_of(store)
    assert not (tmp_path / "ran").exists()


def test_an_imported_one_shows_what_is_bundled_or_came_with_it(mine: Path, tmp_path: Path) -> None:
    _, sources = session(tmp_path, "softmax", imported=True)
    assert load(sources, sources.versions[0]).file == "classic.py"
    folder, sources = session(tmp_path / "other", str(mine), imported=True)
    shutil.copytree(mine, folder / "artifacts" / "mine")
    with SessionStore.open(folder) as store:
        assert workload_of(store).folder == folder / "artifacts" / "mine"
    assert any("touch()" in line for line in load(sources, sources.versions[0]).lines)


@pytest.mark.parametrize("name", ["", "\0", "~nobody/x", "/proc/self/cwd", "a" * 5000, "/"])
def test_names_that_make_no_sense_are_one_plain_error(name: str, tmp_path: Path) -> None:
    _, sources = session(tmp_path, name, imported=True)
    with pytest.raises(UsageError) as caught:
        load(sources, sources.versions[0])
    assert "\n" not in str(caught.value)


def test_a_profiles_workload_is_a_name(mine: Path, tmp_path: Path) -> None:
    meta = {"workload": str(mine), "variant": "classic", "config": {"block_size": 128, "reg_cap": 0}}
    sources, version = of_counters(Counters("softmax", {}, meta=meta), None)
    with pytest.raises(UsageError, match="not opened"):
        load(sources, version)
    assert "not opened" in code.load(sources, version).why_code
    assert not (tmp_path / "ran").exists()


def test_a_source_file_is_no_variant(mine: Path, tmp_path: Path) -> None:
    """The command line takes a file in a variant's place; a log's or a profile's words don't."""
    file = str(mine / "classic.py")
    meta = {"workload": "softmax", "variant": file, "config": {"block_size": 128, "reg_cap": 0}}
    found = code.load(*of_counters(Counters("softmax", {}, meta=meta), None))
    assert found.sass == () and "variant" in found.why_code
    subject = Subject("softmax", file, meta["config"], 1024, "recorded:h200", True, tmp_path)
    with pytest.raises(UsageError, match="variant"):
        evidence.require_names(tmp_path, "softmax", "recorded:h200")
        evidence._variant(subject)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("find", [evidence.find_trace, evidence.find_counters])
@pytest.mark.parametrize("device", ["recorded:{}", "cuda:0", "cpu", "auto"])
def test_an_imported_sessions_device_is_a_recordings_name(device: str, find: Any, tmp_path: Path) -> None:
    workload = load_workload("softmax")
    made = synthetic.make(workload, "classic", 1024)
    file = tmp_path / made.file_name
    recording.save(made, file)
    folder, _ = session(tmp_path, "softmax", imported=True)
    config = {"block_size": 64, "reg_cap": 0}
    subject = Subject("softmax", "classic", config, 1024, device.format(file), True, folder)
    with pytest.raises(WarpdeckError, match=r"was imported|no names of"):
        find(subject)
    meta = {"workload": "softmax", "device": {**RECORDED, "spec": subject.device}}
    assert others.traces(meta, folder) == others.profiles(meta, folder) == []
    own = dataclasses.replace(subject, device="recorded:h200")
    assert find(own)[0].meta["workload"] == "softmax"

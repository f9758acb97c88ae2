"""Bundled sessions, and archives, are replayed by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from session_logs import swept_session

from warpdeck.cli.app import run
from warpdeck.core.errors import UsageError
from warpdeck.sessions import examples, paths
from warpdeck.sessions.portable import export_session
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPDECK_HOME", str(tmp_path / "home"))


def test_every_bundled_session_can_be_replayed(home: None) -> None:
    assert examples.names()
    for name in examples.names():
        folder = examples.resolve(name)
        assert folder.name == name and folder == examples.resolve(name)  # unpacked once
        with SessionStore.open(folder) as store:
            state = store.state()
        assert state.lifecycle.final and state.best is not None
        assert state.info is not None and state.info.device is not None
        assert not state.info.device.recorded


def test_an_archive_is_replayed(home: None, tmp_path: Path) -> None:
    with swept_session(tmp_path / "here") as store:
        archive = export_session(store.folder, tmp_path / "there.tar.gz")
    folder = examples.resolve(str(archive))
    assert folder.parent == paths.home().sessions


def test_an_unknown_name_tells_the_bundled_ones(home: None) -> None:
    with pytest.raises(UsageError, match=examples.names()[0]):
        examples.resolve("nothing-like-it")


def test_bundled_sessions_are_listed_shown_compared_and_exported(
    home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = examples.names()[0]
    assert run(["sessions", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["sessions"] == [] and name in listed["bundled"]
    assert run(["sessions", "list"]) == 0
    assert name in capsys.readouterr().err
    assert run(["sessions", "export", name, "--best"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text().count("__global__") >= 1
    with swept_session(paths.home().sessions) as store:
        mine = store.id
    for command in (["show", name, "--json"], ["compare", name, mine, "--json"]):
        assert run(["sessions", *command]) == 0
        assert name in capsys.readouterr().out
    assert run(["sessions", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["id"] for row in listed["sessions"]} == {name, mine} and name not in listed["bundled"]


def test_a_bundled_session_is_none_of_the_newest(home: None) -> None:
    with swept_session(paths.home().sessions) as store:
        mine = store.folder
    examples.resolve(examples.names()[0])
    assert paths.resolve("last") == mine

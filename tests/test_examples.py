"""Bundled sessions, and archives, are replayed by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from session_logs import swept_session

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

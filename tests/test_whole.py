"""Files written whole or not at all, and what is no plain file."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from warpdeck.telemetry.whole import whole


def _left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    with whole(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new" and _left(tmp_path) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(RuntimeError), whole(file) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old" and _left(tmp_path) == ["a.txt"]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    with pytest.raises(OSError) as caught, whole(file):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(file)
    with pytest.raises(OSError) as caught, whole(tmp_path / "none" / "a.txt") as partial:
        partial.write_text("text")
    assert caught.value.filename == str(tmp_path / "none" / "a.txt")


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    for text in ("first", "second"):  # dangling, then not
        with whole(link) as partial:
            partial.write_text(text)
        assert link.is_symlink() and real.read_text() == text


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    file = tmp_path / ("x" * 255)
    with whole(file) as partial:
        partial.write_text("text")
    assert file.read_text() == "text"


def test_what_is_no_plain_file_is_written_into(tmp_path: Path) -> None:
    """As root, a rename onto /dev/null would leave the machine without one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    with whole(pipe) as partial:
        partial.write_text("through")
    reader.join(10)
    assert got == ["through"] and pipe.is_fifo()


def test_the_null_device_stays_a_device() -> None:
    with whole(Path(os.devnull)) as partial:
        assert partial == Path(os.devnull)
        partial.write_text("nothing")
    assert not Path(os.devnull).is_file()

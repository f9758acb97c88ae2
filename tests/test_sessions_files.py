"""What sessions become outside their database: lists, tables, frames; specs and homes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import session_logs
from hypothesis import given
from hypothesis import strategies as st
from session_logs import AXPY_CU, AXPY_TOML, CASES, SOFTMAX, judged, start_event

from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.kernels import load_workload
from warpdeck.sessions import (
    alive,
    database,
    frames,
    listing,
    paths,
    phase0,
)
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def sessions(isolated_home: Path) -> Path:
    return paths.home().sessions


@pytest.fixture
def swept(sessions: Path) -> Iterator[SessionStore]:
    with session_logs.swept_session(sessions) as store:
        yield store


# -- phase 0 ----------------------------------------------------------------------------------------


def test_phase0_has_the_documents_columns_order_and_spelling(swept, tmp_path):
    written, failures = phase0.export([swept], tmp_path / "phase0.csv")
    text = (tmp_path / "phase0.csv").read_text()
    assert text.splitlines()[0] == (
        "kernel,matrix_size,block_size,threads_per_block,reg_cap,est_regs,actual_regs,theor_occ,"
        "time_ms_mean,time_ms_std,time_ms_min,time_ms_max"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert (written, failures, len(rows)) == (16, 1, 16)
    keys = [(int(r["matrix_size"]), int(r["block_size"]), int(r["reg_cap"])) for r in rows]
    assert keys == sorted(keys)
    assert {r["reg_cap"] for r in rows} == {"0", "32", "64"}
    capped = next(r for r in rows if (r["block_size"], r["reg_cap"]) == ("256", "32"))
    assert (capped["est_regs"], capped["actual_regs"], capped["theor_occ"]) == ("56", "32", "0.5")
    assert capped["threads_per_block"] == "256"
    assert float(capped["time_ms_min"]) < float(capped["time_ms_mean"]) < float(capped["time_ms_max"])
    repeated = next(r for r in rows if (r["block_size"], r["reg_cap"]) == ("128", "0"))
    assert float(repeated["time_ms_mean"]) == pytest.approx(9.0)


def test_phase0_of_another_space_has_its_knobs_in_block_sizes_place(sessions):
    with SessionStore.create(sessions, "full", {}) as store:
        store.append("start", start_event("full"))
        config = SOFTMAX.space("full").configs(CASES[1].params)[0]
        store.append("evaluation", {"step": 1, **judged(config, 0.5, "full").to_json()})
        rows, _ = phase0.rows(store)
    header = phase0.csv_text(rows).splitlines()[0].split(",")
    knobs = [name for name in config if name != "reg_cap"]
    assert header == ["kernel", "matrix_size", *knobs, *phase0.COLUMNS[3:]]


def test_phase0_of_nothing_is_a_header():
    assert phase0.csv_text([]) == ",".join(phase0.COLUMNS) + "\n"


def test_a_table_that_cannot_be_written_is_a_plain_error(swept, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WarpdeckError, match="can't write"):
        phase0.export([swept], tmp_path / "file" / "phase0.csv")


# -- lists ------------------------------------------------------------------------------------------


def test_a_list_shows_damage_and_goes_on(swept, sessions):
    swept.close()
    for name in ("a-text", "b-empty", "c-future", "d-bytes"):
        shutil.copytree(sessions / "swept", sessions / name)
    (sessions / "a-text" / "session.db").write_text("not a database")
    shutil.rmtree(sessions / "b-empty")
    (sessions / "b-empty").mkdir()
    db = sqlite3.connect(sessions / "c-future" / "session.db", isolation_level=None)
    db.execute("PRAGMA user_version = 7")
    db.close()
    data = (sessions / "d-bytes" / "session.db").read_bytes()
    (sessions / "d-bytes" / "session.db").write_bytes(data[:4096] + os.urandom(len(data) - 4096))
    found = {info.id: info for info in listing.list_sessions()}
    assert set(found) == {"swept", "a-text", "b-empty", "c-future", "d-bytes"}
    good = found.pop("swept")
    assert (good.state, good.workload, good.agent, good.steps) == ("finished", "softmax", "sweep", 10)
    assert good.best_speedup == pytest.approx(0.8 / 0.564)
    assert good.device == "Synthetic GPU (cuda:0)"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", good.started or "")
    for info in found.values():
        assert info.state == "damaged"
        assert info.error
        assert "\n" not in info.error
    assert "newer" in (found["c-future"].error or "")
    assert set(good.to_json()) >= {
        "id", "workload", "agent", "device", "started", "steps", "best_speedup", "state"
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE event SET t = 'noon'",
        "UPDATE event SET kind = x'ff00' WHERE seq = 2",
        "UPDATE event SET data = x'ff' WHERE seq = 2",
        "UPDATE event SET data = '[]' WHERE seq = 2",
        "UPDATE meta SET value = '{'",
        "UPDATE event SET data = json_set(data, '$.knobs', json('[1]')) WHERE kind = 'start'",
        "INSERT INTO event SELECT MAX(seq) + 1, MAX(t), 'result', '{\"best\": 5}' FROM event",
        "DROP TABLE event; CREATE TABLE event (a)",
    ],
)
def test_readable_rows_with_odd_content_are_damage(swept, sessions, damage):
    swept.close()
    shutil.copytree(sessions / "swept", sessions / "odd")
    db = sqlite3.connect(sessions / "odd" / "session.db", isolation_level=None)
    db.executescript(f"DELETE FROM snapshot; DELETE FROM series; {damage}")
    db.close()
    found = {info.id: info for info in listing.list_sessions()}
    assert found["swept"].state == "finished"
    assert (found["odd"].state, found["odd"].started) == ("damaged", None)
    assert found["odd"].error and "damaged" in found["odd"].error and "\n" not in found["odd"].error
    with pytest.raises(UsageError, match="damaged"):
        listing.show(sessions / "odd")


def test_show_tells_what_the_session_knows(swept, sessions):
    document = listing.show(sessions / "swept")
    assert document["state"] == "finished"
    assert document["result"]["counts"] == {"ok": 9, "incorrect": 1}
    assert document["artifacts"] == [{"name": "note", "path": str(sessions / "swept/artifacts/note.txt")}]
    (sessions / "swept" / "session.db").write_text("broken")
    with pytest.raises(UsageError):
        listing.show(sessions / "swept")


def test_removing_spares_a_session_that_runs(swept, sessions):
    lock = alive.RunLock.acquire(sessions / "swept")
    with pytest.raises(UsageError, match=f"running .process {os.getpid()}"):
        listing.remove(sessions / "swept")
    lock.release()
    listing.remove(sessions / "swept")
    assert listing.list_sessions() == []


def test_names_resolve_by_beginning_by_last_and_by_path(sessions):
    for i, name in enumerate(("softmax-a", "softmax-b", "gemm-c")):
        SessionStore.create(sessions, name, {}).close()
        os.utime(sessions / name / paths.STAMP, (i, i))
    assert paths.resolve("gemm") == sessions / "gemm-c"
    assert paths.resolve("softmax-a") == sessions / "softmax-a"
    assert paths.resolve("last") == sessions / "gemm-c"
    assert paths.resolve(str(sessions / "softmax-b")) == sessions / "softmax-b"
    assert paths.resolve(str(sessions / "softmax-b" / "session.db")) == sessions / "softmax-b"
    with pytest.raises(UsageError, match="could be softmax-a, softmax-b"):
        paths.resolve("softmax")
    with pytest.raises(UsageError, match=r"did you mean.*softmax-a"):
        paths.resolve("sotfmax-a")
    with pytest.raises(UsageError, match="sessions list"):
        paths.resolve("zzz")
    with pytest.raises(UsageError, match="no session there"):
        paths.resolve("./nowhere")


def test_a_home_may_be_a_link_to_what_is_not_there_yet(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "later")
    monkeypatch.setenv("WARPDECK_HOME", str(tmp_path / "link"))
    with SessionStore.create(paths.home().sessions, "first", {}):
        assert (tmp_path / "later" / "sessions" / "first" / "session.db").is_file()


def test_last_without_sessions_says_how_to_make_one(isolated_home):
    with pytest.raises(UsageError, match="warpdeck tune"):
        paths.resolve("last")


# -- home -------------------------------------------------------------------------------------------


def test_file_systems_are_told_by_the_longest_mount(tmp_path):
    mounts = tmp_path / "mounts"
    folder = os.path.realpath(tmp_path)
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\nserver:/h {folder} nfs4 rw 0 0\n"
        f"x {folder}/with\\040space fuse.sshfs rw 0 0\n"
    )
    assert paths.filesystem(Path("/"), str(mounts)) == "ext4"
    assert paths.filesystem(tmp_path / "not" / "there", str(mounts)) == "nfs4"
    assert paths.filesystem(tmp_path / "with space" / "a", str(mounts)) == "fuse.sshfs"
    assert paths.filesystem(Path("/"), str(tmp_path / "absent")) is None
    assert [paths.is_network(kind) for kind in ("ext4", "nfs4", "9p", "fuse.sshfs", "fuse.ext2", None)] == [
        False, True, True, True, False, False
    ]  # fmt: skip


def test_a_network_home_keeps_its_sessions_locally(monkeypatch, isolated_home):
    monkeypatch.setattr(paths, "filesystem", lambda path: "nfs4")
    home = paths.home()
    assert home.path == isolated_home
    assert not home.sessions.is_relative_to(isolated_home)
    assert home.notice
    assert "nfs4" in home.notice


# -- frames -----------------------------------------------------------------------------------------


def test_frames_hold_the_log(swept, sessions):
    tables = frames.read_session("swept")
    assert len(tables.evaluations) == 10
    assert set(tables.evaluations["knob_block_size"]) == {64, 128, 256}
    assert len(tables.measurements) == 18
    assert len(tables.samples) == 54
    assert tables.steps["speedup"].iloc[0] == pytest.approx(0.8 / (0.5 + 0.256 + 0.00064))
    assert tables.telemetry["power_w"].tolist() == [350.5]
    assert tables.messages["text"].tolist() == ["hello"]
    merged = tables.measurements.merge(tables.evaluations, on=["step", "candidate"])
    assert len(merged) == 18


def test_frames_of_an_empty_session_have_their_columns(sessions):
    SessionStore.create(sessions, "empty", {}).close()
    tables = frames.read_session("empty")
    assert list(tables.steps.columns) == ["step", "t", "reward", "speedup", "best_speedup"]
    assert len(tables.evaluations) == 0


# -- specs ------------------------------------------------------------------------------------------


@given(
    st.builds(
        RunSpec,
        workload=st.sampled_from(["softmax", "/a/b"]),
        sizes=st.lists(st.integers(1, 8192), max_size=3).map(tuple),
        steps=st.integers(1, 10**6),
        time_limit_s=st.none() | st.floats(0.1, 1e6),
        cache=st.sampled_from(["cold", "hot"]),
        seed=st.integers(0, 2**32),
        options=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
    )
)
def test_a_spec_survives_its_json(spec):
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": "many"},
        {"samples": 0},
        {"warmup": -1},
        {"seed": -1},
        {"time_limit_s": 0.0},
        {"time_limit_s": float("nan")},
        {"cache": "warm"},
        {"sizes": "x"},
        {"finalists": True},
    ],
)
def test_an_impossible_spec_is_a_usage_error(wrong):
    with pytest.raises(UsageError) as caught:
        RunSpec.from_json({"workload": "softmax", **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["axpy", "./axpy", "axpy/workload.toml"])
def test_a_workload_and_a_recording_are_found_from_any_working_directory(name, tmp_path, monkeypatch):
    (tmp_path / "axpy").mkdir()
    (tmp_path / "axpy" / "workload.toml").write_text(AXPY_TOML)
    (tmp_path / "axpy" / "kernel.cu").write_text(AXPY_CU)
    (tmp_path / "axpy" / "scale.cuh").write_text("")
    (tmp_path / "axpy" / "reference.py").write_text("def reference(x, y):\n    return y\n")
    monkeypatch.chdir(tmp_path)
    spec = RunSpec(name, device="recorded:a.json").absolute(load_workload(name))
    assert (spec.workload, spec.device) == (str(tmp_path / "axpy"), f"recorded:{tmp_path / 'a.json'}")
    spec = RunSpec("softmax", device="recorded:h200").absolute(SOFTMAX)
    assert (spec.workload, spec.device) == ("softmax", "recorded:h200")


# -- imports ----------------------------------------------------------------------------------------


def test_no_module_of_sessions_imports_the_heavy_libraries():
    code = """
import importlib, pkgutil, sys
import warpdeck.sessions
for module in pkgutil.iter_modules(warpdeck.sessions.__path__):
    importlib.import_module(f"warpdeck.sessions.{module.name}")
heavy = {"torch", "numba", "openai", "cuda", "pandas", "gymnasium", "stable_baselines3", "optuna", "textual"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_schema_is_the_one_that_documents_say(sessions):
    with SessionStore.create(sessions, "s", {}) as store:
        columns = store._db.execute("SELECT name FROM pragma_table_info('event')").fetchall()
    assert [name for (name,) in columns] == ["seq", "t", "kind", "data"]
    assert database.SCHEMA_VERSION == 1

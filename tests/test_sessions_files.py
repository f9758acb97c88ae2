"""What sessions become outside their database: lists, tables, archives, frames, standalone kernels."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.core.model import CacheMode, Config, Evaluation, Launch, Measurement, Resources, Status
from warpdeck.kernels import load_workload
from warpdeck.sessions import (
    alive,
    best,
    database,
    frames,
    listing,
    paths,
    phase0,
    portable,
    standalone_numba,
)
from warpdeck.sessions.choices import Choice
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

SOFTMAX = load_workload("softmax")
CASES = [SOFTMAX.size_case(n) for n in (256, 1024)]


def judged(config: Config, ms: float, space: str = "classic", registers: int = 40) -> Evaluation:
    """An evaluation as a device makes it: `ms` at size 256 and four times that at 1024."""
    candidate = SOFTMAX.candidate(space, config)
    times = [np.array([ms, ms * 1.1, ms * 0.9]) * scale for scale in (1, 4)]
    return Evaluation(
        candidate,
        Status.OK,
        measurements=tuple(
            Measurement(case.name, CacheMode.COLD, "cupti", t, ci95_ms=(t[0] * 0.99, t[0] * 1.01))
            for case, t in zip(CASES, times, strict=True)
        ),
        launches={case.name: SOFTMAX.launches(candidate, case) for case in CASES},
        resources=Resources(registers, occupancy=0.5),
    )


def start_event(space: str = "classic") -> dict[str, object]:
    return {
        "workload": "softmax",
        "agent": "sweep",
        "seed": 0,
        "space": space,
        "cases": [{"name": c.name, "params": dict(c.params)} for c in CASES],
        "device": synthetic.DEVICE.to_json(),
        "protocol": {"cache": "cold"},
        "steps": 9,
        "knobs": {k: list(v) for k, v in SOFTMAX.space(space).knobs.items()},
    }


@pytest.fixture
def sessions(isolated_home: Path) -> Path:
    return paths.home().sessions


@pytest.fixture
def swept(sessions: Path) -> SessionStore:
    """A finished sweep of `classic`, evaluated in an odd order, with one failure and one repetition."""
    store = SessionStore.create(sessions, "swept", {"workload": "softmax", "agent": "sweep"})
    store.append("state", {"state": "running"})
    store.append("start", start_event())
    store.append("baseline", judged({"block_size": 256, "reg_cap": 0}, 0.8, registers=56).to_json())
    configs = SOFTMAX.space("classic").configs()
    for step, config in enumerate(reversed(configs), 1):
        ms = 0.5 + config["block_size"] / 1000 + config["reg_cap"] / 1e5
        evaluation = judged(config, ms, registers=config["reg_cap"] or 56)
        if config == {"block_size": 64, "reg_cap": 32}:
            evaluation = dataclasses.replace(evaluation, status=Status.INCORRECT, measurements=())
        store.append("evaluation", {"step": step, **evaluation.to_json()})
        store.append("step", {"step": step, "reward": 0.1, "speedup": 0.8 / ms, "best_speedup": 1.0})
    store.append("evaluation", {"step": 10, **judged({"block_size": 128, "reg_cap": 0}, 9.0).to_json()})
    store.append("message", {"level": "info", "text": "hello"})
    store.append("sample", {"t": 1.0, "power_w": 350.5, "throttle": ["idle"]})
    store.append("artifact", {"name": "note", "path": "artifacts/note.txt"})
    (store.folder / "artifacts" / "note.txt").write_text("hi")
    store.append("state", {"state": "finished", "exit_code": 0})
    yield store
    store.close()


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


# -- archives ---------------------------------------------------------------------------------------


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


# -- standalone kernels -----------------------------------------------------------------------------


def test_the_best_stands_alone_and_compiles(sessions, tmp_path):
    """Each size with the configuration that was clearly fastest there; code without warpdeck in it."""
    numba_cuda = pytest.importorskip("numba.cuda")
    small, large = SOFTMAX.space("full").configs(CASES[0].params)[5:7]
    with SessionStore.create(sessions, "s", {}) as store:
        store.append("start", start_event("full"))
        store.append("baseline", judged(small, 1.0, "full").to_json())
        first = judged(small, 0.5, "full")
        store.append("evaluation", {"step": 1, **first.to_json()})
        second = judged(large, 0.7, "full")
        at_large = Measurement("1024", CacheMode.COLD, "cupti", np.full(3, 0.9), ci95_ms=(0.9, 0.9))
        second = dataclasses.replace(second, measurements=(second.measurements[0], at_large))
        store.append("evaluation", {"step": 2, **second.to_json()})
        name, text = best.standalone(store)
    assert name == "best.py"
    assert "warpdeck" not in re.sub(r'^""".*?"""', "", text, count=1, flags=re.DOTALL)
    file = tmp_path / "best.py"
    file.write_text(text)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.modules["warpdeck"] = None
import best
print(best.knobs_for(256, 256) == {dict(small)!r}, best.knobs_for(900, 1200) == {dict(large)!r})
print(sorted(best.functions(best.knobs_for(256, 256))))
print(best.reference_function()(best.np.zeros((2, 4))).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "True True"
    assert lines[2] == str([[0.25] * 4] * 2)
    assert numba_cuda is not None


@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
@pytest.mark.parametrize("space", ["classic", "full"])
def test_a_standalone_file_compiles_to_the_measured_binary(name, space, tmp_path):
    pytest.importorskip("numba.cuda")
    from warpdeck.core.toolchain import compile_candidate

    workload = load_workload(name)
    variant = workload.variant(workload.space(space).variant)
    case = workload.size_case(1024)
    candidate = workload.candidate(space, workload.space(space).configs(case.params)[0])
    choice = Choice(case.name, case.params, candidate.config, 1.0, 2.0)
    file = tmp_path / "best.py"
    file.write_text(standalone_numba.generate(workload, variant, [choice], ["a title", "a line"]))
    alone = dataclasses.replace(
        workload, variants={**workload.variants, variant.name: dataclasses.replace(variant, file=file)}
    )
    measured, again = (compile_candidate(w, candidate, case) for w in (workload, alone))
    assert again.resources.code_hash == measured.resources.code_hash


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
@pytest.mark.parametrize("space", ["classic", "full"])
def test_a_standalone_file_runs_and_is_right(name, space, tmp_path):
    workload = load_workload(name)
    variant = workload.variant(workload.space(space).variant)
    case = workload.size_case(256)
    config = workload.space(space).configs(case.params)[0]
    file = tmp_path / "best.py"
    choices = [Choice(case.name, case.params, config, 1.0, 2.0)]
    file.write_text(standalone_numba.generate(workload, variant, choices, ["a title"]))
    done = subprocess.run(
        [sys.executable, str(file), "256"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    error = re.search(r"error at most \S+, (\S+) of the largest", done.stdout)
    assert error is not None
    assert float(error[1]) < 1e-3
    assert "median of 20 calls" in done.stdout


def test_a_cuda_variant_stands_alone(isolated_home, sessions, tmp_path):
    folder = tmp_path / "axpy"
    folder.mkdir()
    (folder / "workload.toml").write_text(AXPY_TOML)
    (folder / "kernel.cu").write_text(AXPY_CU)
    (folder / "scale.cuh").write_text("#pragma once\n#include <cuda_fp16.h>\n#define SCALE 2\n")
    (folder / "reference.py").write_text("def reference(x, y, n, a):\n    return {'y': y + a * x}\n")
    workload = load_workload(folder)
    space = next(iter(workload.spaces))
    cases = [workload.size_case(n) for n in (1000, 100_000)]
    spec = RunSpec(str(folder), space=space)
    with SessionStore.create(sessions, "s", {"spec": spec.to_json()}) as store:
        store.append(
            "start",
            {**start_event(), "cases": [{"name": c.name, "params": dict(c.params)} for c in cases]},
        )
        for step, (block, times) in enumerate({64: (1.0, 9.0), 256: (2.0, 4.0)}.items(), 1):
            candidate = workload.candidate(space, {"BLOCK": block, "reg_cap": 32 if block == 256 else 0})
            measured = tuple(
                Measurement(c.name, CacheMode.COLD, "cupti", np.full(3, ms), ci95_ms=(ms, ms))
                for c, ms in zip(cases, times, strict=True)
            )
            launches = {c.name: (Launch("axpy", (1, 1, 1), (block, 1, 1)),) for c in cases}
            evaluation = Evaluation(candidate, Status.OK, measurements=measured, launches=launches)
            store.append("evaluation", {"step": step, **evaluation.to_json()})
        name, text = best.standalone(store)
    assert name == "best.cu"
    assert text.count("#include <cuda_fp16.h>") == 1
    assert "scale.cuh" not in text
    assert "{1000, 0}, {100000, 1}" in text
    assert "unsigned(ceil_div(n_, 256))" in text
    pytest.importorskip("cuda.bindings.nvrtc")
    from warpdeck.core.toolchain import compile_cuda

    compiled = compile_cuda(text, "best.cu", (9, 0))
    names = " ".join(compiled.entries.values())
    assert "axpy_config0" in names
    assert "axpy_config1" in names


AXPY_CU = """
#include "scale.cuh"
#define TWICE(x) ((x) * SCALE / 2)
static __device__ float helper(float v) { return TWICE(v); }
extern "C" __global__ void axpy(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] += a * helper(x[i]);
}
"""

AXPY_TOML = """
[workload]
name = "axpy"
description = "y = a*x + y"
entry = "axpy"

[sizes]
n = "size"

[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"

[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "inout"

[[argument]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "n"

[[argument]]
name = "a"
kind = "scalar"
dtype = "float32"
value = "2"

[[case]]
name = "odd"
role = "correctness"
n = 1003

[launch]
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]
shared = 0

[knobs]
BLOCK = [64, 256]
reg_cap = [0, 32]
"""


def test_a_session_without_results_has_no_best(sessions):
    with SessionStore.create(sessions, "s", {}) as store, pytest.raises(UsageError, match="no measured"):
        best.standalone(store)


def test_a_changed_source_is_not_passed_off_as_the_measured_one(swept):
    logged = next(swept.events(kinds=["evaluation"])).data
    swept.append("evaluation", {**logged, "source_hash": "0" * 16})
    with pytest.raises(UsageError, match="has changed since"):
        best.standalone(swept)


def test_modules_beside_the_kernel_are_put_into_the_file(tmp_path):
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "workload.toml").write_text(AXPY_TOML)
    (folder / "kernel.py").write_text(
        '"""A kernel."""\nfrom __future__ import annotations\nfrom helpers import factor as by\n\n\n'
        "def make(BLOCK):\n    return by\n"
    )
    (folder / "helpers.py").write_text('"""Help."""\n\ndef factor(x):\n    return x\n')
    (folder / "reference.py").write_text("def reference(x, y):\n    return y\n")
    workload = load_workload(folder)
    variant = next(iter(workload.variants.values()))
    case = workload.size_case(64)
    choices = [Choice("64", case.params, {"BLOCK": 64, "reg_cap": 0}, 1.0, None)]
    text = standalone_numba.generate(workload, variant, choices, ["twice"])
    assert text.index("def factor(x)") < text.index("by = factor") < text.index("def make(BLOCK)")
    assert "import factor" not in text
    (folder / "helpers.py").write_text("def make(x):\n    return x\n\nfactor = make\n")
    with pytest.raises(UsageError, match="both define 'make'"):
        standalone_numba.generate(workload, variant, choices, ["twice"])
    (folder / "kernel.py").write_text("import helpers\n\n\ndef make(BLOCK):\n    return helpers.factor\n")
    with pytest.raises(UsageError, match="write `from helpers import"):
        standalone_numba.generate(workload, variant, choices, ["twice"])


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

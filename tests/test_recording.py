"""Recordings on disk, and the device that answers from them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core import recording
from warpdeck.core.devices import open_device
from warpdeck.core.errors import UsageError
from warpdeck.core.model import CacheMode, Protocol, Status
from warpdeck.core.recording import Series
from warpdeck.kernels import load_workload


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recordings")
    return synthetic.write(folder, load_workload("softmax"), "classic", [256, 1024])


def test_saves_and_loads_the_same(files: list[Path], tmp_path: Path) -> None:
    first = recording.load(files[0])
    again = tmp_path / "again.t4.json.gz"
    recording.save(first, again)
    assert again.read_bytes() == files[0].read_bytes()
    assert first.device.name == "Synthetic GPU" and first.reading.recorded
    assert first.reading.label == "recorded on Synthetic GPU, 2026-01-01"


def test_is_valid_t4(files: list[Path]) -> None:
    data = json.loads(gzip.decompress(files[0].read_bytes()))
    assert data["schema_version"] == "1.0.0"
    for row in data["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= row.keys()
        assert row["invalidity"] in {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
        assert row["measurements"][0]["value"] == pytest.approx(np.median(row["times"]["runtimes"]), abs=1e-6)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_damage_is_one_plain_error(files: list[Path], at: int, junk: bytes) -> None:
    raw = bytearray(files[0].read_bytes())
    start = at * len(raw) // 401
    raw[start : start + len(junk)] = junk
    damaged = files[0].parent / "damaged.json"
    damaged.write_bytes(raw)
    try:
        recording.load(damaged)
    except UsageError as error:
        assert "damaged.json" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a JSON"),
        (b"[]", "not a recording"),
        (b"{}", "not a warpdeck recording"),
        (b'{"metadata": {"warpdeck": {"format": 99}}, "results": []}', "newer warpdeck"),
        (b'{"metadata": {"warpdeck": {"format": 1}}, "results": []}', "missing"),
        (b'{"metadata": {"warpdeck": []}, "results": []}', "corrupt recording"),
        (gzip.compress(b"{}", mtime=0)[:-4], "cut short"),
    ],
)
def test_foreign_and_future_files(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        recording.load(path)
    with pytest.raises(UsageError):
        open_device(f"recorded:{path}")


def test_missing_file_and_unknown_names(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        open_device(f"recorded:{tmp_path / 'none.json'}")
    with pytest.raises(UsageError, match=r"available: recorded:test"):
        open_device("recorded:h9000", files)
    with pytest.raises(UsageError, match="did you mean"):
        open_device("cud:0")


def test_draws_are_seeded_noisy_and_order_independent(files: list[Path]) -> None:
    workload = load_workload("softmax")
    case = workload.size_case(256)
    configs = workload.spaces["classic"].configs(case.params)

    def run(seed: int, order: list[int]) -> dict[str, float | None]:
        backend = open_device("recorded:test", files).prepare(
            workload, space="classic", cases=[case], seed=seed
        )
        picked = [workload.candidate("classic", configs[i]) for i in order]
        return {c.id: backend.evaluate(c, [case], Protocol()).score_ms for c in picked}

    forward, backward = run(1, [0, 1, 2, 3]), run(1, [3, 2, 1, 0])
    assert forward == backward
    assert run(2, [0, 1, 2, 3]) != forward
    backend = open_device("recorded:test", files).prepare(workload, space="classic", cases=[case], seed=1)
    candidate = workload.candidate("classic", configs[0])
    first, second = (backend.evaluate(candidate, [case], Protocol()).score_ms for _ in range(2))
    assert first != second  # measuring again is a new draw
    stored = recording.load(files[0]).entries[recording.config_key(configs[0])].series[CacheMode.COLD]
    status, samples = backend.quick(candidate, case, cache=CacheMode.COLD)
    assert status is Status.OK and set(samples) <= set(stored.ms)


def test_unrecorded_size_names_what_is_recorded(files: list[Path]) -> None:
    workload = load_workload("softmax")
    device = open_device("recorded:test", files)
    with pytest.raises(UsageError, match=r"size 777 is not recorded; recorded: classic: 256, 1024"):
        device.prepare(workload, space="classic", cases=[workload.size_case(777)], seed=0)
    twice = open_device("recorded:test", [*files, *files])
    with pytest.raises(UsageError, match=r"recorded: classic: 256, 1024$"):
        twice.prepare(workload, space="classic", cases=[workload.size_case(777)], seed=0)
    with pytest.raises(UsageError, match=r"nothing of 'gemm' is recorded, only softmax; .* takes a CUDA GPU"):
        gemm = load_workload("gemm")
        device.prepare(gemm, space="classic", cases=[gemm.size_case(256)], seed=0)


def test_comparison_has_one_block_a_round(files: list[Path]) -> None:
    workload = load_workload("softmax")
    case = workload.size_case(256)
    backend = open_device("recorded:test", files).prepare(workload, space="classic", cases=[case], seed=0)
    a, b = (workload.candidate("classic", c) for c in workload.spaces["classic"].configs(case.params)[:2])
    (paired,) = backend.compare(a, b, [case], CacheMode.COLD, blocks={case.name: 500})
    assert paired.a_ms.shape == paired.b_ms.shape == (8, 4)


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=30), st.integers(1, 5))
def test_series_round_trip(values: list[float], each: int) -> None:
    ms = np.asarray(values, dtype=np.float64).round(6)
    series = Series(ms, (np.arange(len(ms)) // each).astype(np.int32))
    again = Series.from_json(json.loads(json.dumps(series.to_json())))
    assert np.array_equal(again.ms, ms) and np.array_equal(again.rounds, series.rounds)


def _meta(document: dict[str, Any]) -> dict[str, Any]:
    return document["metadata"]["warpdeck"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda d: _meta(d).update(name="../../evil"), "its name"),
        (lambda d: _meta(d).update(workload="x/../../y"), "its workload"),
        (lambda d: _meta(d).update(workload=5), "its workload"),
        (lambda d: _meta(d).update(case=".."), "its case"),
        (lambda d: _meta(d).update(name="a\x1b[31mb"), "its name"),
        (lambda d: _meta(d).update(name="é" * 99, workload="é" * 99), "longer than 255 bytes"),
        (lambda d: _meta(d).update(date=5), "its date"),
        (lambda d: _meta(d).update(protocol=None), "its protocol"),
        (lambda d: _meta(d)["device"].update(dram_gbs="fast"), "dram_gbs"),
        (lambda d: d.update(results=[]), "holds no configuration"),
        (lambda d: d["results"][0].update(configuration={"x": 1}), "other knobs"),
        (lambda d: d["results"][0]["warpdeck"].update(series={}), "no samples"),
        (lambda d: d["results"][0]["warpdeck"]["series"]["cold"].update(rounds=[[0, 10**12]]), "rounds"),
    ],
)
def test_unsound_recordings_are_refused(
    files: list[Path], tmp_path: Path, spoil: Callable[[dict[str, Any]], object], says: str
) -> None:
    document = json.loads(gzip.decompress(files[0].read_bytes()))
    spoil(document)
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=says):
        recording.load(spoilt)

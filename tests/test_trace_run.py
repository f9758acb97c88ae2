"""Traces from what was recorded, and from rows as a worker leaves them; the command line without a GPU."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trace_synthetic
from cli_support import here, write_recordings
from hypothesis import given
from hypothesis import strategies as st
from synthetic import DEVICE

import warpdeck as package
from warpdeck.core import tracing
from warpdeck.core.devices.probe import changes, read_rows, select
from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.core.model import CacheMode, DeviceInfo, Launch, Resources
from warpdeck.core.tracing import TraceOptions, parse_warps
from warpdeck.core.worker.trace import row_bytes
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device
from warpdeck.telemetry.trace import layout, store
from warpdeck.telemetry.trace.timeline import RawTrace

GUARD = 0xA5
CONFIG = {"block_size": 256, "reg_cap": 0}
DEVICE_OPTION = ("--device", "recorded:synthetic")


def a_trace(**changed: Any) -> RawTrace:
    """What a live device gives for softmax, from made-up records."""
    raw = trace_synthetic.loops(16, 4, 20, "nested", **changed.pop("loops", {}))
    source = load_workload("softmax").variants["classic"].source_hash
    meta = {
        **raw.meta,
        "workload": "softmax",
        "variant": "classic",
        "case": "1024",
        "params": {"m": 1024, "n": 1024},
        "config": CONFIG,
        "device": DEVICE.to_json(),
        "date": "2026-11-29",
        "source_hash": source,
        "cache": "cold",
        "ctas": {"traced": 16, "of": 1024},
        "warnings": [],
        "command": "again",
        "overhead": {
            "untraced_ms": 0.01,
            "traced_ms": 0.0101,
            "ratio": 1.01,
            "ci": [1.005, 1.015],
            "recording": {"untraced_ms": 0.01, "traced_ms": 0.0104, "ratio": 1.04, "ci": [1.03, 1.05]},
        },
    }
    return replace(raw, meta={**meta, **changed})


@pytest.fixture
def recorded(isolated_home: Path) -> Path:
    """The user's recordings, with a trace of softmax classic 1024 among them."""
    folder = write_recordings(isolated_home)
    tracing.record(a_trace(), folder, "synthetic")
    return folder


# -- rows ------------------------------------------------------------------------------------------------


def rows_file(path: Path, counts: list[int], capacity: int, magic: int = layout.MAGIC_CLOSED) -> Any:
    """Rows as a launch leaves them; warps with a negative count never began. Returns bytes [row, size]."""
    data = np.full((len(counts), row_bytes(capacity)), GUARD, np.uint8)
    for i, count in enumerate(counts):
        if count < 0:
            continue
        header = np.zeros(1, layout.HEADER)
        for name, value in (("magic", magic), ("cta", i), ("count", count), ("warp", 3)):
            header[name] = value
        stored = np.zeros(min(count, capacity), layout.RECORD)
        stored["clock"], stored["word"] = np.arange(len(stored)), 1000 * i + 1
        written = np.concatenate([header.view(np.uint8), stored.view(np.uint8)])
        data[i, : len(written)] = written
    data.tofile(path)
    return data


@given(st.lists(st.integers(-1, 12), min_size=1, max_size=9), st.integers(0, 9))
def test_rows_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], capacity: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows"
    rows_file(path, counts, capacity)
    began = [i for i, count in enumerate(counts) if count >= 0]
    if not began:
        with pytest.raises(WarpdeckError, match="recorded nothing"):
            read_rows(path, len(counts), capacity)
        return
    headers, records = read_rows(path, len(counts), capacity)
    assert headers["cta"].tolist() == began
    assert records.shape == (len(began), capacity)
    for row, i in enumerate(began):
        stored = min(counts[i], capacity)
        assert headers["count"][row] == counts[i]
        assert records["clock"][row].tolist() == [*range(stored), *[0] * (capacity - stored)]
        assert set(records["word"][row][:stored].tolist()) <= {1000 * i + 1}


@given(st.data())
def test_a_byte_that_no_warp_had_to_write_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.integers(-1, 12), min_size=1, max_size=5))
    capacity = data.draw(st.integers(0, 9))
    path = tmp_path_factory.mktemp("rows") / "rows"
    rows = rows_file(path, counts, capacity)
    row = data.draw(st.integers(0, len(counts) - 1))
    used = min(max(counts[row], 0), capacity)
    first = layout.HEADER_BYTES + layout.RECORD_BYTES * used
    at = data.draw(st.integers(first, rows.shape[1] - 1))
    rows[row, at] ^= data.draw(st.integers(1, 255))
    rows.tofile(path)
    with pytest.raises(WarpdeckError, match="goes beyond its row"):
        read_rows(path, len(counts), capacity)


def test_a_warp_that_never_ended_keeps_what_it_wrote(tmp_path: Path) -> None:
    rows = rows_file(tmp_path / "rows", [2, 5], 5, layout.MAGIC_OPEN)
    for name in ("time_end", "clock_end", "count", "gap_end"):  # what only the end marker writes
        offset = layout.HEADER.fields[name][1]  # type: ignore[index]
        rows[:, offset : offset + layout.HEADER[name].itemsize] = GUARD
    rows.tofile(tmp_path / "rows")
    headers, records = read_rows(tmp_path / "rows", 2, 5)
    assert headers["count"].tolist() == headers["time_end"].tolist() == [0, 0]
    assert (records["word"] != 0).sum(axis=1).tolist() == [2, 5]


@given(st.integers(0, 1 << 20))
def test_rows_are_aligned_and_apart(capacity: int) -> None:
    used = layout.HEADER_BYTES + layout.RECORD_BYTES * capacity
    assert row_bytes(capacity) % 16 == 0
    assert used + 16 <= row_bytes(capacity) < used + 32


# -- what is selected ------------------------------------------------------------------------------------


@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 3)),
    st.integers(1, 1024),
    st.one_of(st.none(), st.integers(1, 5000)),
    st.one_of(st.none(), st.integers(1, tracing.ALL_WARPS)),
    st.integers(0, 132),
    st.integers(0, 32),
)
def test_a_selection_lies_within_the_launch(
    grid: tuple[int, int, int], threads: int, ctas: int | None, mask: int | None, sms: int, each: int
) -> None:
    launch = Launch("k", grid, (threads, 1, 1))
    warps = -(-threads // 32)
    options = TraceOptions(ctas=ctas, warp_mask=mask)
    if mask is not None and not mask & ((1 << warps) - 1):
        with pytest.raises(UsageError, match="no such warp"):
            select(launch, options, sms, each)
        return
    chosen = select(launch, options, sms, each)
    wave = sms * each
    total = grid[0] * grid[1] * grid[2]
    assert chosen.of == total
    assert chosen.count == min(total, ctas or total)
    last = chosen.first + (chosen.count - 1) * chosen.stride
    assert last < total
    if wave and chosen.count <= total - wave:  # as many as run at a time come after the last one
        assert last < total - wave
    assert chosen.stride * layout.stride_inverse(chosen.stride) % 2**32 == 1
    if sms:  # no SM has a second one before every other has its first
        round_robin = {(chosen.first + i * chosen.stride) % sms for i in range(chosen.count)}
        assert len(round_robin) == min(sms, chosen.count)
    if wave and total == 2 * wave and 2 * chosen.count <= wave:  # late in the first wave
        assert last == total - wave - 1
    else:
        assert chosen.first == 0
    assert chosen.warp_mask < 1 << warps
    assert chosen.rows == chosen.count * bin(chosen.warp_mask).count("1")


def test_more_ctas_than_a_header_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"k has 4,294,967,296 CTAs; a trace numbers up to 2\^32 - 1"):
        select(Launch("k", (1 << 16, 1 << 16, 1), (32, 1, 1)), TraceOptions())


@given(st.sets(st.integers(0, 31), min_size=1))
def test_warps_are_read_as_numbers_and_ranges(warps: set[int]) -> None:
    assert parse_warps(", ".join(map(str, warps))) == sum(1 << w for w in warps)
    low, high = min(warps), max(warps)
    assert parse_warps(f"{low}-{high}") == sum(1 << w for w in range(low, high + 1))


@pytest.mark.parametrize("text", ["", "32", "3-1", "a", "1-", "-1", "0,,1", "1-2-3"])
def test_warps_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="warps"):
        parse_warps(text)


@pytest.mark.parametrize(
    "values",
    [
        {"ctas": 0},
        {"capacity": -1},
        {"capacity": 1 << 40},
        {"warp_mask": 0},
        {"cache": CacheMode.AS_RECORDED},
    ],
)
def test_impossible_options_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TraceOptions(**values)


def test_what_tracing_changes_is_told() -> None:
    plain = Resources(40, occupancy=0.75)
    assert changes(plain, Resources(46, occupancy=0.75)) == []
    (slower,) = changes(plain, Resources(56, occupancy=0.5))
    assert "75% to 50%" in slower and "40 to 56 registers" in slower
    (spilled,) = changes(plain, Resources(40, spill_bytes=64, occupancy=0.75))
    assert "64 bytes" in spilled


# -- recorded traces -------------------------------------------------------------------------------------


def test_a_recorded_device_shows_what_was_recorded(recorded: Path) -> None:
    workload = load_workload("softmax")
    device = open_device("recorded:synthetic")
    raw = tracing.trace(workload, device, workload.candidate("classic", CONFIG), workload.size_case(1024))
    info = tracing.info_of(raw)
    assert info.recorded and info.label == "recorded on Synthetic GPU, 2026-11-29"
    assert np.array_equal(raw.records, a_trace().records)
    assert raw.meta["overhead"]["ratio"] == 1.01


@pytest.mark.parametrize(
    ("config", "size", "said"),
    [({"block_size": 128, "reg_cap": 0}, 1024, "block_size=128"), (CONFIG, 256, "case 256")],
)
def test_what_was_not_recorded_lists_what_was(
    recorded: Path, config: dict[str, int], size: int, said: str
) -> None:
    workload, device = load_workload("softmax"), open_device("recorded:synthetic")
    with pytest.raises(UsageError) as caught:
        tracing.trace(workload, device, workload.candidate("classic", config), workload.size_case(size))
    assert said in str(caught.value)
    assert "--variant classic --size 1024 --knob block_size=256,reg_cap=0" in str(caught.value)


def test_a_trace_is_recorded_once_and_under_a_sound_name(recorded: Path) -> None:
    workload, device = load_workload("softmax"), open_device("recorded:synthetic")
    replayed = tracing.trace(
        workload, device, workload.candidate("classic", CONFIG), workload.size_case(1024)
    )
    with pytest.raises(UsageError, match="comes from a recording"):
        tracing.record(replayed, recorded, "synthetic")
    for name in ("a/b", "", "two-parts", ".hidden"):
        with pytest.raises(UsageError, match="file name"):
            tracing.record(a_trace(), recorded, name)
    written = tracing.record(a_trace(case="256"), recorded, "synthetic")
    assert written.name == "synthetic-softmax-classic-256.wdtrace"
    assert dict(store.load(written).meta)["case"] == "256"


def test_a_damaged_recording_is_one_plain_line(recorded: Path) -> None:
    path = recorded / "synthetic-softmax-classic-1024.wdtrace"
    path.write_bytes(path.read_bytes()[:100])
    done = here("trace", "softmax", *DEVICE_OPTION)
    assert done.returncode == 2
    assert done.stderr.startswith("warpdeck: error: ") and done.stderr.count("\n") == 1
    assert path.name in done.stderr


def test_python_gives_a_timeline(recorded: Path) -> None:
    timeline = package.trace("softmax", "recorded:synthetic", size=1024, knobs={"block_size": 256})
    assert isinstance(timeline, package.Timeline)
    assert timeline.stages == ("load", "wait", "compute", "store")
    assert timeline.meta["stale"] is False


# -- the command line ------------------------------------------------------------------------------------


def test_the_document(recorded: Path) -> None:
    done = here("trace", "softmax", *DEVICE_OPTION, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1
    assert found["events"] == 16 * 4 * 20 * 8 and found["dropped"] == found["mispaired"] == 0
    assert 0 < found["uncertainty_ns"] < 32
    assert [stage["name"] for stage in found["stages"]] == ["load", "wait", "compute", "store"]
    for stage in found["stages"]:
        assert stage["count"] == 16 * 4 * 20
        assert {"total_ns", "p50_ns", "p95_ns", "share"} <= stage.keys()
    assert found["overhead"]["ratio"] == 1.01 and found["overhead"]["recording"]["ratio"] == 1.04
    assert found["config"] == CONFIG and found["variant"] == "classic" and found["case"] == "1024"
    assert found["device"]["recorded"] and found["device"]["date"] == "2026-11-29"
    assert found["ctas"] == {"traced": 16, "of": 1024}
    assert found["stale"] is False and found["files"] == []


def test_the_report_says_where_it_comes_from_and_what_it_costs(recorded: Path) -> None:
    done = here("trace", "softmax", *DEVICE_OPTION)
    assert done.returncode == 0
    assert "recorded on Synthetic GPU, 2026-11-29; 16 of 1,024 CTAs, 64 warps" in done.stdout
    assert "tracing costs +1.00% (+0.50 to +1.50)" in done.stdout
    assert "a CTA that records pays +4.00% (+3.00 to +5.00), by a launch in which all did" in done.stdout
    assert "10,240 events, 0 dropped, 0 mispaired; between SMs ±" in done.stdout
    assert "longest waits" in done.stdout and done.stderr == ""


def test_what_was_dropped_comes_with_the_command_that_has_room(isolated_home: Path) -> None:
    folder = write_recordings(isolated_home)
    tracing.record(a_trace(loops={"capacity": 100}), folder, "synthetic")
    done = here("trace", "softmax", *DEVICE_OPTION)
    assert done.returncode == 0
    dropped = 16 * 4 * (20 * 8 - 100)
    assert f"{dropped:,} events found no room and were dropped: `again`" in done.stderr


def test_a_changed_source_is_told(isolated_home: Path) -> None:
    tracing.record(a_trace(source_hash="0" * 16), write_recordings(isolated_home), "synthetic")
    done = here("trace", "softmax", *DEVICE_OPTION)
    assert done.returncode == 0
    assert "source has changed" in done.stderr


@pytest.mark.parametrize("suffix", list(tracing.FORMATS))
def test_every_format_is_written_and_read_back(recorded: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"t{suffix}"
    done = here("trace", "softmax", *DEVICE_OPTION, "-o", str(file), "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert first["files"] == [str(file)]
    again = here("trace", str(file), "--json")
    assert again.returncode == 0, again.stderr
    second = json.loads(again.stdout)
    for before, after in zip(first["stages"], second["stages"], strict=True):
        assert before["name"] == after["name"] and before["count"] == after["count"]
        assert after["total_ns"] == pytest.approx(before["total_ns"], rel=1e-3)
    assert here("trace", str(file)).returncode == 0


def test_a_saved_trace_is_converted(recorded: Path, tmp_path: Path) -> None:
    whole, table, back = (tmp_path / name for name in ("t.wdtrace", "t.csv", "back.wdtrace"))
    assert here("trace", "softmax", *DEVICE_OPTION, "-o", str(whole)).returncode == 0
    assert here("trace", str(whole), "-o", str(table)).returncode == 0
    refused = here("trace", str(table), "-o", str(back))
    assert refused.returncode == 2 and "raw records" in refused.stderr
    assert not back.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("softmax", "--ctas", "0"), "--ctas"),
        (("softmax", "--ctas", "some"), "or all"),
        (("softmax", "--warps", "40"), "0 to 31"),
        (("softmax", "--cache", "warm"), "--cache"),
        (("softmax", "-o", "t.txt"), ".pftrace"),
        (("softmax", "-o", "/nowhere/t.csv"), "no folder"),
        (("softmax", "--show", "--json"), "choose one"),
        (("softmax", "--show"), "terminal"),
        (("softmax", "--variant", "nothing"), "variant"),
        (("nothing",), "unknown workload"),
        (("gemm",), "no trace of 'gemm' is recorded"),
        (("missing.wdtrace",), "missing.wdtrace"),
        (("softmax", "--record", "there"), "comes from a recording"),
        (("softmax", "--record", "/dev/null/x"), "is no folder"),
        (("t.wdtrace", "--knob", "a=1"), "is a saved trace"),
        (("t.csv", "--size", "3"), "is a saved trace"),
        (("a.ncu-rep",), "`warpdeck profile a.ncu-rep`"),
        (("a.counters.json.gz",), "is a profile"),
    ],
)
def test_errors_are_one_plain_line(
    recorded: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = here("trace", *arguments, *DEVICE_OPTION, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x00" * 4096, b'{"traceEvents": 3}'])
@pytest.mark.parametrize("suffix", list(tracing.FORMATS))
def test_files_that_are_no_traces(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"t{suffix}"
    file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        tracing.read(file)
    assert file.name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["noext", "t.bin", "T.WDTRACE", "t.csv"])
def test_a_trace_is_known_by_its_content(recorded: Path, tmp_path: Path, name: str) -> None:
    source = next(recorded.glob(f"*{tracing.SUFFIX}"))
    shutil.copy(source, tmp_path / name)
    done = here("trace", name, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == tracing.read(source).events


def test_a_recorded_trace_names_no_folder_of_this_machine(recorded: Path, tmp_path: Path) -> None:
    raw = store.load(next(recorded.glob(f"*{tracing.SUFFIX}")))
    told = replace(raw, meta={**raw.meta, "command": f"warpdeck trace {Path.home()}/kernels/mine"})
    kept = store.load(tracing.record(told, tmp_path / "new", "h1"))
    assert "command" not in kept.meta and kept.meta["workload"] == raw.meta["workload"]


def test_the_command_repeats_what_was_asked(isolated_home: Path) -> None:
    """Its options must be those of the command line."""
    from warpdeck.sessions.traces import _command

    options = TraceOptions(ctas=None, warp_mask=5, cache=CacheMode.HOT, launch=1, capacity=3)
    text = _command("gemm", "cuda", None, {"TILE_K": 8, "pad": 0}, 512, options, 7)
    assert text == (
        "warpdeck trace gemm --variant cuda --knob TILE_K=8,pad=0 --size 512 --ctas all --warps 0,2"
        " --cache hot --launch 1 --seed 7"
    )
    done = here(*text.split()[1:], *DEVICE_OPTION)
    assert done.returncode == 2 and "no such option" not in done.stderr.lower()


def test_the_device_of_a_trace_without_one_is_unknown() -> None:
    raw = replace(a_trace(), meta={})
    assert tracing.info_of(raw) == DeviceInfo("an unknown GPU", "")


def test_a_recording_says_which_options_it_has_no_use_for(recorded: Path) -> None:
    done = here("trace", "softmax", *DEVICE_OPTION, "--ctas", "all", "--warps", "0", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["ctas"]["traced"] == 16
    assert done.stderr == (
        "warpdeck: warning: a recorded trace is shown as it was recorded: without --ctas, --warps\n"
    )

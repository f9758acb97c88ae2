"""Traces on a live device, on workers that need no GPU: what is launched, checked, sized and timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imitation
import numpy as np
import pytest
from imitation import Imitation

pytest.importorskip("numba", reason="live traces compile")

from warpdeck.cli.app import run
from warpdeck.core.devices import cuda, probe
from warpdeck.core.errors import UsageError, VerificationError, WarpdeckError
from warpdeck.core.tracing import TraceOptions, decoded
from warpdeck.core.worker.trace import EDGES, row_bytes
from warpdeck.kernels import load_workload
from warpdeck.sessions.traces import trace_named
from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.timeline import RawTrace

GHZ, TICK, EPOCH = 1.98, 32, 32 * 10**9


class Kernel:
    """What the worker's launches record: `counts[n]` records a warp in launch n, the last one repeated."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts
        self.launches = 0
        self.damage: str | None = None
        self.spoil = False

    def trace(self, worker: Any, payload: dict[str, Any]) -> dict[str, Any]:
        """The worker's job."""
        count = self.counts[min(self.launches, len(self.counts) - 1)]
        self.launches += 1
        capacity, warps = payload["capacity"], payload["warp_mask"].bit_count()
        rows = np.full((payload["rows"], row_bytes(capacity)), 0xA5, np.uint8)
        for row in range(len(rows)):
            header, records = np.zeros(1, layout.HEADER), np.zeros(min(count, capacity), layout.RECORD)
            begin = 50_000 + 10 * row
            for name, value in (
                *(("magic", layout.MAGIC_CLOSED), ("sm", row // warps % 4), ("warp", row % warps)),
                *(("cta", payload["cta_first"] + row // warps * payload["cta_stride"]), ("count", count)),
                *(("time_begin", self._time(begin)), ("clock_begin", begin), ("gap_begin", 20)),
                *(("time_end", self._time(begin + 9000)), ("clock_end", begin + 9000), ("gap_end", 20)),
                ("warps", warps),
            ):
                header[name] = value
            for i in range(len(records)):
                records[i] = begin + 100 + 50 * i, layout.word(i % 2, 1)
            written = np.concatenate([header.view(np.uint8), records.view(np.uint8)])
            rows[row, : len(written)] = written
        if self.spoil:
            rows[-1, -1] = 0
        rows.tofile(payload["files"]["rows"])
        anchors = np.zeros((payload["anchor_blocks"], 2, 2 * EDGES), layout.ANCHOR)
        clock = np.array([[1000], [100_000]]) + 531 * np.arange(2 * EDGES)
        anchors["clock"], anchors["time"], anchors["gap"] = clock, self._time(clock), 20
        anchors["sm"] = np.arange(len(anchors))[:, None, None]
        anchors.tofile(payload["files"]["anchors"])
        launches = [[*launch[:4], 4096] for launch in payload["launches"]]
        return {"trace_damage": self.damage, "sm_count": 4, "launches": launches, **worker._run(payload)}

    @staticmethod
    def _time(clock: Any) -> Any:
        return EPOCH + np.floor((clock + 10) / GHZ).astype(np.int64) // TICK * TICK


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests here, so that the kernel is compiled once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def live(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Imitation, Kernel]]:
    monkeypatch.setenv("WARPDECK_HOME", str(home))

    def start(*counts: int, wrong: bool = False) -> tuple[Imitation, Kernel]:
        workload = load_workload("softmax")
        names = frozenset(a.name for a in workload.arguments)
        server = Imitation({names: workload.reference_module().reference}, wrong=wrong)
        kernel = Kernel(*counts)
        monkeypatch.setattr(cuda, "ForkServer", lambda: server)
        monkeypatch.setattr(cuda, "_require_driver", lambda: None)
        monkeypatch.setitem(imitation.FACTS, "shared_per_sm_bytes", 228 << 10)
        monkeypatch.setattr(
            imitation._Worker, "_trace", lambda worker, payload: kernel.trace(worker, payload), raising=False
        )
        return server, kernel

    return start


def traced(**options: Any) -> RawTrace:
    return trace_named(
        "softmax", device="cuda:0", knobs={"block_size": "64"}, size=64, options=TraceOptions(**options)
    )


def jobs(server: Imitation, name: str) -> list[dict[str, Any]]:
    return [payload for _, job, payload in server.log if job == name]


def test_a_counting_launch_then_one_of_the_exact_size_then_both_timed(live: Any) -> None:
    server, _ = live(6)
    raw = traced(ctas=8, split=True)
    first, second, everywhere = jobs(server, "trace")
    assert (first["capacity"], second["capacity"]) == (0, 6)
    assert (everywhere["capacity"], everywhere["cta_count"], everywhere["rows"]) == (6, 64, 64 * 2)
    assert second["bytes"]["rows"] == second["rows"] * row_bytes(6) == 16 * row_bytes(6)
    assert raw.records.shape == (16, 6) and raw.meta["capacity"] == 6
    timeline = decoded(raw)
    assert timeline.events == 16 * 6 and timeline.dropped == timeline.mispaired_count == 0
    assert timeline.clock.method == "fit" and timeline.clock.uncertainty_ns < 16
    pair, recording = jobs(server, "pair")
    assert pair["a"]["code"] == pair["b"]["code"] + "+trace+split(0, 7, 8, 64, 1, 1)"
    assert recording["a"]["code"] == recording["b"]["code"] + "+trace"
    assert raw.meta["overhead"]["recording"]["ratio"] > 0
    assert [len(pair[side]["launches"][0]) for side in "ab"] == [5, 4]
    assert pair["a"]["launches"][0][4] == 4096
    assert raw.meta["overhead"]["ci"][0] <= raw.meta["overhead"]["ratio"] <= raw.meta["overhead"]["ci"][1]
    assert raw.meta["resources"]["traced"]["code_hash"] != raw.meta["resources"]["untraced"]["code_hash"]
    assert raw.meta["ctas"]["traced"] == 8 and raw.meta["ctas"]["of"] == 64
    assert raw.meta["anchored_sms"] == 4 and raw.meta["stale"] is False
    assert raw.meta["command"] == ("warpdeck trace softmax --knob block_size=64,reg_cap=0 --size 64 --ctas 8")


def test_a_given_capacity_needs_no_counting_and_drops_the_rest(live: Any) -> None:
    server, _ = live(6)
    timeline = decoded(traced(ctas=8, capacity=2, overhead=False))
    assert [job["capacity"] for job in jobs(server, "trace")] == [2]
    assert not jobs(server, "pair")
    assert timeline.events == 32 and timeline.dropped == 64


def test_warps_that_had_more_to_record_than_counted_get_more_room(live: Any) -> None:
    server, _ = live(4, 6, 6)
    raw = traced(overhead=False)
    assert [job["capacity"] for job in jobs(server, "trace")] == [0, 4, 6]
    assert decoded(raw).dropped == 0


def test_a_wrong_kernel_is_refused(live: Any) -> None:
    server, _ = live(6, wrong=True)
    with pytest.raises(VerificationError, match="traced kernel is wrong"):
        traced()
    assert not jobs(server, "pair")


def test_damage_is_refused(live: Any) -> None:
    _, kernel = live(6)
    kernel.damage = "the trace wrote before the trace's rows"
    with pytest.raises(WarpdeckError, match="before the trace's rows"):
        traced()
    kernel.damage, kernel.spoil = None, True
    with pytest.raises(WarpdeckError, match="goes beyond its row"):
        traced()


def test_too_much_is_refused_before_it_is_launched(live: Any) -> None:
    server, _ = live(6)
    with pytest.raises(UsageError, match=r"over the limit of 0 MB: trace fewer CTAs"):
        traced(capacity=1000, limit_bytes=1000)
    with pytest.raises(UsageError, match="no such warp"):
        traced(warp_mask=1 << 9)
    with pytest.raises(UsageError, match="no launch 3"):
        traced(launch=3)
    assert not jobs(server, "trace")


def test_the_command_writes_and_records(live: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    live(6)
    file, folder = tmp_path / "t.wdtrace", tmp_path / "kept"
    command = ["trace", "softmax", "--device", "cuda:0", "--knob", "block_size=64", "--size", "64", "--json"]
    assert run([*command, "--capacity", "4", "-o", str(file), "--record", str(folder)]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert document["dropped"] == 16 * 2 * 2 and document["overhead"]["ratio"] > 0
    assert "again at the exact size" in err and "--capacity" not in err
    kept = folder / "imitation-softmax-classic-64.wdtrace"
    assert document["files"] == [str(file), str(kept)] and kept.is_file() and file.is_file()


def test_untraced_code_runs_where_others_dont_wait_for_what_records(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch has 64 CTAs; an SM takes 32 of them."""
    server, _ = live(6)

    def split(**options: Any) -> tuple[bool, int]:
        raw = traced(overhead=False, capacity=6, **options)
        code = jobs(server, "trace")[-1]["code"]
        return "+split" in code, raw.meta["ctas"]["stride"]

    assert split(ctas=8) == (True, 7)  # four SMs: all run at a time, and both bodies are small
    assert split(ctas=8, split=False) == (False, 7)
    monkeypatch.setattr(probe, "_SMALL_CODE", 1 << 10)
    assert split(ctas=8) == (False, 7)
    assert split(ctas=8, split=True) == (True, 7)
    monkeypatch.setitem(imitation.FACTS, "sm_count", 1)
    assert split(ctas=8) == (True, 1)  # the last 32 start when others have ended
    assert split(ctas=8, split=False) == (False, 1)
    assert split(ctas=33) == split(ctas=33, split=None) == (False, 1)
    assert split(ctas=None) == split(ctas=64, split=True) == (False, 1)


def test_where_every_cta_records_that_is_the_only_cost(live: Any) -> None:
    live(6)
    for options in ({"ctas": None}, {"ctas": 64}):
        assert "recording" not in traced(**options).meta["overhead"]


def test_rows_of_every_cta_that_take_too_much_are_not_made(live: Any) -> None:
    server, _ = live(6)
    raw = traced(ctas=8, limit_bytes=64 * row_bytes(6))
    assert len(jobs(server, "trace")) == 2 and "recording" not in raw.meta["overhead"]

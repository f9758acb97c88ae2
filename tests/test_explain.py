"""`tune --explain`: the best's and the baseline's trace and counters in the session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli_support import warpdeck

from warpdeck.core.devices.stored_counters import load
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry.trace import store
from warpdeck.telemetry.trace.decode import decode

RUN = ("tune", "softmax", "--agent", "sweep", "--space", "classic", "--device", "recorded:h200", "--headless")


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    home = tmp_path_factory.mktemp("home")
    done = warpdeck(*RUN, "--explain", "--session", "why", env={**os.environ, "WARPDECK_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return home / "sessions" / "why", done.stderr


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [dict(e.data) for e in SessionStore.open(folder).events() if e.kind == kind]


def test_what_is_recorded_becomes_artifacts(explained: tuple[Path, str]) -> None:
    folder, _ = explained
    logged = {a["name"]: folder / a["path"] for a in events(folder, "artifact")}
    assert {"baseline-trace", "baseline-counters", "best-counters"} <= set(logged)
    assert decode(store.load(logged["baseline-trace"])).meta["config"] == {"block_size": 256, "reg_cap": 0}
    baseline, best = load(logged["baseline-counters"]), load(logged["best-counters"])
    assert baseline.meta["config"] == {"block_size": 256, "reg_cap": 0}
    result = events(folder, "result")[-1]
    assert best.meta["config"] == result["best"]["config"]


def test_what_is_not_recorded_is_said_and_the_run_finishes(explained: tuple[Path, str]) -> None:
    folder, said = explained
    texts = [m["text"] for m in events(folder, "message")]
    assert any(text.startswith("no trace of the best") for text in texts) and "no trace of the best" in said
    assert any(text.startswith("baseline, size 1024: ") for text in texts)  # the diagnosis, in words
    assert events(folder, "state")[-1]["state"] == "finished"


def test_without_it_nothing_is_traced(tmp_path: Path) -> None:
    done = warpdeck(*RUN, "--session", "plain", "--json", env={**os.environ, "WARPDECK_HOME": str(tmp_path)})
    assert done.returncode == 0 and json.loads(done.stdout)["session"] == "plain"
    assert not list((tmp_path / "sessions" / "plain" / "artifacts").glob("*.wdtrace"))

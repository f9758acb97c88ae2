"""Long runs, only in `make soak`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import synthetic

from warpdeck.kernels import load_workload
from warpdeck.sessions.alive import runner_pid
from warpdeck.sessions.events import Lifecycle
from warpdeck.sessions.launch import launch_run, resume_run
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore
from warpdeck.sessions.tail import follow

pytestmark = pytest.mark.soak


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(isolated_home: Path) -> None:
    synthetic.write(isolated_home / "recordings", load_workload("softmax"), "full", [1024], name="synthetic")
    spec = RunSpec("softmax", agent="sweep", device="recorded:synthetic", sizes=(1024,), steps=10**6)
    count = len(load_workload("softmax").space("full").configs({"m": 1024, "n": 1024}))
    rng = random.Random(0)
    for number in range(10):
        run, kills = launch_run(spec, name=f"soak-{number}"), 0
        while True:
            time.sleep(rng.uniform(0.3, 3.0))
            pid = runner_pid(run.folder)
            if pid is None and run.process.poll() == 0:
                break
            if pid is not None and kills < 8:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            run.process.wait(60)
            with SessionStore.open(run.folder) as store:
                done = store.state().lifecycle is Lifecycle.FINISHED
            if done:
                break
            run = resume_run(run.folder)
        with SessionStore.open(run.folder) as store:
            steps = [event.data["step"] for event in store.events(kinds=["evaluation"])]
            state = store.state()
        assert steps == list(range(1, count + 1))
        assert state.lifecycle is Lifecycle.FINISHED and state.result is not None


def test_many_runs_beside_each_other(isolated_home: Path) -> None:
    synthetic.write(
        isolated_home / "recordings", load_workload("softmax"), "classic", [256], name="synthetic"
    )
    spec = RunSpec(
        "softmax", agent="random", device="recorded:synthetic", space="classic", sizes=(256,), seed=3
    )
    runs = [launch_run(spec, name=f"beside-{i}") for i in range(12)]
    best = set()
    for run in runs:
        last = list(follow(run.folder))[-1]
        assert last.lifecycle is Lifecycle.FINISHED and last.result is not None
        best.add(str(last.result["best"]["config"]))
    assert len(best) == 1
    listed = subprocess.run(
        [sys.executable, "-m", "warpdeck", "sessions", "list"], capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == 13

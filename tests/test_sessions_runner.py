"""Run processes: they finish, pause, stop, die, and go on where they were."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic

from warpdeck.core.errors import ExitCode, UsageError
from warpdeck.core.model import DeviceInfo
from warpdeck.kernels import load_workload
from warpdeck.sessions import alive, launch, paths, process
from warpdeck.sessions.events import Event, Lifecycle
from warpdeck.sessions.launch import Launched, Stopped
from warpdeck.sessions.replay import Replay
from warpdeck.sessions.report import tune_document
from warpdeck.sessions.runner import run_session
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.state import RunState
from warpdeck.sessions.store import SessionStore
from warpdeck.sessions.tail import Tail, follow, send

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recordings")
    softmax = load_workload("softmax")
    return [
        *synthetic.write(folder, softmax, "classic", [256, 1024]),
        *synthetic.write(folder, softmax, "full", [256]),
    ]


@pytest.fixture(autouse=True)
def imported(isolated_home: Path, recordings: list[Path]) -> None:
    (isolated_home / "recordings").mkdir()
    for file in recordings:
        (isolated_home / "recordings" / file.name).symlink_to(file)


@pytest.fixture
def started() -> Iterator[list[Launched]]:
    """Runs that the test started; none outlives it."""
    runs: list[Launched] = []
    yield runs
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


def classic(**changes: Any) -> RunSpec:
    return RunSpec(
        **{
            "workload": "softmax",
            "agent": "random",
            "device": "recorded:test",
            "space": "classic",
            "sizes": (256, 1024),
            "steps": 9,
            "seed": 1,
            **changes,
        }
    )


def long(**changes: Any) -> RunSpec:
    """Over 800 evaluations in a second or less."""
    return classic(**{"agent": "sweep", "space": "full", "sizes": (256,), "steps": 10_000, **changes})


def slow() -> RunSpec:
    """As many, in several seconds: the agent thinks between them."""
    return long(agent="tpe")


def start(runs: list[Launched], spec: RunSpec, *commands: str) -> Launched:
    """Start a run, with control commands that are there before it begins."""
    with launch.create(spec) as store:
        for command in commands:
            store.send(command, "test")
    run = launch._spawn(store.folder)
    runs.append(run)
    return run


def until(folder: Path, wanted, what: str) -> RunState:
    tail = Tail(folder)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            tail.poll()
            if wanted(tail.state):
                return tail.state
            if tail.state.lifecycle.final and not tail.running:
                break
            time.sleep(0.005)
        pytest.fail(f"it never came to {what}; {tail.state.lifecycle} {tail.state.reason}")
    finally:
        tail.close()


def events(folder: Path) -> list[Event]:
    with SessionStore.open(folder) as store:
        return list(store.events())


def test_a_run_from_start_to_artifacts(started):
    run = launch.launch_run(classic(), name="mine")
    started.append(run)
    states = list(follow(run.folder, poll_s=0.02))
    assert run.wait(DEADLINE_S) is ExitCode.OK, run.last_words()
    last = states[-1]
    assert (last.lifecycle, last.exit_code, last.progress) == (Lifecycle.FINISHED, 0, 1.0)
    assert (last.evaluations, last.step) == (9, 9)
    assert last.device_label == "recorded on Synthetic GPU, 2026-01-01"
    assert run.session == "mine"
    info = last.info
    assert info is not None and len(info.known_ms) + info.known_failed == info.data["total_configs"]
    assert list(info.known_ms) == sorted(info.known_ms)
    assert info.known_ms[0] == pytest.approx(last.leaderboard[0].score_ms, rel=0.1)  # 9 of 9 were tried
    artifacts = dict(last.artifacts)
    assert set(artifacts) == {"history", "summary", "best"}
    summary = json.loads((run.folder / artifacts["summary"]).read_text())
    with SessionStore.open(run.folder) as store:
        assert summary == tune_document(store) and summary["state"] == "finished"
        header = store.header()
    assert summary["best"]["config"]["block_size"] == 64
    assert summary["counts"] == {"ok": 9}
    assert len(json.loads((run.folder / artifacts["history"]).read_text())["evaluations"]) == 9
    assert header["gpu"] == {"name": "Synthetic GPU", "uuid": synthetic.DEVICE.uuid}
    assert header["seed"] == 1
    assert header["command"]
    assert header["toolchain"]["numpy"]


def test_one_process_runs_several_sessions_in_turn(started):
    runs = launch.launch_runs([long(), classic(), classic(seed=2)])
    started.append(runs[0])
    assert len({run.process.pid for run in runs}) == 1 and len({run.folder for run in runs}) == 3
    until(runs[0].folder, lambda s: s.evaluations > 0, "its first evaluation")
    assert alive.is_running(runs[2].folder)  # nobody else may run what waits
    for run in runs:
        *_, last = follow(run.folder, poll_s=0.02)
        assert run.wait(DEADLINE_S) is ExitCode.OK, run.last_words()
        assert last.lifecycle is Lifecycle.FINISHED and not alive.is_running(run.folder)
        states = [e.data["state"] for e in events(run.folder) if e.kind == "state"]
        assert states == ["running", "finished"]
    ended = [events(run.folder)[-1].t for run in runs]
    assert ended == sorted(ended)


def test_a_run_that_is_stopped_ends_those_behind_it_which_can_be_resumed(started):
    first, second = launch.launch_runs([slow(), classic()])
    started.append(first)
    until(first.folder, lambda s: s.evaluations > 5, "5 evaluations")
    send(first.folder, "stop", "test")
    assert first.wait(DEADLINE_S) is second.wait(DEADLINE_S) is ExitCode.INTERRUPTED
    assert events(second.folder) == [] and not alive.is_running(second.folder)
    again = launch.resume_run(second.folder)
    started.append(again)
    assert again.wait(DEADLINE_S) is ExitCode.OK, again.last_words()


def test_a_process_that_was_begun_takes_the_next_run(started):
    process.begin("auto")
    begun = process._begun
    process.begin("auto")  # once
    assert begun is not None and process._begun is begun
    first, second = launch.launch_runs([classic(device="auto"), classic(device="auto")])
    started.append(first)
    assert first.process is begun and process._begun is None
    assert first.wait(DEADLINE_S) is second.wait(DEADLINE_S) is ExitCode.OK, first.last_words()
    assert events(second.folder)[-1].data["state"] == "finished"
    another = start(started, classic())
    assert another.process is not begun and another.wait(DEADLINE_S) is ExitCode.OK


def test_a_process_that_was_begun_and_died_is_replaced(started):
    process.begin("auto")
    begun = process._begun
    assert begun is not None
    begun.kill()
    begun.wait()
    run = start(started, classic(device="auto"))
    assert run.process is not begun and run.wait(DEADLINE_S) is ExitCode.OK, run.last_words()


def test_a_process_that_was_begun_for_nothing_ends():
    script = "from warpdeck.sessions import process; process.begin('auto'); print(process._begun.pid)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    pid = int(told.stdout)
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_later_run_prints_lies_in_its_own_folder(started):
    with launch.create(classic()) as first, launch.create(classic()) as second:
        second.set_header({"spec": "nonsense"})
    run = launch._spawn(first.folder, second.folder)
    started.append(run)
    assert Launched(second.folder, run.process).wait(DEADLINE_S) is not ExitCode.OK
    assert run.wait(DEADLINE_S) is ExitCode.OK
    assert not (first.folder / launch.LOG).read_text()
    assert "warpdeck: " in (second.folder / launch.LOG).read_text()


def test_the_same_seed_gives_the_same_result(started):
    documents = []
    for _ in range(2):
        run = start(started, classic(space="full", sizes=(256,), steps=30))
        assert run.wait(DEADLINE_S) is ExitCode.OK, run.last_words()
        with SessionStore.open(run.folder) as store:
            document = tune_document(store)
        del document["session"]
        documents.append(document)
    assert documents[0] == documents[1]


def test_kill_9_is_seen_and_the_run_goes_on_without_measuring_again(started):
    run = start(started, long())
    until(run.folder, lambda s: s.evaluations > 50, "50 evaluations")
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    seen = until(run.folder, lambda s: s.lifecycle is Lifecycle.INTERRUPTED, "interrupted")
    assert not alive.is_running(run.folder)
    before = events(run.folder)

    again = launch.resume_run(run.folder)
    started.append(again)
    assert again.wait(DEADLINE_S) is ExitCode.OK, again.last_words()
    after = events(run.folder)
    assert after[: len(before)] == before
    configs = len(load_workload("softmax").space("full").configs({"m": 256, "n": 256}))
    evaluated = Counter(e.data["candidate"] for e in after if e.kind == "evaluation")
    assert len(evaluated) == configs
    assert set(evaluated.values()) == {1}
    assert [e.data["step"] for e in after if e.kind == "evaluation"] == list(range(1, configs + 1))
    assert [e.data["step"] for e in after if e.kind == "step"] == list(range(1, configs + 1))
    states = [e.data["state"] for e in after if e.kind == "state"]
    assert states == ["running", "interrupted", "running", "finished"]
    assert seen.evaluations <= configs


def test_killed_again_and_again_it_still_ends_with_every_configuration_once(started):
    run = start(started, long())
    for death in range(4):
        until(run.folder, lambda s, n=death: s.evaluations > 40 * (n + 1), "progress")
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        run = launch.resume_run(run.folder)
        started.append(run)
    assert run.wait(DEADLINE_S) is ExitCode.OK, run.last_words()
    log = events(run.folder)
    evaluated = Counter(e.data["candidate"] for e in log if e.kind == "evaluation")
    assert set(evaluated.values()) == {1}
    assert [e.data["step"] for e in log if e.kind == "step"] == list(range(1, len(evaluated) + 1))


def test_pause_resume_and_stop_from_another_process(started):
    run = start(started, slow(), "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused")
    time.sleep(0.3)
    assert until(run.folder, lambda s: True, "").evaluations == 0
    send(run.folder, "resume")
    until(run.folder, lambda s: s.evaluations > 10, "going on")
    send(run.folder, "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused again")
    assert launch.stop_run(run.folder, grace_s=DEADLINE_S) is Stopped.STOPPED
    assert run.wait(DEADLINE_S) is ExitCode.INTERRUPTED
    state = until(run.folder, lambda s: s.lifecycle.final, "the end")
    assert (state.lifecycle, state.exit_code) == (Lifecycle.CANCELLED, 130)
    assert dict(state.artifacts).keys() >= {"summary", "history"}
    with SessionStore.open(run.folder) as store:
        answers = [c.answer for c in store.commands()]
        document = tune_document(store)
    assert answers == [
        "pausing after this step",
        "going on",
        "pausing after this step",
        "stopping after this step",
    ]
    assert document["provisional"]
    assert document["best"]["speedup"] == pytest.approx(document["cases"][0]["speedup"])
    assert launch.stop_run(run.folder) is Stopped.NOT_RUNNING


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_between_two_steps(started, number):
    run = start(started, slow())
    until(run.folder, lambda s: s.evaluations > 5, "steps")
    os.kill(run.process.pid, number)
    assert run.wait(DEADLINE_S) is ExitCode.INTERRUPTED
    state = until(run.folder, lambda s: s.lifecycle.final, "the end")
    assert state.lifecycle is Lifecycle.CANCELLED
    assert signal.Signals(number).name in state.reason
    assert state.step == state.evaluations


def test_a_paused_run_obeys_sigterm(started):
    run = start(started, long(), "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused")
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait(DEADLINE_S) is ExitCode.INTERRUPTED


def test_a_paused_run_whose_session_was_removed_ends(started):
    run = start(started, long(), "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused")
    shutil.rmtree(run.folder)
    assert run.process.wait(DEADLINE_S) != 0


def test_a_run_that_does_not_answer_is_killed_and_says_so(started):
    run = start(started, long(), "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused")
    os.kill(run.process.pid, signal.SIGSTOP)
    told: list[str] = []
    outcome = launch.stop_run(run.folder, grace_s=0.3, terminate_s=0.3, kill_s=10, notify=told.append)
    assert outcome is Stopped.KILLED
    assert [("SIGTERM" in t, "SIGKILL" in t) for t in told] == [(True, False), (False, True)]
    state = until(run.folder, lambda s: s.lifecycle.final, "the end")
    assert (state.lifecycle, state.exit_code) == (Lifecycle.CANCELLED, 130)


def test_it_survives_the_console_that_started_it(started, isolated_home):
    code = """
import sys
from warpdeck.sessions import launch
from warpdeck.sessions.spec import RunSpec
run = launch.launch_run(RunSpec("softmax", agent="sweep", device="recorded:test", sizes=(256,), steps=10000))
print(run.folder, flush=True)
import os; os.kill(os.getpid(), 9)
"""
    console = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    folder = Path(console.stdout.strip())
    state = until(folder, lambda s: s.lifecycle.final, "the end")
    assert (state.lifecycle, state.exit_code) == (Lifecycle.FINISHED, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (classic(workload="softmx"), "softmax"),
        (classic(agent="randm"), "random"),
        (classic(space="classik"), "classic"),
        (classic(sizes=(0,)), "size 0"),
        (classic(sizes=(10**9,)), "impossible"),
    ],
)
def test_what_cannot_work_is_refused_before_a_session_exists(spec, message):
    with pytest.raises(UsageError, match=message):
        launch.launch_run(spec)
    assert paths.session_folders() == []


@pytest.mark.parametrize(
    ("device", "code", "message"),
    [
        ("recorded:h2000", ExitCode.USAGE, "h2000"),
        ("cuda:77", ExitCode.NO_DEVICE, "cuda"),
        ("teapot", ExitCode.USAGE, "teapot"),
    ],
)
def test_a_device_that_is_not_there_fails_the_run_with_its_exit_code(started, device, code, message):
    run = start(started, classic(device=device))
    assert run.wait(DEADLINE_S) is code, run.last_words()
    state = until(run.folder, lambda s: s.lifecycle.final, "the end")
    assert (state.lifecycle, state.exit_code) == (Lifecycle.FAILED, code)
    assert message in state.reason.lower()
    assert run.last_words() == state.reason


def test_a_session_runs_only_once_at_a_time(started):
    run = start(started, long(), "pause")
    until(run.folder, lambda s: s.lifecycle is Lifecycle.PAUSED, "paused")
    with pytest.raises(UsageError, match=f"still runs.*{run.process.pid}"):
        launch.resume_run(run.folder)
    second = launch._spawn(run.folder)
    started.append(second)
    assert second.wait(DEADLINE_S) is ExitCode.USAGE
    assert "running already" in (second.last_words() or "")
    assert run.process.poll() is None


def test_a_run_that_waited_for_another_goes_on_after_its_last_event(started, monkeypatch):
    run = start(started, classic(steps=3))
    run.process.wait(DEADLINE_S)
    acquire = alive.RunLock.acquire

    def late(folder: Path) -> alive.RunLock:
        with SessionStore.open(folder, writable=True) as other:  # writes until it gives the lock up
            other.append("message", {"level": "info", "text": "the other's last event"})
        return acquire(folder)

    monkeypatch.setattr(alive.RunLock, "acquire", late)
    assert run_session(run.folder) == ExitCode.OK
    assert [event.seq for event in events(run.folder)] == list(range(1, len(events(run.folder)) + 1))


def test_a_finished_run_goes_on_only_with_a_larger_budget(started):
    run = start(started, classic(steps=3))
    assert run.wait(DEADLINE_S) is ExitCode.OK
    with pytest.raises(UsageError, match="larger --steps"):
        launch.resume_run(run.folder)
    again = launch.resume_run(run.folder, steps=5)
    started.append(again)
    assert again.wait(DEADLINE_S) is ExitCode.OK, again.last_words()
    state = until(run.folder, lambda s: True, "")
    assert state.evaluations == 5
    assert state.info is not None
    assert state.info.steps == 5


def test_other_sources_or_another_device_are_not_mixed_into_a_session(started):
    run = start(started, classic(steps=3))
    assert run.wait(DEADLINE_S) is ExitCode.OK
    with SessionStore.open(run.folder, writable=True) as store:
        info = store.state().info
        assert info is not None
        store.append("start", {**info.data, "device": DeviceInfo("NVIDIA H200", "cuda:0").to_json()})
    again = launch.resume_run(run.folder, steps=5)
    started.append(again)
    assert again.wait(DEADLINE_S) is ExitCode.USAGE
    assert "NVIDIA H200" in (again.last_words() or "")
    with SessionStore.open(run.folder, writable=True) as store:
        store.append("start", dict(info.data))
        logged = next(store.events(kinds=["evaluation"])).data
        store.append("evaluation", {**logged, "source_hash": "0" * 16})
    again = launch.resume_run(run.folder, steps=6)
    started.append(again)
    assert again.wait(DEADLINE_S) is ExitCode.USAGE
    assert "has changed since" in (again.last_words() or "")


def test_a_time_limit_ends_it_with_a_result(started):
    run = start(started, long(time_limit_s=0.2))
    assert run.wait(DEADLINE_S) is ExitCode.BUDGET, run.last_words()
    state = until(run.folder, lambda s: True, "")
    assert state.lifecycle is Lifecycle.FINISHED
    assert state.result is not None
    assert state.evaluations < 832
    with pytest.raises(UsageError, match=r"time limit of 0\.2 s; give a larger --time-limit"):
        launch.resume_run(run.folder)


def test_a_session_whose_process_never_started_is_interrupted(started):
    store = launch.create(classic())
    store.close()
    tail = Tail(store.folder)
    state = tail.poll()
    tail.close()
    assert state is not None
    assert (state.lifecycle, state.reason) == (Lifecycle.INTERRUPTED, "its process never started")


def test_replay_plays_the_log_that_the_run_wrote(started):
    run = start(started, classic())
    assert run.wait(DEADLINE_S) is ExitCode.OK
    with SessionStore.open(run.folder) as store:
        final = store.state()
    now = [0.0]
    replay = Replay(run.folder, clock=lambda: now[0])
    first = replay.poll()
    assert first is not None
    assert first.seq < final.seq
    now[0] = replay.length + 1
    last = replay.poll()
    assert last == final
    assert replay.poll() is None
    assert not replay.playing
    replay.close()

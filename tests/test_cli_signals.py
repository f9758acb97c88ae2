"""Interrupts and kills of runs that the command line started: nothing is lost, nothing is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import synthetic
from cli_support import warpdeck, write_recordings

from warpdeck.cli import app
from warpdeck.core import tracing
from warpdeck.core.errors import ExitCode
from warpdeck.kernels import load_workload
from warpdeck.sessions.alive import runner_pid
from warpdeck.sessions.state import RunState
from warpdeck.sessions.store import SessionStore
from warpdeck.sessions.tail import follow


@pytest.fixture(autouse=True)
def recordings(isolated_home: Path) -> Path:
    """A home with small recordings; their folder."""
    return write_recordings(isolated_home)


@pytest.fixture
def sweep(recordings: Path) -> tuple[str, ...]:
    """A run over hundreds of recorded configurations, which takes half a second."""
    synthetic.write(recordings, load_workload("softmax"), "full", [1024], name="synthetic")
    return ("tune", "softmax", "--device", "recorded:synthetic", "--agent", "sweep", "--headless")


@pytest.fixture
def long_run(sweep: tuple[str, ...]) -> tuple[str, ...]:
    """One that takes seconds: what is sent to it after its first steps finds it at work."""
    return (*sweep, "--agent", "tpe", "--steps", "572")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "warpdeck", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def wait_for_steps(session: Path, steps: int, timeout_s: float = 60) -> RunState:
    """The state once the run has made so many steps, or has ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (session / "session.db").exists():
            with SessionStore.open(session) as store:
                state = store.state()
            if state.evaluations >= steps or state.lifecycle.final:
                return state
        time.sleep(0.005)
    raise AssertionError(f"{session}: fewer than {steps} steps in {timeout_s} s")


def test_ctrl_c_stops_the_run_keeps_the_session_and_resumes(
    isolated_home: Path, long_run: tuple[str, ...]
) -> None:
    process = start(*long_run, "--session", "stopme", "--json")
    wait_for_steps(isolated_home / "sessions" / "stopme", 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, err
    assert "warpdeck tune --resume stopme" in err
    stopped = json.loads(out)
    assert stopped["state"] == "cancelled" and stopped["provisional"] is True
    total = stopped["steps"] + 5
    again = warpdeck("tune", "--resume", "stopme", "--steps", str(total), "--json")
    assert again.returncode == 0, again.stderr
    document = json.loads(again.stdout)
    assert document["session"] == "stopme" and document["steps"] == total


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_before_the_run_process_is_up_stops_it_too(
    isolated_home: Path, long_run: tuple[str, ...], signals: int
) -> None:
    process = start(*long_run, "--session", "early")
    folder = isolated_home / "sessions" / "early"
    deadline = time.monotonic() + 60
    while not (folder / "run.log").exists() and time.monotonic() < deadline:
        time.sleep(0.001)  # made at the moment of the start
    time.sleep(0.1)
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, err = process.communicate(timeout=60)
    # Where the second signal finds Python ending, that dies of it, which a shell tells as 130 too.
    assert process.returncode in (ExitCode.INTERRUPTED, -signal.SIGINT), err
    assert "Traceback" not in err
    time.sleep(0.5)  # one that is still to come would be there by then
    deadline = time.monotonic() + 60
    while runner_pid(folder) is not None:  # it may still be closing its session
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with SessionStore.open(folder) as store:
        assert store.state().evaluations < 100


@pytest.mark.parametrize(
    "module", ["warpdeck.cli.app", "typer", "warpdeck.cli.output", "warpdeck.core.errors"]
)
def test_ctrl_c_while_modules_are_imported_is_no_traceback(module: str) -> None:
    # The interrupt comes where a module is looked up: by a timer it would come at another place in every run.
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "from warpdeck.__main__ import main\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['warpdeck', 'workloads', 'list']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130 and "Traceback" not in done.stderr


def test_ctrl_c_while_python_ends_is_no_traceback() -> None:
    code = (
        "import atexit, signal, sys\n"
        "from warpdeck.__main__ import main\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.argv = ['warpdeck', 'config', 'path']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_ctrl_c_in_a_command_that_does_not_handle_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(path: Path) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(tracing, "read", interrupt)
    assert app.run(["trace", "any.csv"]) == 130
    assert capsys.readouterr().err == "warpdeck: interrupted\n"


def test_two_resumes_at_once_are_one_run(isolated_home: Path, long_run: tuple[str, ...]) -> None:
    process = start(*long_run, "--session", "twice")
    wait_for_steps(isolated_home / "sessions" / "twice", 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    with SessionStore.open(isolated_home / "sessions" / "twice") as store:
        total = store.state().evaluations + 5
    both = [start("tune", "--resume", "twice", "--steps", str(total), "--json") for _ in range(2)]
    ended = [(*p.communicate(timeout=120), p.returncode) for p in both]
    # The second one is refused, or finds the first one's run ended when its turn comes.
    codes = sorted(code for _, _, code in ended)
    assert codes in ([0, 0], [0, ExitCode.USAGE]), ended
    for out, err, code in ended:
        assert bool(out) == (code == 0), err
    with SessionStore.open(isolated_home / "sessions" / "twice") as store:
        steps = [event.data["step"] for event in store.events(kinds=["evaluation"])]
    assert steps == list(range(1, total + 1))


def test_killing_the_console_leaves_the_run_going(isolated_home: Path, sweep: tuple[str, ...]) -> None:
    process = start(*sweep, "--session", "alone")
    session = isolated_home / "sessions" / "alone"
    wait_for_steps(session, 1)
    process.kill()
    process.communicate(timeout=60)
    last = list(follow(session))[-1]
    assert last.lifecycle == "finished" and last.result is not None


def test_why_a_run_died_is_told(long_run: tuple[str, ...]) -> None:
    """A limit on the size of files, as a quota or `ulimit -f` sets it: the database can't grow."""
    limit = (96 << 10, 96 << 10)
    ended = warpdeck(*long_run, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert ended.returncode == ExitCode.RUN_FAILED, ended.stderr
    [error] = [line for line in ended.stderr.splitlines() if "error:" in line]
    assert "disk I/O error" in error and "Traceback" not in ended.stderr


def test_killing_the_run_is_told_and_loses_nothing(isolated_home: Path, long_run: tuple[str, ...]) -> None:
    process = start(*long_run, "--session", "killed", "--json")
    session = isolated_home / "sessions" / "killed"
    seen = wait_for_steps(session, 5)
    pid = runner_pid(session)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.RUN_FAILED and "its process died (killed by SIGKILL)" in err
    with SessionStore.open(session) as store:
        kept = store.state().evaluations
    assert kept >= seen.evaluations
    total = kept + 5
    again = warpdeck("tune", "--resume", "killed", "--steps", str(total), "--json")
    assert again.returncode == 0, again.stderr
    with SessionStore.open(session) as store:
        steps = [event.data["step"] for event in store.events(kinds=["evaluation"])]
    assert steps == list(range(1, total + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_console_stops_its_run_too(
    isolated_home: Path, long_run: tuple[str, ...], number: signal.Signals
) -> None:
    process = start(*long_run, "--session", "ended", "--json")
    session = isolated_home / "sessions" / "ended"
    wait_for_steps(session, 1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert f"{number.name}: stopping" in err and "warpdeck tune --resume ended" in err
    assert json.loads(out)["state"] == "cancelled" and runner_pid(session) is None
    with SessionStore.open(session) as store:
        assert store.state().reason == f"stopped by {number.name}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_a_command_has_started(tmp_path: Path, number: signal.Signals) -> None:
    """Such as Nsight Compute: it would go on and hold the GPU."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from warpdeck.cli.app import app, run\n"
        "from warpdeck.telemetry import process\n"
        "@app.command('hold')\n"
        "def hold(folder: Path) -> None:\n"
        "    tool = ['sh', '-c', 'echo $$; sleep 600']\n"
        "    process.run(tool, environment=os.environ, timeout_s=600, log=folder / 'log')\n"
        f"sys.exit(run(['hold', {str(tmp_path)!r}]))\n"
    )
    command = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    log, deadline = tmp_path / "log", time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.01)
    command.send_signal(number)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 128 + number and "Traceback" not in err
    assert not Path(f"/proc/{int(log.read_text())}").exists()


def test_a_hangup_that_is_ignored_leaves_the_run_going(isolated_home: Path, sweep: tuple[str, ...]) -> None:
    command = ["nohup", sys.executable, "-m", "warpdeck", *sweep, "--session", "nohup"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for_steps(isolated_home / "sessions" / "nohup", 1)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_run_ends_with_the_reader_of_its_events(isolated_home: Path, long_run: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "warpdeck", *long_run, "--session", "piped", "--jsonl"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["seq"] == 1
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(60) == 0, err
    session = isolated_home / "sessions" / "piped"
    with SessionStore.open(session) as store:
        assert store.state().lifecycle.final and store.state().reason == "stopped by a closed stdout", err

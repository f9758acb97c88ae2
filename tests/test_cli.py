"""The command line: what is printed where, and the exit code, through real processes where it matters."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cli_support import TUNE, best_of, here, warpdeck, write_recordings

from warpdeck.cli import output
from warpdeck.cli.app import run
from warpdeck.core.errors import ExitCode, NoDeviceError, UsageError, VerificationError
from warpdeck.kernels import load_workload, scaffold


@pytest.fixture(autouse=True)
def recordings(isolated_home: Path) -> Path:
    """A home with small recordings; their folder."""
    return write_recordings(isolated_home)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("warpdeck ")
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in (
        "tune",
        "bench",
        "sweep",
        "check",
        "profile",
        "train",
        "rollout",
        "replay",
        "attach",
        "doctor",
    ):
        assert f"\n  {command} " in text


def test_without_a_terminal_the_bare_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: warpdeck" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "No such command"),
        (["tune", "softmax", "--frob"], "No such option"),
        (["tune", "softmax", "--steps", "0"], "Invalid value for '--steps'"),
        (["tune", "softmax", "--steps", "many"], "Invalid value for '--steps'"),
        (["tune", "sofmax"], "did you mean 'softmax'"),
        (["tune", "SoftMax"], "did you mean 'softmax'"),
        (["tune", "SOFTMAX"], "did you mean 'softmax'"),
        (["tune"], "which workload"),
        (["tune", "softmax", "--agent", "rndom"], "did you mean"),
        (["tune", "softmax", "--space", "ful", "--device", "recorded:synthetic"], "did you mean"),
        (["tune", "softmax", "--size", "-3"], "impossible"),
        (["tune", "softmax", "--cache", "warm"], "use cold or hot"),
        (["tune", "softmax", "--agent-option", "x"], "write NAME=VALUE"),
        (["tune", "softmax", "--time-limit", "0"], "more than 0 seconds"),
        (["tune", "softmax", "--json", "--jsonl"], "exclude each other"),
        (["tune", "--resume", "nothing"], "there is no session"),
        (["tune", "/nowhere/at-all"], "no such folder"),
        (["attach", "nothing"], "there is no session"),
        (["replay", "nothing"], "there is no session"),
        (["replay", "x", "--speed", "0"], "more than 0"),
        (["bench", "sofmax"], "did you mean 'softmax'"),
        (["bench", "softmax", "--space", "classic", "--knob", "block_sise=64"], "did you mean"),
        (["bench", "softmax", "--space", "classic", "--knob", "block_size=63"], "isn't allowed"),
        (["bench", "softmax", "--device", "recorded:nix"], "unknown recording"),
        (["bench", "softmax", "--device", "cud:0"], "unknown device"),
        (["workloads", "show", "sofmax"], "did you mean"),
        (["workloads", "new", "/tmp"], "exists already"),
        (["config", "path", "nowhere"], "use home or"),
        (["train", "--workload", "sofmax", "--device", "recorded:synthetic"], "did you mean"),
        (["rollout", "--max-steps", "0"], "Invalid value for '--max-steps'"),
    ],
)
def test_bad_input_is_one_plain_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("warpdeck: error: ") and captured.err.count("\n") == 1
    assert words in captured.err


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (UsageError("a\nb"), ExitCode.USAGE),
        (NoDeviceError("no GPU"), ExitCode.NO_DEVICE),
        (VerificationError("wrong"), ExitCode.VERIFICATION),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (OSError(28, "No space left on device", "/x"), ExitCode.RUN_FAILED),
    ],
)
def test_whatever_happens_has_an_exit_code(
    problem: BaseException, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise problem

    assert output.guarded(fail) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unexpected_error_leaves_its_traceback_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def fail() -> None:
        raise KeyError("surprise")

    assert output.guarded(fail) == ExitCode.RUN_FAILED
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and "unexpected KeyError" in text
    (file,) = tmp_path.glob("warpdeck-traceback-*.txt")
    assert str(file) in text and "surprise" in file.read_text()


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m warpdeck doctor --json | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    program = f'exec "{sys.executable}" -m warpdeck workloads list {closed}'
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


def test_a_stdout_of_few_characters_is_no_error() -> None:
    done = warpdeck(*TUNE, "--steps", "3", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "baseline" in done.stdout and "?s" in done.stdout  # the unit's Greek letter


def test_nothing_that_is_printed_commands_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.error("a\x1b[31mb")
    output.line("tab\tand\nline stay; \x9b2J and \x07 don't")
    output.message("no \u202etxet denrut\u202c, no \ud800")
    captured = capsys.readouterr()
    assert captured.err == "warpdeck: error: a\ufffd[31mb\nno \ufffdtxet denrut\ufffd, no \ufffd\n"
    assert captured.out == "tab\tand\nline stay; \ufffd2J and \ufffd don't\n"


def test_json_has_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    output.json_document({"a": float("inf"), "b": [float("nan"), 1.5], "c": Path("/x")})
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "a": None,
        "b": [None, 1.5],
        "c": "/x",
    }


# -- tune -----------------------------------------------------------------------------------------------


def test_tune_prints_the_documented_json_and_the_seed_decides() -> None:
    done = [warpdeck(*TUNE, "--agent", "random", "--steps", "6", "--seed", "1", "--json") for _ in range(2)]
    assert [d.returncode for d in done] == [0, 0], done[0].stderr
    documents = [json.loads(d.stdout) for d in done]
    first = documents[0]
    assert first["schema_version"] == 1
    keys = "session workload agent seed clock cache device baseline best cases tied counts vendor_ratio"
    assert {*keys.split(), "floor_ratio"} <= set(first)
    assert {"name", "recorded", "emulated", "date"} <= set(first["device"])
    best = "candidate variant config launch score_ms speedup speedup_ci status"
    assert set(best.split()) <= set(first["best"])
    case = "name params median_ms baseline_ms speedup speedup_ci vendor_ratio floor_ratio"
    assert set(case.split()) <= set(first["cases"][0])
    assert first["device"]["recorded"] is True and first["counts"] == {"ok": 6}
    assert best_of(first) == best_of(documents[1])
    assert "recorded" not in done[0].stdout.split("{")[0]


def test_tune_for_people_says_what_is_recorded() -> None:
    done = warpdeck(*TUNE, "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert "recorded on Synthetic GPU, 2026-01-01" in done.stdout
    assert "32 samples in 8 rounds, as recorded" in done.stdout
    assert "speedup" in done.stdout and "baseline" in done.stdout
    assert done.stderr.startswith("session softmax-tpe-") and "\x1b" not in done.stderr + done.stdout


def test_tune_streams_events() -> None:
    done = warpdeck(*TUNE, "--agent", "sweep", "--jsonl")
    assert done.returncode == 0, done.stderr
    events = [json.loads(row) for row in done.stdout.splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    kinds = [e["kind"] for e in events]
    assert kinds.count("evaluation") == 9 and "result" in kinds and "start" in kinds
    assert events[-1]["data"]["state"] == "finished"


def test_a_recording_names_the_workload(recordings: Path) -> None:
    file = next(recordings.glob("synthetic-softmax-classic-256*"))
    done = warpdeck(
        "tune", "--device", f"recorded:{file}", "--space", "classic", "--size", "256", "--headless"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("softmax, recorded on")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("warpdeck tune so", ["softmax"]),
        ("warpdeck tune softmax --agent r", ["random"]),
        ("warpdeck tune softmax --device recorded:s", ["recorded:synthetic"]),
        ("warpdeck train --workload g", ["gemm"]),
        ("warpdeck attach m", ["made"]),
        ("warpdeck replay gemm-l", ["gemm-ladder-h200"]),
        ("warpdeck sessions show nothing-of-this-name", []),
    ],
)
def test_a_shell_completes_names(isolated_home: Path, line: str, names: list[str]) -> None:
    (isolated_home / "sessions" / "made").mkdir(parents=True)
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_WARPDECK_COMPLETE": "complete_bash"}
    code = "from warpdeck.cli.app import app; app(prog_name='warpdeck')"
    environment = {**os.environ, **asked}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.stderr) == (names, "")


def test_a_size_that_is_not_recorded_is_exit_2() -> None:
    done = here(*TUNE, "--size", "300", "--json")
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == "" and "not recorded" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--size", "300"), "not recorded"),
        (("--device", "cud:0"), "unknown device"),
        (("--agent-option", "boldness=3"), "no option 'boldness'"),
    ],
)
def test_a_mistyped_run_is_one_line_and_no_session(
    wrong: tuple[str, str], words: str, isolated_home: Path
) -> None:
    done = here(*TUNE, *wrong)
    assert done.returncode == ExitCode.USAGE and words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list((isolated_home / "sessions").glob("*")) == []


def test_a_time_limit_is_told_and_is_exit_4() -> None:
    done = warpdeck(*TUNE, "--time-limit", "0.000001", "--session", "short")
    assert done.returncode == ExitCode.BUDGET, done.stderr
    assert "the time limit ended the search" in done.stderr and "--resume short --time-limit" in done.stderr


def test_a_gpu_that_is_not_there_is_exit_3() -> None:
    done = warpdeck("tune", "softmax", "--device", "cuda:7", "--headless", "--steps", "1")
    assert done.returncode == ExitCode.NO_DEVICE, done.stderr
    assert "warpdeck: error: " in done.stderr


def test_a_name_that_is_taken_is_exit_2() -> None:
    assert warpdeck(*TUNE, "--steps", "1", "--session", "one").returncode == 0
    second = here(*TUNE, "--steps", "1", "--session", "one")
    assert second.returncode == ExitCode.USAGE and "exists already" in second.stderr
    unnamed = here(*TUNE, "--steps", "1", "--session", "")
    assert unnamed.returncode == ExitCode.USAGE and "session name ''" in unnamed.stderr


def test_the_dashboard_needs_a_terminal() -> None:
    assert warpdeck(*TUNE, "--steps", "1", "--session", "one").returncode == 0
    for command in ("attach", "replay"):
        done = here(command, "one")
        assert done.returncode == ExitCode.USAGE and "needs a terminal" in done.stderr


# -- the rest -------------------------------------------------------------------------------------------


def test_bench_compares_two_recorded_configurations() -> None:
    base = ("bench", "softmax", "--device", "recorded:synthetic", "--space", "classic", "--json")
    done = here(*base, "--knob", "block_size=64", "--against", "block_size=256")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "win" and document["speedup"] > 1.1
    assert document["speedup_ci"][0] <= document["speedup"] <= document["speedup_ci"][1]
    assert document["device"]["recorded"] is True
    slower = here(*base, "--knob", "block_size=256", "--against", "block_size=64", "--fail-if-slower", "5")
    assert slower.returncode == ExitCode.RUN_FAILED and "slower by more than 5%" in slower.stderr
    assert json.loads(slower.stdout)["verdict"] == "loss"
    tie = here(*base, "--knob", "reg_cap=32", "--against", "reg_cap=0", "--fail-if-slower", "0")
    assert tie.returncode == 0 and json.loads(tie.stdout)["verdict"] == "tie"


def test_bench_where_nothing_can_be_kept_says_so_and_answers(isolated_home: Path) -> None:
    (isolated_home / "versions").write_text("no folder")
    done = here("bench", "softmax", "--device", "recorded:synthetic", "--space", "classic", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "tie"
    assert done.stderr.startswith("warpdeck: warning: this version can't be kept")


def test_bench_against_a_session_and_an_edited_source(tmp_path: Path) -> None:
    assert warpdeck(*TUNE, "--agent", "sweep", "--session", "swept").returncode == 0
    base = ("bench", "softmax", "--device", "recorded:synthetic", "--space", "classic")
    done = here(*base, "--against", "swept", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "loss"
    edited = tmp_path / "edited.py"
    edited.write_text((load_workload("softmax").folder / "classic.py").read_text() + "\n")
    done = here(*base, "--variant", str(edited))
    assert done.returncode == ExitCode.RUN_FAILED and "unsupported" in done.stdout
    assert not done.stdout.endswith("\n\n")
    done = here(*base, "--watch")
    assert done.returncode == ExitCode.USAGE and "--watch needs a CUDA GPU" in done.stderr
    done = here(*base, "--watch", "--fail-if-slower", "2")
    assert done.returncode == ExitCode.USAGE and "leave --fail-if-slower out" in done.stderr


def test_workloads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["workloads", "list", "--json"]) == 0
    names = [w["name"] for w in json.loads(capsys.readouterr().out)["workloads"]]
    assert names == ["gemm", "layernorm", "reduction", "softmax", "transpose"]
    assert run(["workloads", "show", "softmax", "--json"]) == 0
    spaces = json.loads(capsys.readouterr().out)["spaces"]
    assert {"classic"} <= {s["name"] for s in spaces} and spaces[0]["valid"]["1024"] == 9
    for language in ("cuda", "numba"):
        folder = tmp_path / f"saxpy_{language}"
        assert run(["workloads", "new", str(folder), "--language", language]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3
        workload = load_workload(folder)
        assert workload.name == folder.name and workload.variants["kernel"].language == language
        assert run(["workloads", "show", str(folder)]) == 0
        capsys.readouterr()
    assert run(["workloads", "new", str(tmp_path / "1x")]) == ExitCode.USAGE


def test_a_template_that_was_compiled_when_installed_is_still_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = shutil.copytree(scaffold.TEMPLATES, tmp_path / "templates")
    assert compileall.compile_dir(installed, quiet=1)
    monkeypatch.setattr(scaffold, "TEMPLATES", installed)
    made = scaffold.new_workload(tmp_path / "saxpy", "numba")
    assert {file.name for file in made} == {"kernel.py", "workload.toml", "reference.py"}


def test_a_new_folder_named_as_a_bundled_workload_is_told_by_its_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["workloads", "new", "softmax"]) == 0
    assert "warpdeck check ./softmax " in capsys.readouterr().err
    assert load_workload("./softmax").folder == tmp_path / "softmax"


def test_doctor_and_config(capsys: pytest.CaptureFixture[str], isolated_home: Path) -> None:
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert all({"name", "ok", "detail", "remedy"} == set(check) for check in document["checks"])
    assert run(["doctor"]) == 0
    assert "ok  python" in capsys.readouterr().out
    assert run(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{isolated_home}\n"
    assert run(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"]["WARPDECK_HOME"] == str(isolated_home)


def test_sessions(tmp_path: Path) -> None:
    assert warpdeck(*TUNE, "--agent", "sweep", "--session", "swept").returncode == 0
    listed = json.loads(here("sessions", "list", "--json").stdout)["sessions"]
    assert {"id", "workload", "agent", "device", "started", "steps", "best_speedup", "state"} <= set(
        listed[0]
    )
    assert listed[0]["id"] == "swept" and listed[0]["state"] == "finished"
    shown = json.loads(here("sessions", "show", "last", "--json").stdout)
    assert shown["result"]["best"]["config"]["block_size"] == 64
    assert "speedup" in here("sessions", "show").stdout
    table = here("sessions", "export", "swept", "--csv", "-").stdout.splitlines()
    assert table[0].startswith("kernel,matrix_size,block_size") and len(table) == 10
    null = here("sessions", "export", "swept", "--csv", os.devnull)
    assert null.returncode == 0 and Path(os.devnull).is_char_device()  # written to, not replaced
    nowhere = here("sessions", "export", "swept", str(tmp_path / "none" / "x.zip"))
    assert nowhere.returncode == 2 and "there is no folder" in nowhere.stderr
    packed = tmp_path / "x.tar.gz"
    assert here("sessions", "export", "swept", str(packed)).stdout == f"{packed}\n"
    assert here("sessions", "import", str(packed), "--name", "again").stdout == "again\n"
    best = tmp_path / "best.py"
    assert here("sessions", "export", "swept", "--best", str(best)).returncode == 0
    compile(best.read_text(), str(best), "exec")
    refused = here("sessions", "export", "swept", "--best", str(tmp_path / "best.cu"))
    assert refused.returncode == ExitCode.USAGE and "ends in .py" in refused.stderr
    refused = here("sessions", "rm", "again")
    assert refused.returncode == ExitCode.RUN_FAILED and "--yes" in refused.stderr
    assert here("sessions", "rm", "again", "-y").stdout == "again\n"


def test_a_full_disk_behind_stdout_is_told() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "warpdeck", "config", "path"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == ExitCode.RUN_FAILED
    assert done.stderr == "warpdeck: error: stdout: No space left on device\n"


def test_damage_is_told_in_a_list_and_refused_by_name(isolated_home: Path, tmp_path: Path) -> None:
    folder = isolated_home / "sessions" / "broken"
    folder.mkdir(parents=True)
    (folder / "session.db").write_bytes(b"not a database" * 100)
    listed = here("sessions", "list", "--json")
    assert listed.returncode == 0 and "warning" in listed.stderr
    assert json.loads(listed.stdout)["sessions"][0]["state"] == "damaged"
    for arguments in (("sessions", "show", "broken"), ("attach", "broken"), ("tune", "--resume", "broken")):
        done = here(*arguments)
        assert done.returncode == ExitCode.USAGE and done.stderr.count("\n") == 1, arguments
    bad = tmp_path / "bad.t4.json.gz"
    bad.write_bytes(b"\x1f\x8bgarbage")
    for arguments in (("recordings", "import", str(bad)), ("tune", "--device", f"recorded:{bad}")):
        assert here(*arguments).returncode == ExitCode.USAGE, arguments
    (isolated_home / "recordings" / "bad-softmax-classic-1.t4.json.gz").write_bytes(b"junk")
    listed = here("recordings", "list", "--json")
    assert listed.returncode == 0 and "warning" in listed.stderr
    assert any(r["error"] for r in json.loads(listed.stdout)["recordings"])


def test_recordings(isolated_home: Path, tmp_path: Path) -> None:
    listed = json.loads(here("recordings", "list", "--json").stdout)["recordings"]
    mine = next(r for r in listed if r["id"] == "synthetic-softmax-classic-1024")
    assert mine["configs"] == 9 and mine["bundled"] is False and mine["gpu"] == "Synthetic GPU"
    assert here("recordings", "export", mine["id"], str(tmp_path)).returncode == 0
    for form in ("warpdeck", "t4", "kernel-tuner"):
        printed = here("recordings", "export", mine["id"], "-", "--format", form, cwd=tmp_path)
        assert json.loads(printed.stdout)["cache" if form == "kernel-tuner" else "results"]
        assert not (tmp_path / "-").exists()
    Path(mine["path"]).unlink()
    assert here("recordings", "import", str(tmp_path / Path(mine["path"]).name)).returncode == 0
    near = here("recordings", "export", "synthetic-softmax-clasic-1024", str(tmp_path))
    assert near.returncode == ExitCode.USAGE and "did you mean" in near.stderr


def test_sweep_writes_the_phase_0_table(isolated_home: Path, tmp_path: Path) -> None:
    target = tmp_path / "p0.csv"
    sizes = ("--size", "256", "--size", "1024")
    done = warpdeck(
        "sweep", "softmax", "--device", "recorded:synthetic", *sizes, "--csv", str(target), "--json"
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == 18
    assert len(target.read_text().splitlines()) == 19
    sessions = len(list((isolated_home / "sessions").iterdir()))
    for wrong in (("sofmax",), ("--csv", str(tmp_path)), ("--csv", str(tmp_path / "no" / "p0.csv"))):
        done = here("sweep", "softmax", "--device", "recorded:synthetic", *wrong)
        assert done.returncode == ExitCode.USAGE and done.stdout == "" and done.stderr.count("\n") == 1
    assert len(list((isolated_home / "sessions").iterdir())) == sessions  # told before anything was measured
    again = here("sweep", "softmax", "--device", "recorded:synthetic", "--record", str(tmp_path / "r"))
    assert again.returncode == ExitCode.USAGE and "only a live device" in again.stderr


def test_check(tmp_path: Path) -> None:
    base = ("check", "softmax", "--device", "recorded:synthetic", "--space", "classic")
    document = json.loads(here(*base, "--json").stdout)
    assert {"workload", "variant", "device", "status", "reason", "cases"} <= set(document)
    assert {"name", "role", "status", "reason", "max_error"} == set(document["cases"][0])
    assert document["status"] == "ok"
    edited = tmp_path / "classic.py"
    edited.write_text((load_workload("softmax").folder / "classic.py").read_text() + "\n")
    done = here(*base, "--variant", str(edited))
    assert done.returncode == ExitCode.USAGE and "live device" in done.stderr


def test_rollout_writes_both_tables(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    arguments = (
        "--workload",
        "softmax",
        "--device",
        "recorded:synthetic",
        "--csv-dir",
        str(tmp_path),
        "--json",
    )
    done = here("rollout", *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["episodes"]) == 2 and Path(document["steps_csv"]).is_file()


def test_train_is_a_session(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    arguments = ("--workload", "softmax", "--device", "recorded:synthetic", "--total-steps", "512", "--json")
    done = warpdeck("train", *arguments, "--n-envs", "2", "--n-steps", "64", "--session", "trained")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"fps", "total_steps", "model", "summary"} <= set(document) and document["total_steps"] == 512
    assert Path(document["model"]).is_file() and json.loads(Path(document["summary"]).read_text())
    listed = json.loads(warpdeck("sessions", "list", "--json").stdout)["sessions"]
    assert (listed[0]["id"], listed[0]["agent"], listed[0]["state"]) == ("trained", "ppo", "finished")


def test_from_tries_what_was_best_elsewhere_first(tmp_path: Path) -> None:
    swept = warpdeck(*TUNE, "--agent", "sweep", "--session", "swept", "--json")
    file = tmp_path / "result.json"
    file.write_text(swept.stdout)
    for source in ("swept", str(file)):
        done = warpdeck(*TUNE, "--agent", "random", "--steps", "3", "--from", source, "--jsonl")
        assert done.returncode == 0, done.stderr
        events = [json.loads(row) for row in done.stdout.splitlines()]
        tried = [e["data"]["config"] for e in events if e["kind"] == "evaluation"]
        assert len(tried) == 3 and tried[0] == best_of(json.loads(swept.stdout))
    file.write_text('{"best": 3}')
    for source in ("nothing", str(file)):
        assert warpdeck(*TUNE, "--from", source).returncode == ExitCode.USAGE

"""The options of `tune` for an agent of sources: what they mean, and one plain line for what can't be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from authored import KERNEL, REFERENCE
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.cli.app import run
from warpdeck.cli.tune_options import agent_of
from warpdeck.core.errors import ExitCode
from warpdeck.sessions import dotenv
from warpdeck.sessions.budgets import ALL_STEPS, steps_of

SERVER = ("--base-url", "http://127.0.0.1:9/v1")
GIVEN = (
    *("--agent", "ladder", "--signature", "s.txt", "--reference", "r.py", "--initial-kernel", "k.cu"),
    "--input-cases",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with parts of a workload, and no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    files = {
        "k.cu": KERNEL,
        "r.py": REFERENCE,
        "broken.json": "{",
        "list.json": "[]",
        "number.json": "3",
        "unknown.json": '{"modle": "x"}',
        "steps.json": '{"description": "x", "max-iterations": "many"}',
        "half.json": '{"description": "x", "steps": 7.5}',
        "nested.json": '{"description": "x", "model": {"a": 1}}',
        "target.json": '{"description": "x", "target": 7}',
        "pirces.json": '{"pirces": {}}',
        "prices.json": '{"description": "x", "prices": {"m": 1}}',
        "gone.json": '{"description": "x", "reference": "gone.py"}',
        "binary.cu": "\udcff\udcfe",
        "s.txt": "void rowsum(const float x[m][n], float y[m], int m, int n)",
        "role.json": '{"cases": [{"name": "a", "role": "correctnes", "m": 1, "n": 10}]}',
        "extent.json": '[{"name": "a", "m": 1, "n": -10}]',
        "without.json": '[{"name": "a", "m": 1, "n": 1}, {"name": "b", "m": 1}]',
        "null.json": '[{"name": "a", "m": 1, "n": null}]',
        "twice.json": '[{"name": "a", "m": 1, "n": 1}, {"name": "a", "m": 1, "n": 2}]',
        "sizes.json": '{"sizes": {"n": "sise"}}',
        "tolerance.json": '{"tolerance": {"rtol": -3}}',
        "launch.json": '{"launch": {"grd": [1], "block": [32]}}',
        "knobs.json": '{"knobs": {"B": 3}}',
        "whole.json": '{"signature": "s.txt", "reference": "r.py", "initial_kernel": "k.cu",'
        ' "tolerance": {"x": 1}}',
        "syntax.py": "def reference(x): return 2 *",
        "other.py": "def refernce(x): return 2 * x",
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gemm", "--agent", "llm"], "no key for api.openai.com; set OPENAI_API_KEY"),
        (["gemm", "--agent", "llm", *SERVER, "--parents", "0"], "'--parents'"),
        (["gemm", "--agent", "llm", *SERVER, "--strategy", "depth"], "linear, beam"),
        (["gemm", "--agent", "llm", *SERVER, "--reasoning-effort", "huge"], "must be one of none"),
        (["gemm", "--agent", "llm", *SERVER, "--target", "1.5"], "'--target'"),
        (
            ["gemm", "--agent", "llm", *SERVER, "--max-cost", "1"],
            "the price of model",
        ),
        (["gemm", "--agent", "llm", *SERVER, "--docs", "nowhere"], "--docs: nowhere: there is no such file"),
        (["gemm", "--agent", "llm", "--base-url", "ftp://x"], "must begin with http"),
        (["gemm", "--agent", "llm", "--base-url", "http://me:pass@x"], "must hold no password"),
        (["gemm", "--agent", "llm", *SERVER, "--device", "recorded:h200"], "which a recording can't"),
        (["gemm", "--agent", "ladder", "--device", "recorded:h200"], "which a recording can't"),
        (["gemm", "--agent", "tpe", "--model", "x"], "--model is for --agent llm, not tpe"),
        (["gemm", "--agent", "ladder", "--stagnation", "0"], "--stagnation is for --agent llm"),
        (["gemm", "--agent", "llm", *SERVER, "--space", "ladr"], "has no space 'ladr'"),
        (["gemm", "--description", "x", *SERVER], "names a workload, and --description"),
        (["--from", "x", "--description", "x", *SERVER], "--from names a workload"),
        (["--signature", "k.cu", *SERVER], "what shall the kernel compute"),
        (["--description", " ", *SERVER], "what shall the kernel compute"),
        (["--description", "x", "--agent", "ladder"], "no signature and no reference and no kernel"),
        (["--description", "x", "--signature", "gone", *SERVER], "--signature gone: can't be read"),
        (["--description", "x", "--reference", "k.cu", *SERVER], "a CUDA kernel is an --initial-kernel"),
        (["--description", "x", "--initial-kernel", "binary.cu", *SERVER], "not text in UTF-8"),
        (["--description", "x", "--input-cases", "broken.json", *SERVER], "not valid JSON"),
        (["--initial-kernel", "k.cu", "--reference", "r.py", "--agent", "ladder"], "no shapes: give"),
        (["--config", "broken.json"], "not valid JSON"),
        (["--config", "list.json"], "must hold one JSON object"),
        (["--config", "number.json"], "must hold one JSON object"),
        (["--config", "gone-too.json"], "can't be read"),
        (["--config", "unknown.json"], "did you mean 'model'"),
        (["--config", "pirces.json"], "did you mean 'prices'"),
        (["--config", "steps.json", *SERVER], "--config steps.json: max_iterations"),
        (["--config", "half.json", *SERVER], "--config half.json: steps"),
        (["--config", "nested.json", *SERVER], "nested.json: model must be a text"),
        (["--config", "target.json", *SERVER], "--config target.json: target"),
        (["--config", "prices.json", *SERVER], "prices: 'm' needs input and output"),
        (["--config", "gone.json", *SERVER], "gone.py: can't be read"),
        ([*GIVEN, "role.json"], "--input-cases role.json: case a role: 'correctnes' isn't one of"),
        ([*GIVEN, "extent.json"], "--input-cases extent.json: case a n: must be a whole number"),
        ([*GIVEN, "without.json"], "--input-cases without.json: case b n: missing"),
        ([*GIVEN, "null.json"], "--input-cases null.json: case 'a': n must be a number"),
        ([*GIVEN, "twice.json"], "--input-cases twice.json: cases: the name 'a' occurs twice"),
        ([*GIVEN, "sizes.json"], "--input-cases sizes.json: sizes n: expression 'sise'"),
        ([*GIVEN, "tolerance.json"], "--input-cases tolerance.json: tolerance rtol: must be"),
        ([*GIVEN, "launch.json"], "--input-cases launch.json: launch 1 grd: unknown key"),
        ([*GIVEN, "knobs.json"], "--input-cases knobs.json: knobs B: must be a list"),
        (["--agent", "ladder", "--config", "whole.json"], "--config whole.json: tolerance x: unknown key"),
        (
            ["--description", "x", "--reference", "syntax.py", *SERVER],
            "--reference syntax.py: not valid Python",
        ),
        (["--description", "x", "--reference", "other.py", *SERVER], "--reference other.py: no function"),
        (["--workload-dir", "w"], "--workload-dir is for a workload made of parts"),
        (["--description", "x", "--workload-dir", "k.cu", *SERVER], "is no folder"),
        (["--from", "k.cu", "--agent", "llm", *SERVER], "no comment in it says which workload"),
        (["--show-graph", "--strategy", "depth"], "linear, beam"),
        (["--resume", "x", "--max-tokens", "9"], "leave --max-tokens out, or begin a new run with --from x"),
    ],
)
def test_what_can_not_be_is_one_plain_line(
    arguments: list[str], words: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", *arguments, "--headless"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warpdeck: error: ") and said.err.count("\n") == 1
    assert words in said.err
    sessions = isolated_home / "sessions"
    assert not sessions.exists() or not list(sessions.iterdir())  # nothing half-made is left


def test_a_workload_without_a_ladder_is_refused_before_a_session_exists(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workloads", "new", "saxpy"]) == 0
    capsys.readouterr()
    assert run(["check", "saxpy", "--device", "cpu"]) == 0
    assert "its share of what is allowed, 1e-05 + 0.0001·|R|; at most 1" in capsys.readouterr().out
    assert run(["tune", "saxpy", "--agent", "ladder", "--device", "cpu", "--headless"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "workload 'saxpy' has no ladder" in said and said.count("\n") == 1
    assert not list((isolated_home / "sessions").glob("*"))


def test_show_graph_needs_neither_key_nor_workload(capsys: pytest.CaptureFixture[str]) -> None:
    plain = graph(capsys)
    assert plain.startswith("flowchart TD") and "research" not in plain and "counters" not in plain
    full = graph(capsys, "--use-nsight", "--nvidia-research")
    assert "research" in full and "counters" in full
    Path("c.json").write_text('{"use-nsight": true, "nvidia_research": true}')
    assert graph(capsys, "--config", "c.json") == full


def graph(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["tune", "--show-graph", *options]) == 0
    return capsys.readouterr().out


def test_the_agent_follows_from_the_other_options() -> None:
    nothing: dict[str, Any] = {"agent": None, "model": None, "stagnation": None}
    assert agent_of(nothing, {}) == "tpe"
    assert agent_of({**nothing, "stagnation": 0}, {}) == "llm"
    assert agent_of({**nothing, "docs": []}, {}) == "tpe"
    assert agent_of({**nothing, "agent": "ladder", "description": "x"}, {}) == "ladder"
    assert agent_of(nothing, {"initial_kernel": "k.cu"}) == "llm"
    assert [steps_of(a, None) for a in ("tpe", "llm", "ladder")] == [100, 10, ALL_STEPS]
    assert steps_of("llm", 3) == 3


def test_flags_win_over_the_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from warpdeck.sessions import launch

    seen: list[Any] = []

    def stop(spec: Any, **options: Any) -> None:
        seen.append((spec, options["parts"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "launch_run", stop)
    config = {
        "description": "from the file",
        "model": "m1",
        "max-iterations": 3,
        "size": [8, 16],
        "samples": 50,
        "counters": True,
        "device": "cpu",
        "prices": {"m2": {"input": 1, "output": 2}},
        "reference": "r.py",
    }
    (folder / "sub").mkdir()
    (folder / "sub/r.py").write_text(REFERENCE + "# beside\n")
    (folder / "sub/c.json").write_text(json.dumps(config))
    arguments = ["--config", "sub/c.json", "--model", "m2", "--samples", "100", "--max-cost", "0.5", *SERVER]
    assert run(["tune", *arguments]) == ExitCode.INTERRUPTED
    ((spec, parts),) = seen
    assert (spec.agent, spec.steps, spec.sizes, spec.samples, spec.device) == ("llm", 3, (8, 16), 100, "cpu")
    assert spec.options["model"] == "m2" and spec.options["counters"] is True
    assert spec.options["max_cost"] == 0.5 and spec.options["prices"]["m2"]["output"] == 2
    assert parts.description == "from the file" and parts.reference.endswith("# beside\n")


# -- .env ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("OPENAI_API_KEY=sk-1", "sk-1"),
        ("  export OPENAI_API_KEY = 'sk 2' # mine", "sk 2"),
        ('OPENAI_API_KEY="sk#3"', "sk#3"),
        ("OPENAI_API_KEY=", None),
        ("# OPENAI_API_KEY=sk-4", None),
        ("OTHER=sk-5", None),
    ],
)
def test_the_key_comes_from_the_file(line: str, value: str | None, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(f"# settings\n{line}\nPATH=/evil\n")
    environ: dict[str, str] = {}
    dotenv.load(environ, file)
    assert environ == ({} if value is None else {"OPENAI_API_KEY": value})
    environ = {"OPENAI_API_KEY": "set"}
    dotenv.load(environ, file)
    assert environ == {"OPENAI_API_KEY": "set"}


@given(st.text(max_size=80))
def test_any_file_is_read_or_ignored(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ".env"
        file.write_text(text, encoding="utf-8", errors="replace")
        environ: dict[str, str] = {}
        dotenv.load(environ, file)
        assert set(environ) <= set(dotenv.NAMES)


def test_no_env_file_is_no_error(tmp_path: Path) -> None:
    before = dict(os.environ)
    dotenv.load(os.environ, tmp_path / ".env")
    assert dict(os.environ) == before

"""No process but the run process ever gets a secret: looked at in the code, and in running processes."""

from __future__ import annotations

import ast
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import warpdeck
from warpdeck.core import doctor, sandbox
from warpdeck.core.environment import is_secret
from warpdeck.core.sandbox import Layer, Policy, Sandbox
from warpdeck.core.toolchain import CompileRequest, ToolchainError, assembler, disassembly
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.toolchain.process import CompileProcess
from warpdeck.telemetry import process, sanitizer
from warpdeck.telemetry.ncu import run as ncu

PACKAGE = Path(warpdeck.__file__).parent
PARTS = ("agents", "cli", "core", "kernels", "sessions", "telemetry", "tui")
# The run process itself, whose agent calls the model; what the sandbox starts takes it from its options.
WITH_SECRETS = {"sessions/process.py:_popen", "core/sandbox/process.py:spawn"}
SECRET = "sk-never-tell"


STARTERS = {
    "subprocess": ("run", "Popen", "call", "check_call", "check_output"),
    "os": ("system", "popen", "execv", "execvp", "posix_spawn", "spawnv"),
}


def spawns(tree):
    """(function, call) of every call in a module that starts a process."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    if isinstance(owner, ast.Name) and node.func.attr in STARTERS.get(owner.id, ()):
                        yield function.name, node


def test_every_process_is_started_with_an_environment_of_its_own():
    found, missing = set(), []
    for part in PARTS:
        for file in (PACKAGE / part).rglob("*.py"):
            name = file.relative_to(PACKAGE).as_posix()
            for function, call in spawns(ast.parse(file.read_text())):
                found.add(f"{name}:{function}")
                if f"{name}:{function}" not in WITH_SECRETS and "env" not in {k.arg for k in call.keywords}:
                    missing.append(f"{name}:{call.lineno}")
    assert not missing
    assert found >= WITH_SECRETS and len(found) > 8


@pytest.mark.parametrize("name", ["OPENAIKEY", "MYTOKEN", "GITHUB_PAT", "DB_PASS", "API_KEYS", "AUTH_TOKENS"])
def test_more_names_of_secrets(name):
    assert is_secret(name)


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A program under the name of every tool that writes its environment to a file."""
    log = tmp_path / "environments"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ncu", "compute-sanitizer", "nvdisasm", "ptxas", "cuobjdump", "git", "unshare", "addr2line"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "tool={name}" >> {log}\nenv >> {log}\necho Version 1\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("WARPDECK_NCU", str(folder / "ncu"))
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MY_SECRET", "DB_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    return log


def told(log, *names):
    text = log.read_text()
    assert SECRET not in text
    for name in names:
        assert f"tool={name}\n" in text


def test_profiler_and_sanitizer_get_none(tool, tmp_path):
    program = [sys.executable, "-c", "pass"]
    for command in ([str(ncu.find()), "--version"], [str(sanitizer.find()), *program]):
        ended = process.run(
            command, environment=os.environ, timeout_s=30, log=tmp_path / "log", folder=tmp_path
        )
        assert ended.output
    told(tool, "ncu", "compute-sanitizer")


def test_doctor_and_the_session_facts_give_none(tool, tmp_path):
    from warpdeck.sessions.facts import git_revision

    git_revision(tmp_path)
    doctor.examine(tmp_path)
    told(tool, "git", "ncu", "unshare")


def test_the_disassembler_gets_none(tool, monkeypatch):
    monkeypatch.setattr(disassembly, "find", lambda: Path(tool.parent / "bin" / "nvdisasm"))
    disassembly.disassemble(b"")
    told(tool, "nvdisasm")


def test_the_assembler_gets_none(tool, monkeypatch):
    monkeypatch.setattr(assembler, "find", lambda: Path(tool.parent / "bin" / "ptxas"))
    with pytest.raises(ToolchainError):  # it writes no cubin
        assembler.assemble("", (9, 0))
    told(tool, "ptxas")


def test_sandboxed_compile_processes_get_none(tool, tmp_path, monkeypatch):
    if sandbox.layers().best is Layer.NONE:
        pytest.skip("nothing isolates here")
    made = CompileRequest("cuda", "k.cu", ("k",), (9, 0), confined=True, text="")
    for request in (made, replace(made, confined=False)):
        compiler = CompileProcess(CompileCache(tmp_path / "cache"), request, {})
        try:
            environment = Path(f"/proc/{compiler.pid}/environ").read_bytes()
            assert SECRET.encode() not in environment
        finally:
            compiler.close()


def test_the_sandbox_gives_none_in_any_layer(tool):
    for layer in Layer:
        probe = getattr(sandbox.layers(), layer, None)
        if probe is None or probe.works:
            done = Sandbox(Policy(), layer).run(["env"])
            assert done.ok and SECRET.encode() not in done.stdout

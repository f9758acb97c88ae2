"""compute-sanitizer: its command, its findings, and that nothing but a proven pass is one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_tools
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.check import CheckPlan
from warpdeck.core.devices.codes import Codes
from warpdeck.core.devices.sanitizing import sanitize
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import CheckResult, DeviceInfo, Status
from warpdeck.core.toolchain import CompilePool
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.worker import Workers
from warpdeck.core.worker.session import Session
from warpdeck.core.worker.watch import Watch
from warpdeck.kernels import load_workload
from warpdeck.kernels.scaffold import new_workload
from warpdeck.telemetry import sanitizer
from warpdeck.telemetry.sanitizer import Finding, parse

MEMCHECK = """1003
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at axpy(const float *, float *, float, int)+0x160 in kernel.cu:5
=========     by thread (107,0,0) in block (7,0,0)
=========     Access at 0x7f2a00000fac is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a00000000 of size 4012 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at axpy(const float *, float *, float, int)+0x160 in kernel.cu:5
=========     by thread (108,0,0) in block (7,0,0)
=========     Access at 0x7f2a00000fb0 is out of bounds
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA \
API call to cuStreamSynchronize.
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at axpy(const float *, float *, int)+0x140 in kernel.cu:10
=========     and Read access at axpy(const float *, float *, int)+0x290 in kernel.cu:14 [4092 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x70 in /tmp/kernel.cu:6:axpy(float const *, float *, int)
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f5e00000104
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at axpy+0x2b0
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN: dict[str, str] = dict.fromkeys(
    sanitizer.TOOLS, "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
)
CLEAN["racecheck"] = (
    "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
)
NOT_STARTED = """========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Error: Target application terminated before first instrumented API call
"""
FINISH = "begin(0); mark([ok(i) for i in spec['items']])"


def test_findings_have_their_kernel_line_and_number() -> None:
    findings, errors = parse("memcheck", MEMCHECK)
    kernel = "axpy(const float *, float *, float, int)"
    message = "Invalid __global__ write of size 4 bytes"
    place = {"kernel": kernel, "file": "kernel.cu", "line": 5}
    assert errors == 3
    thread = "by thread (107,0,0) in block (7,0,0)"
    assert findings == [Finding("memcheck", message, **place, detail=thread, count=2)]  # type: ignore[arg-type]
    assert findings[0].text == f"{message} at {kernel} in kernel.cu:5, {thread} (2 times)"


@pytest.mark.parametrize(
    ("tool", "output", "words", "line", "count"),
    [
        ("racecheck", RACECHECK, "Race: write at axpy", 10, 4092),
        ("racecheck", RACECHECK, "with read access at kernel.cu:14", 10, 4092),
        ("initcheck", INITCHECK, "Uninitialized __global__ memory read of size 4 bytes at axpy(", 6, 1),
        ("synccheck", SYNCCHECK, "Divergent thread(s) in block at axpy, by thread (32,0,0)", 0, 1),
    ],
)
def test_every_tools_findings_are_read(tool: str, output: str, words: str, line: int, count: int) -> None:
    (finding,), errors = parse(tool, output)
    assert words in finding.text and (finding.line, finding.count, errors) == (line, count, 1)
    assert "axpy" in finding.kernel


def test_a_failed_call_counts_where_nothing_came_before_it() -> None:
    text = "\n".join(line for line in MEMCHECK.splitlines() if "Invalid" not in line and "    " not in line)
    (finding,), _ = parse("memcheck", text)
    assert finding.message.startswith("Program hit CUDA_ERROR_LAUNCH_FAILED")


@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_clean_outputs_have_no_findings(tool: str) -> None:
    assert parse(tool, CLEAN[tool]) == ([], 0)


def test_what_never_started_has_no_summary() -> None:
    assert parse("memcheck", NOT_STARTED) == ([], None)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=40),
            st.text(max_size=40).map(lambda t: f"========= {t}"),
            st.sampled_from((MEMCHECK + RACECHECK + INITCHECK + SYNCCHECK).splitlines()),
        ),
        max_size=30,
    )
)
def test_any_text_can_be_read(lines: list[str]) -> None:
    findings, errors = parse("memcheck", "\n".join(lines))
    assert all(f.count >= 1 and f.line >= 0 and "\n" not in f.text for f in findings)
    assert errors is None or errors >= 0


def test_the_command_asks_for_an_exit_code() -> None:
    line = sanitizer.command(Path("/x/cs"), "racecheck", ["python", "p"])
    assert line[:3] == ["/x/cs", "--tool", "racecheck"] and line[-2:] == ["python", "p"]
    assert line[line.index("--error-exitcode") + 1] == "86"
    assert line[line.index("--require-cuda-init") + 1] == "yes"


def test_a_missing_tool_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(sanitizer.SanitizerError, match="pip install nvidia-cuda-sanitizer-api"):
        sanitizer.find({"PATH": str(tmp_path)})


def test_the_wheels_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia" / "cu13" / "bin" / "compute-sanitizer"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(tmp_path)})
    assert sanitizer.find({"PATH": str(tmp_path)}) == program


# -- under the tool's stand-in -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ...]]:
    """What `sanitize` takes, for two configurations of a workload on its one small case."""
    folder = tmp_path_factory.mktemp("work") / "axpy"
    new_workload(folder, "cuda")
    workload = load_workload(folder)
    (case,) = workload.correctness_cases()
    info = DeviceInfo("NVIDIA H200", "cuda:0", compute_capability=(9, 0))
    candidates = [workload.candidate("full", {"BLOCK": b, "reg_cap": 0}) for b in (64, 128)]
    with (
        CompilePool(1, cache=CompileCache(folder / "cache")) as pool,
        CheckPlan(workload, [case], seed=1, folder=folder / "data") as plan,
    ):
        session = Session(Workers(_no_worker, lambda handle: None), workload, plan, Watch("GPU-none"))
        codes = Codes(workload, pool, (9, 0), {"max_shared_bytes": 200_000})
        yield info, session, codes, [(c, case) for c in candidates]


def _no_worker() -> Any:
    raise AssertionError("sanitizing needs no timing worker")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def install(body: str) -> Path:
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        head = "tool = arguments[arguments.index('--tool') + 1]\n"
        return fake_tools.install(tmp_path / "bin" / "compute-sanitizer", head + body)

    return install


def run(parts: tuple[Any, ...], tools: tuple[str, ...] = ("memcheck",), **more: Any) -> list[CheckResult]:
    info, session, codes, todo = parts
    return sanitize(info, session, codes, todo, tools=tools, **more)


def test_a_pass_needs_exit_code_summary_and_marker(
    parts: tuple[Any, ...], tool: Callable[[str], Path]
) -> None:
    tool(f"print({CLEAN!r}[tool]); {FINISH}")
    found = run(parts, sanitizer.TOOLS)
    assert [r.case for r in found] == list(sanitizer.TOOLS)
    assert {(r.status, r.reason) for r in found} == {(Status.OK, "2 launches")}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        # a clean summary and exit code 0 of a program that never ran
        (f"print({CLEAN['memcheck']!r})", Status.RUNTIME_ERROR, "no completion marker"),
        (
            f"print({CLEAN['memcheck']!r}); mark([], complete=False, fault='no CUDA driver')",
            Status.RUNTIME_ERROR,
            "no CUDA driver",
        ),
        (
            f"print({CLEAN['memcheck']!r}); mark([ok(i) for i in spec['items']][:1])",
            Status.RUNTIME_ERROR,
            "BLOCK=128 reg_cap=0, case odd: it was not launched",
        ),
        (FINISH, Status.RUNTIME_ERROR, "no summary"),
        (f"print({NOT_STARTED!r}); sys.exit(255)", Status.RUNTIME_ERROR, "no summary: Error: Target"),
        (f"print({CLEAN['memcheck']!r}); {FINISH}; sys.exit(86)", Status.RUNTIME_ERROR, "exit code 86"),
        (f"print({CLEAN['memcheck']!r}); {FINISH}; sys.exit(1)", Status.RUNTIME_ERROR, "exit code 1"),
        (f"print({MEMCHECK!r}); {FINISH}; sys.exit(86)", Status.INCORRECT, "at axpy in kernel.cu:5"),
        (f"print({MEMCHECK!r}); {FINISH}", Status.INCORRECT, "(2 times)"),  # whatever the exit code says
        (
            "print('========= ERROR SUMMARY: 4 errors'); " + FINISH + "; sys.exit(86)",
            Status.INCORRECT,
            "counts 4 errors",
        ),
        (
            f"print({CLEAN['memcheck']!r}); failed = ok(spec['items'][0]) | "
            "{'status': 'out_of_memory', 'message': 'full'}; mark([failed, ok(spec['items'][1])])",
            Status.OUT_OF_MEMORY,
            "full",
        ),
    ],
)
def test_nothing_less_is_a_pass(
    parts: tuple[Any, ...], tool: Callable[[str], Path], body: str, status: Status, words: str
) -> None:
    tool(body)
    (found,) = run(parts)
    assert found.status is status and words in found.reason and "\n" not in found.reason


def test_a_hang_ends_with_its_processes(parts: tuple[Any, ...], tool: Callable[[str], Path]) -> None:
    log = tool("begin(1); subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)")
    started = time.monotonic()
    (found,) = run(parts, timeout_s=1.0)
    assert found.status is Status.TIMEOUT and "BLOCK=128" in found.reason and time.monotonic() - started < 60
    mark = json.loads(log.read_text().splitlines()[0])["environment"]["WARPDECK_RUN"]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                assert mark.encode() not in (entry / "environ").read_bytes()
            except OSError:
                continue


def test_a_missing_tool_is_an_error_of_the_command(
    parts: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(WarpdeckError, match="compute-sanitizer was not found"):
        run(parts)

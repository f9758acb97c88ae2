"""Starting Nsight Compute: its command line, what it may do instead of working, and that nothing stays
behind. A small program stands in for the tool; its reports are real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fake_tools
import pytest
from imitation import FLOORS, Imitation

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.check import CheckPlan
from warpdeck.core.devices.codes import Codes
from warpdeck.core.devices.profiler import LiveProfiler
from warpdeck.core.errors import ExitCode
from warpdeck.core.model import CacheMode, Candidate, DeviceInfo, Evaluation, Launch, Status
from warpdeck.core.profiling import NcuFailure, ProfileOptions
from warpdeck.core.toolchain import Compiled, CompilePool, KernelInfo
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.worker import WorkerHandle, Workers
from warpdeck.core.worker.faults import WorkerFault
from warpdeck.core.worker.program import Item, Program
from warpdeck.core.worker.session import Code, Session
from warpdeck.core.worker.watch import Watch
from warpdeck.kernels import load_workload
from warpdeck.telemetry import process
from warpdeck.telemetry.ncu import roofline, run
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.telemetry.ncu.errors import NcuError

NAMES = ("saxpy", "softmax_rows", "spilling_gemm")  # the kernels of the report in tests/data/ncu, in order
LAUNCHES = {"saxpy": (65536, 256), "softmax_rows": (4096, 256), "spilling_gemm": ("64, 64", "16, 16")}
SOURCE = "\n".join(
    f'extern "C" __global__ void {name}(const float* x, float* y) {{ y[threadIdx.x] = {i} + *x; }}'
    for i, name in enumerate(NAMES)
)
WORKLOAD = """
[workload]
name = "three"
[sizes]
n = "size"
[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"
[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "out"
[[case]]
name = "all"
role = "performance"
n = 256
"""
WORKERS = Imitation({})
ALL_OK = "begin(0); write(); mark([ok(i) for i in spec['items']])"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveProfiler, Any, list[Candidate]]]:
    """A profiler of a workload whose variants launch what the report's kernels were launched with."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "kernel.cu").write_text(SOURCE)
    (folder / "reference.py").write_text("def reference(x):\n    return x\n")
    text = WORKLOAD
    for name in NAMES:
        grid, block = LAUNCHES[name]
        text += f'[[variant]]\nname = "{name}"\nfile = "kernel.cu"\nentry = "{name}"\n'
        text += "[variant.knobs]\nrepeat = [1, 2]\n"
        text += f"[[variant.launch]]\ngrid = [{grid}]\nblock = [{block}]\n"
    text += "".join(f'[space.{name}]\nvariant = "{name}"\n' for name in NAMES)
    (folder / "workload.toml").write_text(text)
    workload = load_workload(folder)
    case = workload.cases[0]
    info = DeviceInfo("NVIDIA H200", "cuda:0", compute_capability=(9, 0))
    with (
        CompilePool(1, cache=CompileCache(folder / "cache")) as pool,
        CheckPlan(workload, [case], seed=1, folder=folder) as plan,
    ):
        codes = Codes(workload, pool, (9, 0), {"max_shared_bytes": 200_000})
        session = Session(Workers(WORKERS.fork, lambda handle: None), workload, plan, Watch("GPU-none"))
        candidates = [workload.candidate(name, {"repeat": 1}) for name in NAMES]
        yield LiveProfiler(info, workload, session, codes), case, candidates


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a stand-in for ncu; returns its log."""

    def install(body: str) -> Path:
        monkeypatch.setenv("WARPDECK_NCU", str(tmp_path / "bin" / "ncu"))
        return fake_tools.install(tmp_path / "bin" / "ncu", body)

    return install


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of runs are made."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def profile(
    made: tuple[LiveProfiler, Any, list[Candidate]], candidates: list[Candidate] | None = None, **more: Any
) -> list[Counters | NcuFailure]:
    profiler, case, every = made
    chosen = [Evaluation(c, Status.OK) for c in (every if candidates is None else candidates)]
    return profiler.profile(chosen, case, ProfileOptions(**{"timeout_s": 30, **more}))


def starts(log: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def marked_processes(folder: Path) -> list[int]:
    """Processes whose environment mentions a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


# -- command lines ---------------------------------------------------------------------------------------


def test_the_command_asks_for_what_was_wanted(tmp_path: Path) -> None:
    chosen, counters = run.metric_set("seed")
    line = run.command(Path("/x/ncu"), ["python", "p"], tmp_path / "r.ncu-rep", chosen=chosen, cache="hot")
    assert line[0] == "/x/ncu" and line[-2:] == ["python", "p"] and not counters
    options = dict(zip(line[1::2], line[2::2], strict=False))
    assert options["--profile-from-start"] == "off"
    assert options["--clock-control"] == "none"
    assert options["--cache-control"] == "none"
    assert options["--target-processes"] == "application-only"
    assert "sm__warps_active.avg.pct_of_peak_sustained_active" in options["--metrics"]
    assert "sm__throughput" not in options["--metrics"]  # ten passes instead of two
    assert options["--section-folder"] == str(tmp_path / "tmp" / "sections")  # which stays empty
    full, _ = run.metric_set("full")
    line = run.command(Path("ncu"), ["p"], Path("r"), chosen=full, sources=[Path("/a"), Path("/b")])
    assert line[line.index("--cache-control") + 1] == "all"
    assert line[line.index("--set") + 1] == "full" and "--section-folder" not in line
    assert line[line.index("--import-source") + 1] == "yes"
    assert line[line.index("--source-folders") + 1] == "/a,/b"


def test_named_metrics_come_beside_the_seed_set() -> None:
    chosen, counters = run.metric_set("full", ["l1_hit_rate", "sm__inst_executed.sum"])
    assert counters == ("sm__inst_executed.sum",) and not chosen.preset
    assert set(run.SETS["seed"].quantities) < set(chosen.quantities) and "l1_hit_rate" in chosen.quantities
    line = run.command(Path("ncu"), ["p"], Path("r"), chosen=chosen, counters=counters)
    asked = line[line.index("--metrics") + 1].split(",")
    assert asked[-1] == "sm__inst_executed.sum" and "l1tex__t_sector_hit_rate.pct" in asked


@pytest.mark.parametrize(("name", "metrics"), [("nope", ()), ("seed", ("--help",)), ("seed", ("a b__c",))])
def test_what_is_no_metric_is_refused(name: str, metrics: tuple[str, ...]) -> None:
    with pytest.raises(NcuError) as raised:
        run.metric_set(name, metrics)
    assert raised.value.kind == "bad_option"


def test_the_tool_is_found_where_it_is(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    tool("sys.exit(0)")
    assert run.version(run.find()) == "2025.3.1"
    found = run.find({"PATH": str(tmp_path / "bin")})
    assert found == tmp_path / "bin" / "ncu"
    with pytest.raises(NcuError) as raised:
        run.find({"WARPDECK_NCU": str(tmp_path / "nothing")})
    assert raised.value.kind == "not_installed" and "nothing" in str(raised.value)


# -- results of several candidates in one start ----------------------------------------------------------


def test_one_start_serves_all_and_results_go_by_order(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path], tmp_path: Path
) -> None:
    log = tool(ALL_OK)
    kept = tmp_path / "kept.ncu-rep"
    found = profile(made, cache=CacheMode.HOT, invocation=3, keep=kept)
    assert [c.kernel for c in found if isinstance(c, Counters)] == list(NAMES)
    assert (
        len(starts(log)) == 1 and kept.read_bytes() == (fake_tools.DATA / "three_full.ncu-rep").read_bytes()
    )
    first = found[0]
    assert isinstance(first, Counters)
    assert first.value("achieved_occupancy") == pytest.approx(74.27, abs=0.01)
    told = {k: first.meta[k] for k in ("workload", "variant", "case", "cache", "set", "invocation")}
    expected = {"workload": "three", "variant": "saxpy", "case": "all"}
    assert told == {**expected, "cache": "hot", "set": "seed", "invocation": 3}
    assert first.meta["device"]["spec"] == "cuda:0" and first.meta["date"]


def test_the_roofs_are_measured_once_where_there_is_a_roofline(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    tool(ALL_OK)
    before = WORKERS.count("floors")
    for result in profile(made):
        assert isinstance(result, Counters) and "peaks" not in result.meta
    assert WORKERS.count("floors") == before
    for result in profile(made, set="roofline"):
        assert isinstance(result, Counters)
        peaks = result.meta["peaks"]
        assert peaks == {"dram_gbs": FLOORS["dram_read_gbs"], "fp32_tflops": FLOORS["fp32_tflops"]}
        at = roofline.point(result)
        assert at is not None and at.peak_bytes_per_s == 1e9 * FLOORS["dram_read_gbs"]
    assert WORKERS.count("floors") == before + 1


def test_without_a_worker_the_roofs_are_the_reports(
    made: tuple[LiveProfiler, Any, list[Candidate]],
    tool: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(self: WorkerHandle, job: str, *rest: Any) -> dict[str, Any]:
        raise WorkerFault(Status.OUT_OF_MEMORY, "no room to measure in")

    tool(ALL_OK)
    monkeypatch.setattr(WorkerHandle, "call", ended)
    found = profile(made, set="roofline")
    assert all(isinstance(c, Counters) and "peaks" not in c.meta for c in found)


def test_the_tool_gets_no_secrets_and_a_private_temporary_folder(
    made: tuple[LiveProfiler, Any, list[Candidate]],
    tool: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    log = tool(ALL_OK)
    profile(made)
    (start,) = starts(log)
    assert "OPENAI_API_KEY" not in start["environment"]
    temporary = Path(start["environment"]["TMPDIR"])
    assert temporary.name == "tmp" and not temporary.exists()  # it was the run's own, and went with it


@pytest.mark.parametrize("given", [True, False])
def test_a_program_of_ones_own_is_profiled_without_secrets_too(
    given: bool, tool: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    log = tool("sys.exit(0)")
    chosen, _ = run.metric_set("seed")
    environment = dict(os.environ) if given else None
    run.Start(["true"], tmp_path / "r.ncu-rep", chosen=chosen, environment=environment).finish(30)
    (start,) = starts(log)
    assert "MY_TOKEN" not in start["environment"] and "PATH" in start["environment"]


def test_an_item_that_fails_alone_leaves_the_others(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    every = made[2]
    extra = Candidate("saxpy", {"repeat": 2}, every[0].source_hash)
    log = tool(
        "write(); outcomes = [ok(i) for i in spec['items']]\n"
        "outcomes[1] = {'status': 'launch_error', 'message': 'too big', 'launched': []}\n"
        "mark(outcomes)"
    )
    found = profile(made, [every[0], extra, *every[1:]])
    assert [type(f) for f in found] == [Counters, NcuFailure, Counters, Counters]
    assert isinstance(found[1], NcuFailure) and "too big" in found[1].reason and len(starts(log)) == 1


def test_one_that_hangs_costs_its_time_and_the_rest_start_again(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    every = made[2]
    extra = Candidate("saxpy", {"repeat": 2}, every[0].source_hash)
    log = tool(f"begin(1)\nif number == 0: time.sleep(600)\n{ALL_OK}")
    found = profile(made, [every[0], extra, *every[1:]], timeout_s=1.5)
    assert [type(f) for f in found] == [Counters, NcuFailure, Counters, Counters]
    culprit = found[1]
    assert isinstance(culprit, NcuFailure) and culprit.kind == "timeout" and "1.5 s" in culprit.reason
    assert culprit.exit_code is ExitCode.BUDGET and len(starts(log)) == 2


def test_a_lost_context_ends_a_start_and_not_the_rest(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    every = made[2]
    extra = Candidate("saxpy", {"repeat": 2}, every[0].source_hash)
    log = tool(
        "if number == 0:\n"
        "    mark([{'status': 'runtime_error', 'message': 'illegal address', 'launched': []}])\n"
        "    sys.exit(3)\n" + ALL_OK
    )
    found = profile(made, [extra, *every])
    assert isinstance(found[0], NcuFailure) and "illegal address" in found[0].reason
    assert all(isinstance(f, Counters) for f in found[1:]) and len(starts(log)) == 2


def test_results_that_fit_no_order_are_never_guessed(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    log = tool(ALL_OK)
    found = profile(made, list(reversed(made[2])))
    assert all(isinstance(f, NcuFailure) for f in found)
    assert len(starts(log)) == 4  # together, then each alone: three launches are in the report every time


def test_hangs_are_not_waited_for_without_end(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    source = made[2][0].source_hash
    every = [Candidate(name, {"repeat": r}, source) for name in NAMES for r in (1, 2)]
    log = tool("begin(0); time.sleep(600)")
    found = profile(made, every, timeout_s=0.7)
    assert all(isinstance(f, NcuFailure) and f.kind == "timeout" for f in found)
    assert len(starts(log)) == 3


def test_what_failed_its_checks_is_not_profiled(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path], runs: Path
) -> None:
    tool(ALL_OK)
    profiler, case, every = made
    found = profiler.profile([Evaluation(every[0], Status.INCORRECT, "y is wrong")], case, ProfileOptions())
    assert isinstance(found[0], NcuFailure) and "y is wrong" in found[0].reason
    assert found[0].exit_code is ExitCode.VERIFICATION
    assert not marked_processes(runs) and not list(runs.iterdir())


@pytest.mark.parametrize("fails", [False, True])
def test_the_tool_starts_while_candidates_are_checked(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path], runs: Path, fails: bool
) -> None:
    log = tool(ALL_OK)
    profiler, case, every = made

    def checked() -> Iterator[Evaluation]:
        give_up = time.monotonic() + 30
        while not log.exists() and time.monotonic() < give_up:
            time.sleep(0.01)
        assert log.exists()
        yield from (Evaluation(c, Status.OK) for c in every)
        if fails:
            raise WorkerFault(Status.RUNTIME_ERROR, "the device is lost")

    if fails:
        with pytest.raises(WorkerFault, match="is lost"):
            profiler.profile(checked(), case, ProfileOptions())
    else:
        found = profiler.profile(checked(), case, ProfileOptions())
        assert [type(f) for f in found] == [Counters] * len(every)
    assert len(starts(log)) == 1 and not marked_processes(runs) and not list(runs.iterdir())


# -- what the tool may do instead -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            "print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
            " Performance Counters on the target device 0.'); sys.exit(1)",
            "permission",
            "NVreg_RestrictProfilingToAdminUsers",
        ),
        (
            "print('==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no"
            " other tool (like DCGM) is concurrently collecting profiling data.'); sys.exit(9)",
            "counters_held",
            "dcgmi profile --pause",
        ),
        (
            "print('==ERROR== Cuda driver is not compatible with Nsight Compute.'); sys.exit(1)",
            "driver_mismatch",
            "driver",
        ),
        ("print('==ERROR== unrecognised option --frobnicate'); sys.exit(1)", "bad_option", "metric set"),
        ("sys.exit(11)", "failed", "exit code 11"),
        (
            "pathlib.Path(report).write_bytes(b'no report'); mark([ok(i) for i in spec['items']])",
            "report",
            "",
        ),
        ("mark([], complete=False, fault='no CUDA driver')", "program_failed", "no CUDA driver"),
        ("mark([ok(i) for i in spec['items']])", "report", "without a report"),
        (
            "begin(0); print('==ERROR== The application returned an error code (139).'); sys.exit(139)",
            "program_failed",
            "139",
        ),
    ],
)
def test_every_known_failure_is_told_with_its_remedy(
    made: tuple[LiveProfiler, Any, list[Candidate]],
    tool: Callable[[str], Path],
    body: str,
    kind: str,
    words: str,
) -> None:
    tool(body)
    (found,) = profile(made, made[2][:1])
    assert isinstance(found, NcuFailure)
    assert found.kind == kind and words in found.text and "\n" not in found.text
    assert found.remedy


def test_nothing_profiled_is_a_failure_although_the_tool_ends_with_0(
    made: tuple[LiveProfiler, Any, list[Candidate]], tool: Callable[[str], Path]
) -> None:
    text = (fake_tools.DATA / "no_kernel_stdout.txt").read_text()
    tool(f"print({text!r}); mark([ok(i) for i in spec['items']])")
    (found,) = profile(made, made[2][:1])
    assert isinstance(found, NcuFailure) and found.kind == "no_kernel" and "softmax_rows" in found.text


def test_without_the_tool_the_reason_says_so(
    made: tuple[LiveProfiler, Any, list[Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPDECK_NCU", "/nowhere/ncu")
    found = profile(made)
    assert all(isinstance(f, NcuFailure) and f.kind == "not_installed" for f in found)
    with pytest.raises(Exception, match="not found in WARPDECK_NCU=/nowhere/ncu"):
        raise found[0].error()  # type: ignore[union-attr]


# -- processes --------------------------------------------------------------------------------------------

LINGERING = """
children = [subprocess.Popen(["sleep", "600"], start_new_session=new) for new in (True, False)]
time.sleep(600 if {hang} else 0)
{then}
"""


@pytest.mark.parametrize("hang", [True, False])
def test_nothing_that_a_run_started_stays(tmp_path: Path, tool: Callable[[str], Path], hang: bool) -> None:
    tool(LINGERING.format(hang=hang, then="write()"))
    chosen, _ = run.metric_set("seed")
    report = tmp_path / "work" / "r.ncu-rep"
    report.parent.mkdir()
    started = time.monotonic()
    outcome = run.Start(["true"], report, chosen=chosen).finish(1.0 if hang else 30)
    assert time.monotonic() - started < 10
    if hang:
        assert outcome.failure is not None and outcome.failure.kind == "timeout" and outcome.report is None
    else:
        assert outcome.failure is None and outcome.report == report
    assert not marked_processes(report.parent)


def test_an_interrupted_run_leaves_nothing_either(tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    import signal

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        environment = {"PATH": os.environ["PATH"], "MARK": str(tmp_path)}
        with pytest.raises(Interrupted):
            process.run(
                ["sh", "-c", "sleep 600 & sleep 600"],
                environment=environment,
                timeout_s=60,
                log=tmp_path / "log",
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not marked_processes(tmp_path)


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    script = "import sys; sys.stdout.write('x' * 3_000_000); print(); print('the end')"
    ended = process.run(
        ["python3", "-c", script], environment=dict(os.environ), timeout_s=60, log=tmp_path / "log"
    )
    assert ended.code == 0 and not ended.timed_out and not ended.left
    assert ended.output.endswith("x\nthe end\n") and len(ended.output) <= 1 << 20


def test_the_program_itself_tells_that_there_is_no_driver(
    made: tuple[LiveProfiler, Any, list[Candidate]], tmp_path: Path
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    case = made[1]
    description = {"arguments": [], "seeds": {0: {}}}
    info = KernelInfo("saxpy", 8, 0, 0, 0, 0, 64)
    launches = {case.name: (Launch("saxpy", (1, 1, 1), (32, 1, 1)),)}
    code = Code("k", "saxpy", Compiled("cuda", (9, 0), b"cubin", {"saxpy": info}, "hash"), launches)
    with Program(0) as program:
        program.give([Item(code, case, description)], invocation=1, limit_s=30)
        folder = program.folder
        assert program.marker is None and program.progress == -1
        ended = process.run(
            program.command, environment=program.environment, timeout_s=60, log=tmp_path / "log"
        )
        marker = program.marker
    assert ended.code == 3, ended.output
    assert marker is not None and not marker.complete and "CUDA" in marker.fault
    assert not folder.exists()


def test_a_program_whose_owner_is_gone_does_not_wait(tmp_path: Path) -> None:
    owner = subprocess.Popen(["true"])
    owner.wait()
    with Program(0) as program:
        line = [str(owner.pid) if a == str(os.getpid()) else a for a in program.command]
        ended = process.run(line, environment=program.environment, timeout_s=60, log=tmp_path / "log")
        assert ended.code == 3 and program.marker is None, ended.output


def test_the_program_starts_with_little() -> None:
    """Every start of a tool waits for it: NumPy and the compilers alone would take longer than its work."""
    code = "import sys, warpdeck.core.worker.profiled as p; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "warpdeck.core.toolchain.pool", "warpdeck.core.worker.client"}

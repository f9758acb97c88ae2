"""Nsight Compute and compute-sanitizer on a real GPU: what they find, limits, and the GPU usable after."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.agents.readings import CounterReader
from warpdeck.agents.tasks import Task
from warpdeck.api import open_bench
from warpdeck.core.bench import performance_cases
from warpdeck.core.devices import Device
from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.core.devices.stored_counters import load, save
from warpdeck.core.model import CacheMode, Candidate, CheckResult, Protocol, Status
from warpdeck.core.profiling import NcuFailure, ProfileOptions, profile, read_report
from warpdeck.core.verify import verify
from warpdeck.core.workload import Workload
from warpdeck.kernels.loader import load_workload
from warpdeck.kernels.scaffold import new_workload
from warpdeck.telemetry import sanitizer
from warpdeck.telemetry.ncu import run
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.telemetry.ncu.errors import NcuError
from warpdeck.telemetry.ncu.hotspots import by_line
from warpdeck.telemetry.ncu.metrics import SEED

pytestmark = pytest.mark.gpu
QUICK = Protocol(warmup=1, samples=5, min_samples=5, adaptive=False)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    try:
        run.find()
    except NcuError as error:
        pytest.skip(str(error))
    opened = CudaDevice(0)
    yield opened
    opened.close()


def classic(workload: Workload, size: int) -> list[Candidate]:
    case = workload.size_case(size)
    return [workload.candidate("classic", c) for c in workload.space("classic").configs(case.params)]


def whole(found: list[Counters | NcuFailure]) -> list[Counters]:
    assert not [f.text for f in found if isinstance(f, NcuFailure)]
    return [c for c in found if isinstance(c, Counters)]


def usable(device: Device) -> bool:
    """Whether a candidate still evaluates, and nobody but our workers is on the GPU."""
    workload = load_workload("softmax")
    case = workload.size_case(256)
    backend = device.prepare(workload, space="classic", cases=[case], seed=1)
    try:
        return backend.evaluate(classic(workload, 256)[0], [case], QUICK).status is Status.OK
    finally:
        backend.close()


@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
def test_all_classic_configurations_in_one_start(device: Device, name: str) -> None:
    workload = load_workload(name)
    candidates = classic(workload, 1024)
    found = whole(profile(workload, device, candidates, workload.size_case(1024), set="seed"))
    assert len(found) == 9 and {c.meta["shared_by"] for c in found} == {9}
    for candidate, counters in zip(candidates, found, strict=True):
        assert counters.meta["config"] == dict(candidate.config)
        assert workload.variants["classic"].entry in f"{counters.kernel} {counters.meta.get('signature')}"
        for metric in SEED:
            norm = counters.metrics[metric].norm
            assert norm is not None and 0 <= norm <= 1
        assert (counters.metrics["achieved_occupancy"].norm or 0) > 0.05
        assert counters.meta["block"][0] == candidate.config["block_size"]  # results come in order


def test_hot_caches_hit_more_than_cold_ones(device: Device) -> None:
    workload = load_workload("softmax")
    candidate, case = classic(workload, 1024)[-1], workload.size_case(1024)
    rates = {}
    for cache in (CacheMode.COLD, CacheMode.HOT):
        (found,) = whole(profile(workload, device, [candidate], case, cache=cache))
        rates[cache] = found.value("dram_bw_pct") or 0.0
    assert rates[CacheMode.HOT] < rates[CacheMode.COLD]


def test_the_full_set_has_lines_of_the_python_source(device: Device, tmp_path: Path) -> None:
    workload = load_workload("softmax")
    candidate, case = classic(workload, 2048)[-1], workload.size_case(2048)
    kept = tmp_path / "kept.ncu-rep"
    (found,) = whole(profile(workload, device, [candidate], case, set="full", keep=kept))
    assert (found.value("theoretical_occupancy") or 0) >= (found.value("achieved_occupancy") or 0) > 0
    lines = by_line(found)
    assert lines[0].file.endswith("classic.py") and lines[0].line > 0 and lines[0].samples > 0
    text = Path(lines[0].file).read_text().splitlines()
    assert lines[0].source.strip() == text[lines[0].line - 1].strip() != ""
    assert [c.kernel for c in read_report(kept)] == [found.kernel]
    save(found, tmp_path / "stored.counters.json.gz")
    assert load(tmp_path / "stored.counters.json.gz") == found


def test_named_metrics_and_what_the_chip_lacks(device: Device) -> None:
    workload = load_workload("reduction")
    candidate, case = classic(workload, 512)[0], workload.size_case(512)
    names = ["l1_hit_rate", "sm__inst_executed.sum", "no__such_metric.avg"]
    (found,) = whole(profile(workload, device, [candidate], case, metrics=names))
    assert (found.value("sm__inst_executed.sum") or 0) > 0 and found.value("l1_hit_rate") is not None
    assert "no__such_metric.avg" in found.missing and set(SEED) <= set(found.metrics)


def test_a_time_limit_ends_everything_and_the_gpu_is_usable(device: Device) -> None:
    workload = load_workload("gemm")
    candidate, case = classic(workload, 4096)[0], workload.size_case(4096)
    started = time.monotonic()
    (found,) = profile(workload, device, [candidate], case, set="full", timeout_s=2.0)
    assert isinstance(found, NcuFailure) and found.kind == "timeout" and found.remedy
    assert time.monotonic() - started < 60
    assert not [p for p in Path("/proc").iterdir() if p.name.isdecimal() and _is_profiled(p)]
    assert usable(device)


def _is_profiled(process: Path) -> bool:
    try:
        return b"worker.profiled" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_wrong_kernel_is_not_profiled(device: Device, tmp_path: Path) -> None:
    workload = load_workload("softmax")
    copy = tmp_path / "softmax"
    shutil.copytree(workload.folder, copy, ignore=shutil.ignore_patterns("recordings", "__pycache__"))
    source = copy / "classic.py"
    text = source.read_text()
    assert "* scale" in text
    source.write_text(text.replace("* scale", "* scale * float32(1.01)"))
    broken = load_workload(copy)
    (found,) = profile(broken, device, classic(broken, 256)[:1], broken.size_case(256))
    assert isinstance(found, NcuFailure) and found.kind == Status.INCORRECT


def test_counters_are_read_once(device: Device) -> None:
    workload = load_workload("softmax")
    case = workload.size_case(256)
    candidates = classic(workload, 256)[:2]
    backend = device.prepare(workload, space="classic", cases=[case], seed=1)
    try:
        first = backend.counters(candidates, case)
        started = time.monotonic()
        assert backend.counters(candidates, case) == first
        assert time.monotonic() - started < 0.1
        assert whole(first)
        status, samples = backend.quick(candidates[0], case, cache=CacheMode.COLD)
        assert status is Status.OK and len(samples) == 5  # timing goes on beside it
        assert whole(backend.profile(candidates[:1], case, ProfileOptions(set="cheap")))
    finally:
        backend.close()


def test_an_environment_reads_a_small_space_in_one_start(device: Device) -> None:
    workload = load_workload("softmax")
    case = workload.size_case(256)
    with open_bench(workload, device, space="classic", sizes=[256]) as bench:
        task, reader = Task("softmax", 256, case, bench), CounterReader(60.0)
        candidates = [bench.candidate(config) for config in bench.configs()]
        readings = [reader.read(task, candidate) for candidate in candidates]
        read = whole(bench.backend.counters(candidates, case, cache=bench.protocol.cache))
    assert [r.reason for r in readings if not r.ok] == []
    assert {c.meta["shared_by"] for c in read} == {9}
    for reading, counters in zip(readings, read, strict=True):
        assert reading.values == tuple(counters.metrics[name].norm for name in SEED)


# -- compute-sanitizer -------------------------------------------------------------------------------------

CLEAN = "if (i < n) y[i] = a * x[i] + y[i];"
BUGS = {
    "memcheck": "if (i <= n) y[i] = a * x[i < n ? i : 0] + 1.0f;",
    "racecheck": "__shared__ float s[BLOCK]; s[threadIdx.x] = i < n ? x[i] : 0.0f;\n"
    "    if (i < n) y[i] = a * s[BLOCK - 1 - threadIdx.x];",
    "initcheck": CLEAN,  # where y is an output, whose old contents nobody wrote
    "synccheck": "if (threadIdx.x < 40) __syncthreads();\n    if (i < n) y[i] = a * x[i];",
}


def axpy(folder: Path, body: str, direction: str = "inout") -> Workload:
    new_workload(folder / "axpy", "cuda")
    source = folder / "axpy" / "kernel.cu"
    head = 'extern "C" __global__ void axpy(const float *x, float *y, float a, int n) {\n'
    source.write_text(f"{head}    const int i = blockIdx.x * BLOCK + threadIdx.x;\n    {body}\n}}\n")
    toml = folder / "axpy" / "workload.toml"
    toml.write_text(toml.read_text().replace('"inout"', f'"{direction}"'))
    if direction == "out":
        reference = folder / "axpy" / "reference.py"
        reference.write_text("def reference(x, a, n):\n    return a * x\n")
    return load_workload(folder / "axpy")


def sanitized(device: Device, workload: Workload) -> dict[str, CheckResult]:
    cases = performance_cases(workload, ())
    backend = device.prepare(workload, space="full", cases=cases, seed=1)
    try:
        candidate = workload.candidate("full", {"BLOCK": 128, "reg_cap": 0})
        return {result.case: result for result in backend.sanitize([candidate], cases)}
    finally:
        backend.close()


@pytest.fixture(scope="module")
def sanitizer_there() -> None:
    try:
        sanitizer.find()
    except sanitizer.SanitizerError as error:
        pytest.skip(str(error))


def test_a_clean_kernel_passes_every_tool(device: Device, tmp_path: Path, sanitizer_there: None) -> None:
    found = sanitized(device, axpy(tmp_path, CLEAN))
    assert list(found) == list(sanitizer.TOOLS)
    assert {(r.status, r.reason) for r in found.values()} == {(Status.OK, "1 launches")}


@pytest.mark.parametrize("tool", list(BUGS))
def test_each_bug_is_found_by_its_tool_with_its_line(
    device: Device, tmp_path: Path, sanitizer_there: None, tool: str
) -> None:
    direction = "inout" if tool in ("memcheck", "racecheck") else "out"
    found = sanitized(device, axpy(tmp_path, BUGS[tool], direction))
    assert found[tool].status is Status.INCORRECT, {t: r.reason for t, r in found.items()}
    assert "axpy" in found[tool].reason and "kernel.cu:" in found[tool].reason
    assert usable(device)


def test_the_bundled_kernels_are_clean(device: Device, sanitizer_there: None) -> None:
    for name in ("gemm", "reduction", "softmax"):
        found = verify(load_workload(name), device, load_workload(name).variant("classic"), sanitize=True)
        assert found.ok, found.reason
        assert [c.case for c in found.cases[-4:]] == list(sanitizer.TOOLS)

"""Other tuners' files: what is read from them, what is said about them, and what is written for them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core import exchange, recording
from warpdeck.core.errors import UsageError
from warpdeck.core.exchange.rows import unit_scale
from warpdeck.core.exchange.write import kernel_tuner_cache, t4_document
from warpdeck.core.expr import value_list
from warpdeck.core.model import CacheMode, Status
from warpdeck.kernels import load_workload
from warpdeck.kernels.imported import imported_workload

AS_RECORDED = CacheMode.AS_RECORDED
SAMPLES = [1.02, 1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 1.0]
ROOT = Path(__file__).parents[1]


def fixture(name: str) -> Path:
    """A file of another project's, from WARPDECK_FIXTURES or ../shared/fixtures; skips where it is absent."""
    folder = Path(os.environ.get("WARPDECK_FIXTURES") or ROOT.parent / "shared" / "fixtures")
    if not (folder / name).is_file():
        pytest.skip(f"{folder / name} is not here: set WARPDECK_FIXTURES to the folder that holds it")
    return folder / name


def row(x: int, ms: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    """A T4 result; a failure without `ms`."""
    runtimes = [] if ms is None else [ms * s for s in SAMPLES]
    value = "RuntimeFailedConfig" if ms is None else float(np.mean(runtimes))
    return {
        "timestamp": "2023-12-22 09:54:05+00:00",
        "configuration": {"x": x, "y": "a"},
        "times": {"compilation": 1500.0, "runtimes": runtimes},
        "invalidity": "runtime" if ms is None else "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": value, "unit": ""}],
        "objectives": ["time"],
        **changes,
    }


def t4(*rows: dict[str, Any], unit: str | None = "milliseconds", **metadata: Any) -> dict[str, Any]:
    units = {} if unit is None else {"timeunit": unit}
    return {"schema_version": "1.0.0", "metadata": {**units, **metadata}, "results": list(rows)}


def cache(rows: dict[str, dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "device_name": "Test GPU",
        "kernel_name": "axpy",
        "problem_size": [64, 32],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [2, 1, 4], "y": ["a"]},
        "objective": "time",
        "cache": rows,
        **changes,
    }


def kt_row(x: int, **changes: Any) -> dict[str, Any]:
    return {"x": x, "y": "a", "time": 1.00375, "times": SAMPLES, "compile_time": 1500.0, **changes}


def write(folder: Path, document: Any, name: str = "conv.json") -> Path:
    path = folder / name
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def read(folder: Path, document: Any, **labels: Any) -> recording.Recording:
    return exchange.read(write(folder, document), **labels)


def notes(found: recording.Recording) -> str:
    return "\n".join(found.origin["notes"])


def times(found: recording.Recording, key: str) -> list[float]:
    return list(found.entries[key].series[AS_RECORDED].ms)


# -- T4 -------------------------------------------------------------------------------------------


def test_t4_becomes_a_recording_with_derived_knobs(tmp_path: Path) -> None:
    found = read(tmp_path, t4(row(4), row(1, 2.0), row(2, None), device_name="NVIDIA  A100"))
    assert found.imported and (found.name, found.workload, found.space) == ("conv", "conv", "imported")
    assert found.device.name == "NVIDIA A100" and found.date == "2023-12-22"
    assert found.reading.label == "recorded on NVIDIA A100, 2023-12-22"
    assert found.knobs == {"x": (1, 2, 4), "y": ("a",)} and list(found.entries) == ["4,a", "1,a", "2,a"]
    assert times(found, "4,a") == pytest.approx(SAMPLES) and found.entries["4,a"].compile_s == 1.5
    assert found.entries["2,a"].status is Status.RUNTIME_ERROR and not found.entries["2,a"].series
    assert found.baseline.config == {"x": 4, "y": "a"}  # the lower median of two
    assert not found.origin["notes"]


def test_what_a_file_does_not_say_stays_unknown(tmp_path: Path) -> None:
    bare = row(1)
    del bare["timestamp"]
    found = read(tmp_path, t4(bare, unit=None))
    assert found.date is None and found.device.name == "unknown device" and found.case == "as_recorded"
    assert found.reading.label == "recorded on unknown device, date unknown"
    for text in ("device is unknown", "date is unknown", "milliseconds are assumed"):
        assert text in notes(found)
    named = read(tmp_path, t4(bare), device_name="My GPU", name="mine", workload="a-b")
    assert (named.device.name, named.name, named.workload) == ("My GPU", "mine", "a_b")


def test_the_device_is_found_in_nvidia_smis_output(tmp_path: Path) -> None:
    log = {"nvidia_smi_log": {"gpu": [{"product_name": "NVIDIA A4000"}, {"product_name": "other"}]}}
    found = read(tmp_path, t4(row(1), environment={"device_query": {"nvidia-smi": log}}))
    assert found.device.name == "NVIDIA A4000"


@pytest.mark.parametrize(
    ("unit", "scale"),
    [
        ("miliseconds", 1),
        ("ms", 1),
        ("Seconds", 1e3),
        ("microsecond", 1e-3),
        ("µs", 1e-3),
        ("ns", 1e-6),
        ("", None),
    ],
)
def test_units_and_their_misspellings(unit: str, scale: float | None) -> None:
    assert unit_scale(unit, "timeunit") == scale


def test_times_are_scaled_by_their_own_units(tmp_path: Path) -> None:
    mixed = row(1, 2000.0)
    mixed["measurements"][0].update(value=2.0075, unit="ms")
    found = read(tmp_path, t4(mixed, unit="microseconds"))
    assert times(found, "1,a") == pytest.approx([2 * s for s in SAMPLES])
    assert found.entries["1,a"].reported_ms == pytest.approx(2.0075) and not notes(found).count("differs")
    with pytest.raises(UsageError, match="'parsecs' is no unit of time"):
        read(tmp_path, t4(row(1), unit="parsecs"))


def test_a_time_that_disagrees_with_its_samples_is_kept_and_told(tmp_path: Path) -> None:
    odd = row(1, 1.0)
    odd["measurements"][0]["value"] = 5.0
    found = read(tmp_path, t4(odd, row(2, 2.0), row(4, 4.0)))
    assert found.entries["1,a"].reported_ms == 5.0 and found.optimum_ms(AS_RECORDED) == 1.0
    assert "time of 1 of 3 configurations differs by over 0.5%" in notes(found)
    assert "by the other the fastest would be 2,a, 2.0075 ms" in notes(found)


def test_failures_stay_failures_whatever_else_the_row_says(tmp_path: Path) -> None:
    failed = [
        row(1, 1.0, invalidity="runtime"),  # with runtimes
        row(2, 1.0, correctness=0),  # correct, says another field
        row(4, 1.0, measurements=[{"name": "time", "value": "CompilationFailedConfig"}]),
        row(8, None, invalidity="timeout"),
        row(16, None, invalidity="constraints"),
        row(32, 1.0, measurements=[{"name": "time", "value": 1e20}], times={}),
        row(64, 1.0, measurements=[], times={"runtimes": []}),
    ]
    found = read(tmp_path, t4(*failed, row(3)))
    statuses = {key: str(entry.status) for key, entry in found.entries.items()}
    assert statuses == {
        "1,a": "runtime_error",
        "2,a": "incorrect",
        "4,a": "compile_error",
        "8,a": "timeout",
        "16,a": "restricted",
        "32,a": "runtime_error",
        "64,a": "runtime_error",
        "3,a": "ok",
    }
    assert "3 failed rows hold times" in notes(found)
    assert "1 valid rows have a correctness of 0" in notes(found)
    assert "1 rows are called valid but hold no time" in notes(found)
    space = imported_workload(found, tmp_path / "x").spaces["imported"]
    assert {"x": 16, "y": "a"} not in space.configs() and len(space.configs()) == 7
    assert "not among the recorded" in (space.why_invalid({"x": 16, "y": "a"}) or "")


def test_odd_samples_single_times_and_repeats(tmp_path: Path) -> None:
    lone = row(2, 1.0, times={"runtimes": []})
    lone["measurements"][0]["value"] = 3.0
    found = read(tmp_path, t4(row(1, 1.0), lone, row(1, 2.0, times={"runtimes": [2.0, 0, -1, "x", 2.5]})))
    assert times(found, "1,a") == [2.0, 2.5] and times(found, "2,a") == [3.0]
    for text in (
        "1 rows repeat",
        "3 samples are no possible times",
        "1 of 2 configurations have a single time",
    ):
        assert text in notes(found)


def test_values_that_python_calls_equal_are_one_value(tmp_path: Path) -> None:
    rows = [row(1), row(2, 2.0)]
    rows[0]["configuration"] = {"x": True, "y": 1.0}
    rows[1]["configuration"] = {"x": 1, "y": 1}
    found = read(tmp_path, t4(*rows))
    assert found.knobs == {"x": (True,), "y": (1.0,)} and len(found.entries) == 1


# -- Kernel Tuner ---------------------------------------------------------------------------------


def test_a_cache_with_every_spelling_of_failure(tmp_path: Path) -> None:
    rows = {
        "1,a": kt_row(1),
        "2,a": {"x": 2, "y": "a", "time": "RuntimeFailedConfig"},
        "4,a": {"x": 4, "y": "a", "__error__": "CompilationFailedConfig"},
        "8,a": {"x": 8, "y": "a", "time": 1e20},
        "16,a": {"x": 16, "y": "a", "GFLOP/s": "InvalidConfig"},
        "32,a": {"x": 32, "y": "a", "__error__": "SomethingNew", "time": 1.0, "times": SAMPLES},
    }
    found = read(tmp_path, cache(rows))
    assert [str(e.status) for e in found.entries.values()] == [
        "ok",
        "runtime_error",
        "compile_error",
        "runtime_error",
        "restricted",
        "runtime_error",
    ]
    assert (found.device.name, found.workload, found.case) == ("Test GPU", "axpy", "64x32")
    assert found.knobs["x"] == (2, 1, 4, 8, 16, 32)  # as listed, then what it lacks
    assert "3 values of x occur" in notes(found) and "1 failed rows hold times" in notes(found)


@pytest.mark.parametrize(("cut", "left"), [(0, 3), (1, 3), (12, 2)])
@pytest.mark.parametrize("name", ["conv.json", "conv.json.gz"])
def test_an_unclosed_cache_is_read_up_to_its_last_whole_row(
    tmp_path: Path, cut: int, left: int, name: str
) -> None:
    head = json.dumps(cache({}), indent="")[:-3]
    rows = "".join(f"\n{json.dumps({f'{x},a': kt_row(x)})[1:-1]}," for x in (1, 2, 4))
    text = head + rows
    found = exchange.read(write(tmp_path, text[: len(text) - cut], name))
    assert len(found.entries) == left and "not closed" in notes(found)
    assert ("unfinished" in notes(found)) == (left == 2)


def test_a_cache_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    text = (
        json.dumps(cache({"1,a": kt_row(1), "2,a": kt_row(2)})).replace('"2,a"', '\n"2,a').replace("{", "{\n")
    )
    with pytest.raises(UsageError, match="not a JSON"):
        read(tmp_path, text)


# -- T1 -------------------------------------------------------------------------------------------


def problem(values: Any = "[1, 2] + list(range(4, 17, 4))") -> dict[str, Any]:
    return {
        "General": {"TimeUnit": "Microseconds"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "y", "Type": "string", "Values": "['a', 'b']"},
                {"Name": "x", "Type": "int", "Values": values},
            ],
            "Conditions": [{"Expression": "x > 0", "Parameters": ["x"]}],
        },
        "KernelSpecification": {
            "KernelName": "axpy",
            "ProblemSize": [4096, 4096],
            "Device": {"Name": "NVIDIA A100"},
        },
    }


def test_a_t1_file_gives_what_t4_leaves_out(tmp_path: Path) -> None:
    t1 = write(tmp_path, problem(), "t1.json")
    found = read(tmp_path, t4(row(4, 1000.0), unit=None), t1=t1)
    assert found.knobs == {"y": ("a", "b"), "x": (1, 2, 4, 8, 12, 16)}
    assert (found.workload, found.case, found.device.name) == ("axpy", "4096x4096", "NVIDIA A100")
    assert found.optimum_ms(AS_RECORDED) == pytest.approx(1.0) and found.origin["conditions"] == ["x > 0"]
    with pytest.raises(UsageError, match="give it as --t1"):
        exchange.read(t1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("__import__('os').listdir()", "a list is needed"),
        ("[open('x')]", "unknown function 'open'"),
        ("range(10**9)", "more than 100,000 values"),
        ("[9**9**9]", "too large"),
        ("", "is empty"),
        (7, "a list is needed"),
        ([[1]], "a knob's value is"),
    ],
)
def test_values_of_a_t1_file_are_never_run(tmp_path: Path, values: Any, says: str) -> None:
    t1 = write(tmp_path, problem(values), "t1.json")
    with pytest.raises(UsageError, match=says):
        read(tmp_path, t4(row(4)), t1=t1)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 4] + list(range(32, 128, 32))", (1, 2, 4, 32, 64, 96)),
        ("[2**i for i in range(4)]", (1, 2, 4, 8)),
        ("[i * 16 for i in range(1, 6) if i % 2 == 0]", (32, 64)),
        ("sorted((3, 1, 2))", (1, 2, 3)),
        ("[True, False]", (True, False)),
        ("[i for i in [j + 1 for j in range(2)]]", (1, 2)),
    ],
)
def test_lists_of_values(text: str, values: tuple[object, ...]) -> None:
    assert value_list(text) == values


@given(st.text(max_size=40) | st.text("[]()+*range list for i in 0123456789,'", max_size=60))
def test_no_text_breaks_the_list_reader(text: str) -> None:
    try:
        assert isinstance(value_list(text), tuple)
    except UsageError as error:
        assert "\n" not in str(error).replace(repr(text), "")


# -- what isn't any of these ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "not a JSON"),
        ("[]", "top level is not an object"),
        ("[" * 100_000, "not a JSON"),
        ({}, "neither a warpdeck recording nor a T4 file nor a Kernel Tuner cache"),
        (t4(row(1, configuration={"x": "\ud800"})), "surrogate"),
        ({"metadata": 3, "results": []}, "metadata is a number"),
        (t4(), "holds no configuration"),
        (t4(row(1, None)), "no configuration in it has a time"),
        (t4(row(1, configuration={})), "have no knobs"),
        (
            t4(row(1), row(2, configuration={"x": 1})),
            "result 2: its configuration and the first one differ in y",
        ),
        (t4(row(1, configuration={"x": [1]})), "result 1: x is a list"),
        (t4(row(1, configuration={"x": float("nan")})), "result 1: x is a number"),
        (t4(row(1, invalidity="odd")), "invalidity 'odd' is none of"),
        (t4(row(1, times=3)), "result 1: times is a number"),
        (cache({"1,a": {"y": "a"}}), "cache entry '1,a' has no value for x"),
        (cache({}, cache={"1,a": 3}), "cache entry '1,a' is a number"),
        (cache({}, tune_params_keys=["x", "x"]), "a knob twice"),
        (cache({}, tune_params_keys=[], tune_params={}), "names the knobs"),
    ],
)
def test_foreign_files_are_one_plain_error(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read(tmp_path, document)
    assert "\n" not in str(caught.value) and "conv.json" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    base=st.sampled_from(
        [t4(row(1), row(2, None), row(4, 2.0)), cache({"1,a": kt_row(1), "2,a": kt_row(2)})]
    ),
    path=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    value=JSON,
)
@settings(max_examples=150, deadline=None)
def test_any_value_anywhere_is_read_or_refused_plainly(
    tmp_path_factory: pytest.TempPathFactory, base: Any, path: list[int], value: Any
) -> None:
    document = json.loads(json.dumps(base))
    inner = document
    for step in path:
        keys: list[Any] = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = keys[step % len(keys)]
        if not isinstance(inner[key], dict | list) or not inner[key] or step == path[-1]:
            inner[key] = value
            break
        inner = inner[key]
    _reads_or_refuses(tmp_path_factory.getbasetemp(), json.dumps(document).encode())


@given(at=st.floats(0, 1), junk=st.binary(max_size=6), cut=st.booleans(), packed=st.booleans())
@settings(max_examples=150, deadline=None)
def test_damage_is_read_or_refused_plainly(
    tmp_path_factory: pytest.TempPathFactory, at: float, junk: bytes, cut: bool, packed: bool
) -> None:
    raw = json.dumps(cache({f"{x},a": kt_row(x) for x in (1, 2, 4)}), indent="").encode()
    raw = gzip.compress(raw) if packed else raw
    start = int(at * len(raw))
    _reads_or_refuses(
        tmp_path_factory.getbasetemp(), raw[:start] + junk + (b"" if cut else raw[start + len(junk) :])
    )


def _reads_or_refuses(folder: Path, raw: bytes) -> None:
    path = folder / "fuzz.json"
    path.write_bytes(raw)
    try:
        found = exchange.read(path, name="fuzz")
    except UsageError as error:
        assert "fuzz.json" in str(error) and "\n" not in str(error)
        return
    again = folder / "again.t4.json.gz"
    recording.save(found, again)
    assert recording.load(again).entries.keys() == found.entries.keys()


# -- exports --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours() -> recording.Recording:
    return synthetic.make(load_workload("softmax"), "classic", 256)


def test_plain_t4_and_back(tmp_path: Path, ours: recording.Recording) -> None:
    document = t4_document(ours, CacheMode.HOT)
    assert "warpdeck" not in json.dumps(document)
    found = read(tmp_path, document)
    assert (found.workload, found.case, found.device.name, found.date) == (
        "softmax",
        "256",
        "Synthetic GPU",
        "2026-01-01",
    )
    assert found.knobs == ours.knobs and not found.origin["notes"]
    for key, entry in ours.entries.items():
        assert times(found, key) == list(entry.series[CacheMode.HOT].ms)


def test_a_kernel_tuner_cache_and_back(tmp_path: Path, ours: recording.Recording) -> None:
    text = kernel_tuner_cache(ours)
    assert text.strip().endswith("}\n}")  # how Kernel Tuner tells a closed cache
    first = next(iter(json.loads(text)["cache"].items()))
    assert first[0] == ",".join(str(first[1][k]) for k in ours.knobs)
    found = read(tmp_path, text)
    assert found.knobs == ours.knobs and (found.case, found.date) == ("256x256", "2026-01-01")
    for key, entry in ours.entries.items():
        assert times(found, key) == list(entry.series[CacheMode.COLD].ms)
    reopened = read(tmp_path, text.strip()[:-3] + ",")
    assert reopened.entries.keys() == found.entries.keys()


def test_failures_and_reported_times_survive_both_exports(tmp_path: Path) -> None:
    odd = row(1, 1.0)
    odd["measurements"][0]["value"] = 5.0
    first = read(tmp_path, t4(odd, row(2, None), row(4, None, invalidity="compile")))
    for document in (t4_document(first), kernel_tuner_cache(first)):
        found = read(tmp_path, document)
        assert [e.status for e in found.entries.values()] == [e.status for e in first.entries.values()]
        assert found.entries["1,a"].reported_ms == 5.0
    with pytest.raises(UsageError, match="no samples with cache 'cold'; recorded: as recorded"):
        t4_document(first, CacheMode.COLD)


# -- the real files -------------------------------------------------------------------------------


def test_the_hubs_convolution_on_an_a100() -> None:
    found = exchange.read(fixture("convolution_milo_A100.t4.json.gz"), name="a100")
    assert recording.statuses(found.entries.values()) == {
        "ok": 4201,
        "runtime_error": 155,
        "compile_error": 6,
    }
    assert found.optimum_ms(AS_RECORDED) == pytest.approx(0.5499, abs=1e-4) and found.date == "2023-12-22"


def test_the_hubs_pnpoly_on_an_rtx_3090() -> None:
    found = exchange.read(fixture("pnpoly_RTX_3090.kernel_tuner.json.gz"), name="rtx")
    assert recording.statuses(found.entries.values()) == {"ok": 3774, "runtime_error": 318}
    assert found.device.name == "NVIDIA GeForce RTX 3090" and found.workload == "cn_pnpoly"

"""Checking: what is right passes, what is wrong doesn't, and cases that prove nothing are refused."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warpdeck.core import sandbox
from warpdeck.core.check import (
    POOL,
    CheckPlan,
    Plans,
    compare,
    covering_configs,
    derived_cases,
    draws,
    remote,
)
from warpdeck.core.errors import UsageError, VerificationError, WarpdeckError
from warpdeck.core.model import Case, Role, Status, Trust
from warpdeck.core.space import SearchSpace
from warpdeck.core.workload import Tolerance, Workload
from warpdeck.kernels import list_workloads, load_workload
from warpdeck.kernels.loader import FOREIGN


def user_workload(folder: Path, reference: str, *, tolerance="{ rtol = 1e-4, atol = 1e-5 }", arguments=""):
    """A workload over x[n] -> y[n], float32, unless told otherwise."""
    arguments = arguments or argument("x", "in") + argument("y", "out")
    (folder / "kernel.cu").write_text('extern "C" __global__ void f() {}')
    (folder / "reference.py").write_text(f"import numpy as np\n{reference}\n")
    (folder / "workload.toml").write_text(
        f'[workload]\nname = "user"\nentry = "f"\ntolerance = {tolerance}\n{arguments}\n'
        '[launch]\ngrid = [1]\nblock = ["B"]\n[knobs]\nB = [32, 64]\n[sizes]\nn = "size"\n'
    )
    return load_workload(folder)


def argument(name, direction, dtype="float32", shape='["n"]', data=None):
    extra = f'data = "{data}"\n' if data else ""
    return (
        f'[[argument]]\nname = "{name}"\nkind = "buffer"\ndtype = "{dtype}"\nshape = {shape}\n'
        f'direction = "{direction}"\n{extra}'
    )


def plan(workload: Workload, *cases: Case, seed: int | None = 1) -> CheckPlan:
    return CheckPlan(workload, cases, seed=seed)


# -- comparison ------------------------------------------------------------------------------------

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(hnp.arrays(np.float32, 9, elements=FLOATS), hnp.arrays(np.float64, 9, elements=FLOATS))
def test_agrees_with_numpy_where_numpy_compares(actual, expected):
    tolerance = Tolerance(rtol=1e-3, atol=1e-5)
    with np.errstate(all="ignore"):
        right = np.isclose(actual.astype(np.float64), expected, rtol=1e-3, atol=1e-5, equal_nan=True)
    found = compare(actual, expected, tolerance)
    assert found.mismatches == np.count_nonzero(~right)
    assert found.first == (None if right.all() else int(np.argmin(right)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_is_wrong_unless_expected(value):
    expected = np.ones(1000)
    actual = expected.astype(np.float32)
    actual[700] = value
    for tolerance, scale in (
        (Tolerance(), None),
        (Tolerance(exact=True), None),
        (Tolerance(product=2e-6), np.full(1000, 1e30)),
    ):
        found = compare(actual, expected, tolerance, scale)
        assert (found.mismatches, found.first, found.max_error) == (1, 700, None)
        assert "at [700]" in found.detail
        wanted = expected.copy()
        wanted[700] = value
        assert compare(actual, wanted, tolerance, scale).ok
        assert not compare(expected.astype(np.float32), wanted, tolerance, scale).ok


def test_a_reference_beyond_the_type_must_overflow():
    expected = np.array([1e6, 1.0])
    assert compare(np.array([np.inf, 1], np.float16), expected, Tolerance()).ok
    assert not compare(np.array([65504, 1], np.float16), expected, Tolerance()).ok


def test_every_element_counts_in_large_arrays():
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((1500, 1000))
    right = expected.astype(np.float32)
    assert compare(right, expected, Tolerance()).ok
    for place in ((0, 0), (749, 999), (1499, 999)):
        wrong = right.copy()
        wrong[place] += np.float32(0.01)
        found = compare(wrong, expected, Tolerance())
        assert found.mismatches == 1 and found.first == place[0] * 1000 + place[1]
        assert f"at [{place[0]}, {place[1]}]" in found.detail
        assert found.max_error is not None and found.max_error > 1


def test_integers_compare_exactly():
    expected = np.array([2**31 - 1, -5, 7], np.int32)
    assert compare(expected.copy(), expected, Tolerance(rtol=0.5)).ok
    found = compare(expected - np.array([0, 0, 1], np.int32), expected, Tolerance(rtol=0.5))
    assert found.mismatches == 1 and found.max_error == 1.0


def test_product_scale_zero_means_exact():
    zeros = np.zeros(4)
    assert compare(np.zeros(4, np.float32), zeros, Tolerance(product=1e-6), zeros).ok
    assert not compare(np.full(4, 1e-30, np.float32), zeros, Tolerance(product=1e-6), zeros).ok


def test_sixteen_million_elements_take_a_fraction_of_a_second():
    expected = np.random.default_rng(0).standard_normal(1 << 24)
    actual = expected.astype(np.float32)
    best = min(_seconds(lambda: compare(actual, expected, Tolerance())) for _ in range(3))
    assert best < 1.0  # 0.15 s on two idle cores


def _seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


# -- inputs ----------------------------------------------------------------------------------------


def test_draws_are_secret_reproducible_zero_mean_and_distinct():
    workload = load_workload("softmax")
    case = workload.size_case(256)
    with plan(workload, case) as a, plan(workload, case) as b, plan(workload, case, seed=None) as c:
        draws = [np.asarray(a.inputs(case, k)["x"]) for k in range(2 * POOL)]
        assert all(np.array_equal(x, b.inputs(case, k)["x"]) for k, x in enumerate(draws))
        assert not np.array_equal(draws[0], c.inputs(case, 0)["x"])
        for k, x in enumerate(draws):
            assert x.dtype == np.float32 and abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
            same = [float(np.mean(x == y)) for y in draws[:k]]
            assert (
                max(same, default=0) < 0.01
                if k < POOL
                else same[k - POOL] == pytest.approx(15 / 16, abs=0.01)
            )


def test_data_folder_is_private_and_goes_away(tmp_path):
    workload = load_workload("gemm")
    case = workload.size_case(64)
    with CheckPlan(workload, [case], folder=tmp_path / "data") as p:
        x = p.inputs(case, 0)["a"]
        folder = Path(x.filename or "").parent
        assert folder.parent == tmp_path / "data"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Path(x.filename or "").read_bytes() == x.tobytes()
        with pytest.raises(ValueError, match="read-only"):
            x[0, 0] = 1
    assert not folder.exists()


def test_data_of_killed_runs_is_swept(tmp_path):
    workload = load_workload("softmax")
    code = (
        "import os, signal, sys; from warpdeck.core.check import CheckPlan;"
        "from warpdeck.kernels import load_workload; from pathlib import Path;"
        "w = load_workload('softmax'); c = w.size_case(64);"
        "p = CheckPlan(w, [c], folder=Path(sys.argv[1])); p.inputs(c, 0);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with CheckPlan(workload, [], folder=tmp_path), CheckPlan(workload, [], folder=tmp_path):
        assert not left.exists()
        assert len(list(tmp_path.iterdir())) == 2  # those of living runs stay


def test_no_room_is_an_error_not_a_crash(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WarpdeckError, match="set TMPDIR"):
        CheckPlan(load_workload("softmax"), [], folder=tmp_path / "file")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float64"])
@pytest.mark.parametrize("data", ["normal", "uniform", "integers"])
def test_every_type_is_filled_and_copied_back(tmp_path, dtype, data):
    arguments = argument("x", "in", dtype, data=data) + argument("y", "out", dtype)
    workload = user_workload(tmp_path, "def reference(x):\n    return x", arguments=arguments)
    case = workload.size_case(1000)
    with plan(workload, case) as p:
        x = p.inputs(case, 1)["x"]
        assert x.dtype == dtype and len(np.unique(x)) > 1
        assert p.verify(case, 1, {"y": np.array(x)}).status is Status.OK
        assert p.verify(case, 1, {"y": np.roll(x, 1)}).status is Status.INCORRECT


def test_a_plan_judges_by_the_tolerance_it_is_given(tmp_path):
    workload = user_workload(
        tmp_path, "def reference(x):\n    return x", arguments=argument("x", "in") + argument("y", "out")
    )
    case = workload.size_case(100)
    with plan(workload, case) as p:
        near = {"y": p.inputs(case, 0)["x"] * np.float32(1.001)}
        assert p.verify(case, 0, near).status is Status.INCORRECT
        assert p.verify(case, 0, near, Tolerance(rtol=1e-2)).status is Status.OK


def test_data_from_files_and_python(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(50, dtype=np.float32))
    arguments = (
        argument("x", "in", data="file:x.npy") + argument("w", "in", data="python") + argument("y", "out")
    )
    workload = user_workload(
        tmp_path,
        "def reference(x, w):\n    return x * w\n"
        "def make_inputs(case, rng):\n    return {'w': rng.random(case.params['n'], dtype=np.float32)}",
        arguments=arguments,
    )
    case, other = workload.size_case(50), workload.size_case(51)
    with plan(workload, case, other) as p:
        inputs = p.inputs(case, 0)
        assert np.array_equal(inputs["x"], np.arange(50)) and 0 < inputs["w"].min() < inputs["w"].max() < 1
        assert p.verify(case, 0, {"y": inputs["x"] * inputs["w"]}).status is Status.OK
        with pytest.raises(UsageError, match=r"x.npy gives 'x' as float32\[50\]; declared float32\[51\]"):
            p.inputs(other, 0)


# -- verdicts --------------------------------------------------------------------------------------


def test_wrong_outputs_are_incorrect_with_a_reason():
    workload = load_workload("softmax")
    case = workload.size_case(128)
    with plan(workload, case) as p:
        x = np.asarray(p.inputs(case, 0)["x"], np.float64)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        right = (e / e.sum(axis=1, keepdims=True)).astype(np.float32)
        assert p.verify(case, 0, {"y": right}).status is Status.OK
        assert p.verify(case, 1, {"y": right}).status is Status.INCORRECT  # a remembered answer
        assert p.verify(case, POOL, {"y": right}).status is Status.INCORRECT  # changed in part
        poisoned = right.copy()
        poisoned[-1, -1] = np.nan
        result = p.verify(case, 0, {"y": poisoned})
        assert "1 of 16,384 elements are wrong; at [127, 127] got nan" in result.reason
        assert "missing" in p.verify(case, 0, {}).reason
        assert (
            "float64[128, 128], declared float32[128, 128]"
            in p.verify(case, 0, {"y": right.astype(float)}).reason
        )


def test_low_precision_products_are_caught():
    workload = load_workload("gemm")
    case = workload.size_case(256)
    with plan(workload, case) as p:
        a, b = p.inputs(case, 0)["a"], p.inputs(case, 0)["b"]
        result = p.verify(case, 0, {"c": a @ b})
        assert result.status is Status.OK
        assert result.max_error is not None and result.max_error < 5e-7
        half = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
        assert p.verify(case, 0, {"c": half}).status is Status.INCORRECT


def test_large_products_are_sampled_and_nothing_escapes():
    workload = load_workload("gemm")
    case = workload.shape_case({"m": 1800, "n": 2500, "k": 2000})  # above 2048^3
    with plan(workload, case) as p:
        a, b = (np.asarray(x) for x in p.inputs(case, 0).values())
        right = a @ b
        result = p.verify(case, 0, {"c": right})
        assert result.status is Status.OK
        assert result.max_error is not None and result.max_error < 5e-7
        rng = np.random.default_rng(0)
        for _ in range(8):  # one wrong element anywhere
            i, j = rng.integers(1800), rng.integers(2500)
            keep = right[i, j]
            right[i, j] = 0.0
            assert p.verify(case, 0, {"c": right}).status is Status.INCORRECT, (i, j)
            right[i, j] = np.nan
            assert p.verify(case, 0, {"c": right}).status is Status.INCORRECT
            right[i, j] = keep
        swapped = right.copy()
        swapped[[10, 11]] = swapped[[11, 10]]
        assert p.verify(case, 0, {"c": swapped}).status is Status.INCORRECT
        half = a.astype(np.float16).astype(np.float32) @ b
        assert p.verify(case, 0, {"c": half}).status is Status.INCORRECT
        p.assert_strong()


@pytest.mark.parametrize("name", list_workloads())
def test_bundled_workloads_are_strong_and_their_references_consistent(name):
    workload = load_workload(name)
    derived = derived_cases(workload, workload.spaces["full"])
    cases = [*workload.correctness_cases(), *derived, workload.size_case(256)]
    assert any(c.exact for c in cases)
    with CheckPlan(workload, cases) as p:
        p.assert_strong()


# -- weak cases ------------------------------------------------------------------------------------

WEAK = {
    "a constant": "def reference(x):\n    return np.full_like(x, 0.5)",
    "zeros": "def reference(x):\n    return x * 1e-9",
    "an input copy": "def reference(x):\n    return x",
    "the last output": "def reference(x):\n    return np.arange(x.size) * 1.0",
}


@pytest.mark.parametrize("control", WEAK)
def test_weak_cases_are_refused(tmp_path, control):
    workload = user_workload(tmp_path, WEAK[control])
    with plan(workload, workload.size_case(512)) as p, pytest.raises(VerificationError) as e:
        p.assert_strong()
    assert "weak_case" in str(e.value) and control in str(e.value) and "'512'" in str(e.value)


def test_a_variant_s_looser_tolerance_makes_a_case_weak(tmp_path):
    """Zeros are off by at most 1e-3: refused by the workload's tolerance, accepted by the variant's."""
    workload = user_workload(tmp_path, "def reference(x):\n    return np.tanh(x) * 1e-3")
    case = workload.size_case(512)
    with plan(workload, case) as p:
        p.assert_strong()
    ((name, variant),) = workload.variants.items()
    loose = replace(workload, variants={name: replace(variant, tolerance=Tolerance(atol=1e-2))})
    with plan(loose, case) as p, pytest.raises(VerificationError, match=r"accept .*zeros"):
        p.assert_strong()


def test_one_strong_correctness_case_is_enough_and_edge_cases_are_exempt(tmp_path):
    reference = "def reference(x):\n    return x * 1e-9 if x.size < 100 else x * 3"
    workload = user_workload(tmp_path, reference)
    small = Case("small", Role.CORRECTNESS, {"n": 10})
    with plan(workload, small, Case("big", Role.CORRECTNESS, {"n": 500})) as p:
        p.assert_strong()
    with plan(workload, small) as p, pytest.raises(VerificationError, match="every correctness case"):
        p.assert_strong()
    edge = Case("tiny", Role.PERFORMANCE, {"n": 10}, edge=True)
    with plan(workload, edge, workload.size_case(500)) as p:
        p.assert_strong()


def test_unlucky_draws_of_a_performance_case_are_redrawn(tmp_path):
    """A sum of 9 small integers is 0 once in seven draws; the kernel that writes 0 must still fail."""
    workload = user_workload(
        tmp_path,
        "def reference(x):\n    return [x.sum()]",
        arguments=argument("x", "in", data="integers") + argument("y", "out", shape="[1]"),
        tolerance="{ exact = true }",
    )
    case = workload.size_case(9)
    for seed in range(12):
        with plan(workload, case, seed=seed) as p:
            for k in range(POOL):
                assert p.verify(case, k, {"y": np.zeros(1, np.float32)}).status is Status.INCORRECT
            p.assert_strong()


# -- faults in reference.py --------------------------------------------------------------------------

PRODUCT = "{ product = 1e-6 }"


@pytest.mark.parametrize(
    ("reference", "tolerance", "fault"),
    [
        ("def reference(x):\n    return x[1:]", None, r"the shape \[63\].*declared \[64\]"),
        ("def reference(x):\n    return {'z': x}", None, "returns z; the outputs are y"),
        ("def reference(x):\n    return x / q", None, "reference failed on case '64': NameError"),
        ("def reference(x, q):\n    return x", None, "asks for 'q'; there are x"),
        ("def reference(x):\n    x[0] = 1\n    return x\ndef oops(:", None, "SyntaxError"),
        ("reference = 3", None, "no function reference"),
        ("def reference(x):\n    return x\nraise SystemExit(0)", None, "SystemExit: 0"),
        ("def reference(x):\n    raise SystemExit(0)", None, "reference failed on case '64': SystemExit"),
        ("import os\nos._exit(3)\ndef reference(x):\n    return x", None, "exit code 3 while importing it"),
        (
            "from os import _exit\ndef reference(x):\n    _exit(0)",
            None,
            "exit code 0 while computing case '64'",
        ),
        ("def reference(x):\n    return x * 2", PRODUCT, "needs operands"),
        ("def reference(x):\n    return x + 1j", None, "the type complex128.*real numbers"),
        ("def reference(x):\n    return x.astype(object)", None, "the type object.*real numbers"),
        ("class E(BaseException): pass\nraise E('no')", None, "E: no"),
        (
            "class E(BaseException): pass\ndef reference(x):\n    raise E('no')",
            None,
            "reference failed.*E: no",
        ),
        (f"x = {'-' * 50_000}1\ndef reference(x):\n    return x", None, "MemoryError|RecursionError|nested"),
        ("def reference(x):\n    return x\ndef operands(x):\n    return x", PRODUCT, "must return"),
        ("def reference(x):\n    return x\ndef operands(x):\n    return x, x", PRODUCT, "don't multiply"),
    ],
)
def test_faults_in_the_reference_are_named(tmp_path, reference, tolerance, fault):
    with pytest.raises(UsageError, match=fault) as e:
        workload = user_workload(tmp_path, reference, tolerance=tolerance or "{ rtol = 1e-4 }")
        case = workload.size_case(64)
        with plan(workload, case) as p:
            p.verify(case, 0, {"y": np.zeros(64, np.float32)})
    assert "reference.py" in str(e.value)


SEGFAULT = "import ctypes; ctypes.string_at(0)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ENDLESS = "while True: pass"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (SEGFAULT, "its process was ended by SIGSEGV while {doing}; run it by itself to see why"),
        (KILLED, "its process was ended by SIGKILL while {doing}; run it by itself to see why"),
        (ENDLESS, "{doing} took more than 0.5 s and was stopped; does it end?"),
    ],
)
@pytest.mark.parametrize("loading", [True, False])
def test_a_reference_that_crashes_or_never_ends_is_told(tmp_path, monkeypatch, body, fault, loading):
    monkeypatch.setattr(remote, "LIMIT_S", 0.5 if body == ENDLESS else 60)
    text = f"{body}\ndef reference(x): return x" if loading else f"def reference(x):\n    {body}"
    workload = user_workload(tmp_path, text)
    case = workload.size_case(64)
    said = fault.format(doing="importing it" if loading else "computing case '64'")
    data = tmp_path / "data"
    with pytest.raises(UsageError, match=re.escape(said)) as e, CheckPlan(workload, [case], folder=data) as p:
        p.inputs(case, 0)
    assert str(tmp_path / "reference.py") in str(e.value) and "\n" not in str(e.value)
    assert not list(data.iterdir())
    sound = load_workload("softmax")
    with plan(sound, sound.size_case(64)) as p:  # nobody else is concerned
        assert p.inputs(sound.size_case(64), 0)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_workload_or_whoever_runs_it_says_how_long_its_reference_may_take(tmp_path, foreign):
    workload = user_workload(tmp_path, f"def reference(x):\n    {ENDLESS}")
    file = tmp_path / "workload.toml"
    file.write_text(file.read_text().replace('name = "user"', 'name = "user"\nreference_limit_s = 0.4'))
    if foreign:  # a stranger's file has no say in it
        (tmp_path / FOREIGN).touch()
        workload = load_workload(tmp_path)
        assert workload.trust is Trust.REMOTE and workload.reference_limit_s is None
        if not sandbox.record()["isolated"]:
            pytest.skip("no sandbox works here")
        workload = replace(workload, reference_limit_s=0.4)
    else:
        workload = load_workload(tmp_path)
    case = workload.size_case(64)
    with pytest.raises(WarpdeckError, match=r"0\.4 s") as e, plan(workload, case) as p:
        p.inputs(case, 0)
    assert "reference.py" in str(e.value)


def test_draws_that_are_asked_for_come_before_those_that_are_only_expected(tmp_path):
    log = tmp_path / "drawn"
    count = f"open({str(log)!r}, 'a').write('x')"
    text = f"import time\ndef reference(x):\n    time.sleep(0.05)\n    {count}\n    return x"
    workload = user_workload(tmp_path, text)
    cases = [Case(str(n), Role.CORRECTNESS, {"n": n}) for n in range(64, 74)]
    with plan(workload, *cases) as p:
        p.order([(case, k) for case in cases for k in range(POOL)])
        p.inputs(cases[-1], 3)
        assert len(log.read_text()) < 20  # of 40


def test_plans_are_computed_one_after_the_other_also_when_one_is_given_up(tmp_path):
    log = tmp_path / "drawn"
    begun: list[tuple[Workload, list[Case]]] = []
    with Plans() as plans:
        for name, body in (("a", ""), ("b", "raise ValueError"), ("c", KILLED), ("d", "")):
            folder = tmp_path / name
            folder.mkdir()
            write = f"open({str(log)!r}, 'a').write({name!r})"
            text = f"def reference(x):\n    {write}\n    {body}\n    return x * x"
            workload = user_workload(folder, text)
            begun.append((workload, [workload.size_case(64)]))
            plans.begin(workload, begun[-1][1], 1)
        workload, (case,) = begun[-1]
        deadline = time.monotonic() + 60
        while not log.exists() or log.read_text().count("d") < len(draws(workload, case)):
            assert time.monotonic() < deadline
        assert log.read_text() == "".join(sorted(log.read_text()))
        with pytest.raises(UsageError, match="SIGKILL"):
            plans.take(begun[2][0], begun[2][1], 1).require_strong()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04 no zip", b"\x80\x04]"])
def test_a_data_file_that_is_none_is_told(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npy: not a \.npy file of numbers"):
        arguments = argument("x", "in", data="file:x.npy") + argument("y", "out")
        workload = user_workload(tmp_path, "def reference(x):\n    return x", arguments=arguments)
        case = workload.size_case(64)
        with plan(workload, case) as p:
            p.verify(case, 0, {"y": np.zeros(64, np.float32)})


def test_what_a_reference_prints_is_no_data(tmp_path, capfd):
    workload = user_workload(
        tmp_path, "print('loaded')\ndef reference(x):\n    print('called')\n    return x"
    )
    case = workload.size_case(64)
    with plan(workload, case) as p:
        print("data")
        p.verify(case, 0, {"y": np.zeros(64, np.float32)})
    said = capfd.readouterr()
    assert said.out == "data\n" and {"loaded", "called"} <= set(said.err.split())


def test_more_arrays_than_files_may_be_open_at_first(tmp_path):
    """A workload of hundreds of cases: each mapped array holds a file open."""
    code = (
        "import resource, sys, pathlib, numpy as np\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "from warpdeck.core.check.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "kept = [store.keep('a', np.arange(3)) for _ in range(200)]\n"
        "assert all((k == [0, 1, 2]).all() for k in kept)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_operands_must_agree_with_the_reference(tmp_path):
    square = '["n", "n"]'
    workload = user_workload(
        tmp_path,
        "def reference(x):\n    return x @ x\ndef operands(x):\n    return x, x.T",
        arguments=argument("x", "in", shape=square) + argument("y", "out", shape=square),
        tolerance=PRODUCT,
    )
    case = workload.size_case(32)
    with plan(workload, case) as p, pytest.raises(UsageError, match="operands and reference disagree"):
        p.prepare(case)


def test_scalars_reach_the_reference_as_the_kernel_sees_them(tmp_path):
    arguments = (
        argument("x", "in")
        + argument("y", "inout")
        + '[[argument]]\nname = "a"\nkind = "scalar"\ndtype = "float32"\nvalue = "0.1 * n"\n'
    )
    workload = user_workload(
        tmp_path,
        "def reference(a, x, y):\n    assert a == np.float32(6.4)\n    return a * x + y",
        arguments=arguments,
    )
    case = workload.size_case(64)
    with plan(workload, case) as p:
        inputs = p.inputs(case, 2)
        assert set(inputs) == {"x", "y"}
        assert p.verify(case, 2, {"y": np.float32(6.4) * inputs["x"] + inputs["y"]}).status is Status.OK
        assert p.verify(case, 2, {"y": np.array(inputs["y"])}).status is Status.INCORRECT  # never written


# -- derived cases -----------------------------------------------------------------------------------


def test_derived_cases_vary_each_shape_parameter_alone():
    workload = load_workload("gemm")
    cases = derived_cases(workload, workload.spaces["classic"])
    assert len({c.name for c in cases}) == len(cases)
    for p in workload.shape_params:
        varied = [c.params for c in cases if c.name.startswith(f"derived {p}=")]
        assert len(varied) >= 3 and any(v[p] % 2 for v in varied)
        assert all(len({x for q, x in v.items() if q != p}) == 1 for v in varied)


def test_derived_cases_obey_restrictions_on_case_parameters(tmp_path):
    workload = user_workload(tmp_path, "def reference(x):\n    return x")
    space = SearchSpace("full", "kernel", {"B": (32, 64)}, ("n % B == 0", "n >= 300"))
    values = [c.params["n"] for c in derived_cases(workload, space)]
    assert len(values) >= 3 and all(n % 32 == 0 and n >= 300 for n in values)
    assert derived_cases(workload, SearchSpace("full", "kernel", {"B": (1,)}, ("n < 0",))) == []


def test_covering_configs_reach_every_value():
    space = SearchSpace("s", "v", {k: tuple(range(6)) for k in "abcd"}, ("a != b", "c + d < 8"))
    configs = space.configs()
    chosen = covering_configs(configs)
    assert len(chosen) < 20
    assert {(k, c[k]) for c in chosen for k in space.knobs} == {
        (k, c[k]) for c in configs for k in space.knobs
    }
    assert covering_configs(configs[:64]) == configs[:64]

"""References of strangers: the same verdicts as in this process, and no harm from hostile ones."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warpdeck.core import sandbox
from warpdeck.core.check import CheckPlan
from warpdeck.core.check import functions as functions_module
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Case, Role, Status, Trust
from warpdeck.core.sandbox import Layer, SandboxError
from warpdeck.core.sandbox.host_code import HostCode, HostCodeError
from warpdeck.kernels import load_workload

from .test_check import argument, user_workload

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sandbox.layers().best is Layer.NONE, reason="nothing isolates here"
)
CASE = Case("c", Role.CORRECTNESS, {"n": 1000})


@pytest.fixture(params=[Layer.BUBBLEWRAP, Layer.LANDLOCK])
def layer(request):
    found = getattr(sandbox.layers(), request.param)
    if not found.works:
        pytest.skip(f"{request.param} does not work here: {found.detail}")
    return request.param


def host_code(tmp_path, text, layer=None, **options):
    file = tmp_path / "code.py"
    file.write_text(text)
    return HostCode(file, layer=layer, **options)


@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
def test_bundled_references_say_the_same_in_the_sandbox(name):
    here = load_workload(name)
    cases = [*here.correctness_cases()[:3], here.size_case(128)]
    with (
        CheckPlan(here, cases, seed=7) as plain,
        CheckPlan(replace(here, trust=Trust.GENERATED), cases, seed=7) as boxed,
    ):
        for case in cases:
            for k in (0, 1, 4):
                a, b = plain.inputs(case, k), boxed.inputs(case, k)
                assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n], equal_nan=True) for n in a)
                expected: Any
                for output, expected in plain._draw(case, k).expected.items():
                    other: Any = boxed._draw(case, k).expected[output]
                    np.testing.assert_array_equal(other.values, expected.values)
                    np.testing.assert_array_equal(other.scale, expected.scale)


def test_a_generator_draws_the_same_in_the_sandbox(tmp_path):
    text = (
        "def reference(x): return 2 * x\n"
        "def make_inputs(case, rng):\n"
        "    plus = case.name == 'c' and case.role == 'correctness'\n"
        "    return {'x': rng.standard_normal(case.params['n']) + plus}"
    )
    arguments = argument("x", "in", data="python") + argument("y", "out")
    workload = user_workload(tmp_path, text, arguments=arguments)
    with (
        CheckPlan(workload, [CASE], seed=3) as plain,
        CheckPlan(replace(workload, trust=Trust.REMOTE), [CASE], seed=3) as boxed,
    ):
        assert np.array_equal(plain.inputs(CASE, 1)["x"], boxed.inputs(CASE, 1)["x"])
        right = {"y": 2 * boxed.inputs(CASE, 1)["x"]}
        assert boxed.verify(CASE, 1, right).status is Status.OK
        assert boxed.verify(CASE, 0, right).status is Status.INCORRECT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def reference(x): raise ValueError('no\\nway')",
            "reference failed on case 'c': ValueError: no way",
        ),
        ("def reference(x): return x[:5]", r"gives 'y' the shape \[5\]"),
        ("def reference(x): return {'z': x}", "reference returns z; the outputs are y"),
        ("def reference(z): return z", "reference asks for 'z'; there are x"),
        ("def other(x): return x", r"no function reference\(\*\*arguments\)"),
        ("import no_such_module", "reference.py:2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def reference(x) return x", "reference.py:2: SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said_in_one_line(tmp_path, text, message):
    workload = replace(user_workload(tmp_path, text), trust=Trust.GENERATED)
    with pytest.raises(UsageError, match=message) as found, CheckPlan(workload, [CASE], seed=1) as plan:
        plan.prepare(CASE)
    assert "\n" not in str(found.value)


def test_it_never_runs_here(tmp_path):
    """Import time, call time and what `vendor` would do: all of it leaves no trace outside."""
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w')\ndef reference(x): return x"
    workload = replace(user_workload(tmp_path, text), trust=Trust.GENERATED)
    with pytest.raises(UsageError, match=r"reference.py:2: (PermissionError|OSError|FileNotFoundError)"):
        CheckPlan(workload, [CASE], seed=1)
    text = "import os\ndef reference(x): return x + os.getpid()"
    workload = replace(user_workload(tmp_path, text), trust=Trust.REMOTE)
    functions = functions_module.functions_of(workload)
    try:
        assert functions.reference(x=np.zeros(1))[0] != os.getpid() and not trace.exists()
    finally:
        functions.close()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("while True: pass", Status.TIMEOUT, r"f\(…\) took more than 1 s"),
        ("import time; time.sleep(1000)", Status.TIMEOUT, r"f\(…\) took more than 1 s"),
        ("import os, signal; os.kill(os.getpid(), 9)", Status.RUNTIME_ERROR, "was ended by SIGKILL"),
        ("import os; os._exit(7)", Status.RUNTIME_ERROR, "ended with exit code 7"),
        ("import ctypes; ctypes.string_at(0)", Status.RUNTIME_ERROR, "SIGSEGV"),
        ("kept = []\n    while True: kept.append(open('/dev/zero','rb').read(8 << 20))", None, "MemoryError"),
        (
            "for n in range(10**6): open(str(n), 'wb').write(bytes(1 << 24))",
            Status.SANDBOX_ERROR,
            "it wrote more",
        ),
    ],
)
def test_a_hung_or_exploding_function_is_a_typed_failure(tmp_path, layer, monkeypatch, body, status, words):
    with host_code(tmp_path, f"def f():\n    {body}\ndef g(): return 1", layer, memory=1 << 30) as code:
        code._policy = replace(code._policy, disk=64 << 20)
        assert code.call("g") == 1
        start = time.monotonic()
        with pytest.raises(SandboxError if status else HostCodeError, match=words) as found:
            code.call("f", timeout_s=1 if status is Status.TIMEOUT else 60)
        assert getattr(found.value, "status", None) is status
        assert time.monotonic() - start < 30 and "\n" not in str(found.value)
        assert code.call("g") == 1  # a new process


def test_hostile_answers_are_refused(tmp_path, layer):
    """The file owns its process, so it can write any answer, name any file and claim any shape."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(8)))
    text = f"""
import json, os, sys
frame = sys._getframe()
while frame and 'answers' not in frame.f_locals:
    frame = frame.f_back
answers = frame.f_locals['answers']
def send(answer, size=None):
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    answers.write((len(data) if size is None else size).to_bytes(4, 'big') + data)
    answers.flush()
def array(file, shape, dtype='<f8'):
    send({{'result': {{'array': {{'file': file, 'dtype': dtype, 'shape': shape}}}}}})
def link():
    os.symlink({str(secret)!r}, '7.bin'); array('7.bin', [1])
def pipe():
    os.mkfifo('8.bin'); array('8.bin', [1])
def elsewhere(): array('../secret', [1])
def absolute(): array({str(secret)!r}, [1])
def pickled(): array('7.bin', [1], '|O')
def negative(): array('7.bin', [-1])
def huge(): array('7.bin', [1 << 40])
def short():
    open('9.bin', 'wb').write(b'1234'); array('9.bin', [1])
def text(): send(b'not json')
def endless(): send(b'', 1 << 31)
def deep(): send(b'[' * 100000)
def strange(): send({{'result': {{'object': 'os.system'}}}})
def missing(): send({{'something': 1}})
"""
    names = (
        *("link", "pipe", "elsewhere", "absolute", "pickled", "negative", "huge", "short"),
        *("text", "endless", "deep", "strange", "missing"),
    )
    with host_code(tmp_path, text, layer) as code:
        for name in names:
            with pytest.raises((UsageError, SandboxError)) as found:
                code.call(name)
            assert "\n" not in str(found.value)
            code._stop()  # the honest answer follows the forged one


def test_inputs_cannot_be_turned_into_links(tmp_path, layer):
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    text = f"""
import os
def f(x):
    found = []
    for folder, names, files in os.walk('..'):
        found.append(folder)
    for place in ('../in', os.path.abspath('../in')):
        try:
            os.symlink({str(victim)!r}, place + '/2.bin')
        except OSError as error:
            found.append(error.errno)
    return len([e for e in found if isinstance(e, int)])
"""
    with host_code(tmp_path, text, layer) as code:
        assert code.call("f", [np.ones(3)]) == 2
        assert code.call("f", [np.zeros(3)]) == 2
    assert victim.read_text() == "as it was"


def test_prints_do_not_disturb_and_do_not_block(tmp_path, layer):
    loud = "print('x' * (4 << 20)); sys.stderr.write('y' * (4 << 20))"
    text = f"import sys\ndef f(x):\n    {loud}\n    return x"
    with host_code(tmp_path, text, layer) as code:
        assert np.array_equal(code.call("f", [np.arange(4)]), np.arange(4))


def test_closing_leaves_no_process_and_no_folder(tmp_path, layer):
    code = host_code(tmp_path, "def f(): return 1", layer)
    assert code.call("f") == 1 and code._process is not None
    pid, folder = code._process.pid, code._folder
    code.close()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_closing_ends_a_call_that_hangs(tmp_path, layer):
    code = host_code(tmp_path, "def f():\n    open('up', 'w')\n    while True: pass", layer)
    failed = []

    def work():
        try:
            code.call("f")
        except SandboxError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (code._outputs / "up").exists():
        assert thread.is_alive(), failed
        time.sleep(0.01)
    start = time.monotonic()
    code.close()
    thread.join()
    assert len(failed) == 1 and time.monotonic() - start < 60
    with pytest.raises(SandboxError, match="closed"):
        code.call("f")


def test_calls_from_several_threads_take_turns(tmp_path):
    with host_code(tmp_path, "def f(x): return x + 1") as code:
        code.call("f", [np.zeros(1)])
        wrong = []

        def work(number):
            for _ in range(5):
                if code.call("f", [np.full(100, number)])[99] != number + 1:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    with host_code(tmp_path_factory.mktemp("echo"), "def f(x): return x, {'again': x}") as code:
        yield code


@given(
    hnp.arrays(
        st.one_of(hnp.floating_dtypes(sizes=(16, 32, 64)), hnp.integer_dtypes(), hnp.boolean_dtypes()),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_arrive_as_they_were(echo, array):
    first, second = echo.call("f", [array])
    for found in (first, second["again"]):
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


@given(st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20), st.booleans(), st.none()))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_arrive_as_they_were(echo, value):
    found = echo.call("f", [value])
    assert found == (value, {"again": value}) or value != value

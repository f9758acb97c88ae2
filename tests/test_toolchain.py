"""From a workload's candidate to a cubin, in both languages, without a GPU."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("numba.cuda", reason="needs the cuda extra")
pytest.importorskip("cuda.bindings.nvjitlink", reason="needs the cuda extra")

from warpdeck.core.model import Launch
from warpdeck.core.toolchain.abi import DESCRIPTOR, pack_arguments, signature
from warpdeck.core.toolchain.build import build
from warpdeck.core.toolchain.compiled import Compiled, CompileError, CompileRequest
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.toolchain.sources import source_files
from warpdeck.core.workload import Argument
from warpdeck.kernels import load_workload

AXPY_TOML = """
[workload]
name = "axpy"
description = "y = a*x + y"
entry = "axpy"
tolerance = { rtol = 1e-4, atol = 1e-5 }

[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "inout"

[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"

[[argument]]
name = "a"
kind = "scalar"
dtype = "float32"
value = "2"

[[argument]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "n"

[[case]]
name = "odd"
role = "correctness"
n = 1003

[launch]
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]

[knobs]
BLOCK = [64, 128, 256]
reg_cap = [0, 32, 64]

[sizes]
n = "size"
"""
AXPY_CU = """
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
AXPY_PY = """
from numba import cuda

def make(BLOCK):
    def axpy(y, x, a, n):
        i = cuda.blockIdx.x * BLOCK + cuda.threadIdx.x
        if i < n:
            y[i] += a * x[i]
    return axpy
"""
REFERENCE = "def reference(y, x, a, n):\n    return a * x + y\n"


@pytest.fixture(params=["numba", "cuda"])
def axpy(request, tmp_path):
    (tmp_path / "workload.toml").write_text(AXPY_TOML)
    (tmp_path / "reference.py").write_text(REFERENCE)
    name, text = ("kernel.cu", AXPY_CU) if request.param == "cuda" else ("kernel.py", AXPY_PY)
    (tmp_path / name).write_text(text)
    return load_workload(tmp_path)


def config(workload, **knobs):
    name = next(iter(workload.spaces))
    return workload.candidate(name, {**workload.spaces[name].first, **knobs})


def test_a_candidate_of_either_language(axpy):
    candidate, case = config(axpy, BLOCK=128), axpy.cases[0]
    compiled = build(candidate_request(axpy, candidate, (9, 0)))
    compiled = compiled.with_launches(axpy.launches(candidate, case))
    assert list(compiled.entries) == ["axpy"]
    assert "axpy" in compiled.entries["axpy"]
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.launches == (Launch("axpy", (8, 1, 1), (128, 1, 1)),)
    resources = compiled.resources
    assert 0 < resources.registers <= 32 and resources.spill_bytes == resources.shared_bytes == 0
    assert resources.occupancy == 1.0 and resources.limiter == "warps"
    assert resources.code_hash == compiled.code_hash and resources.code_bytes > 0
    assert compiled.max_threads == 1024 and compiled.warnings == ()


def test_knobs_change_the_code_and_idle_caps_don_t(axpy):
    def code(**knobs):
        return build(candidate_request(axpy, config(axpy, **knobs), (9, 0))).code_hash

    assert code(BLOCK=64) == code(BLOCK=64, reg_cap=64) == code(BLOCK=64)
    assert code(BLOCK=64) != code(BLOCK=128)


@pytest.mark.parametrize("cc", [(7, 5), (8, 9), (10, 0), (12, 0)])
def test_other_architectures(axpy, cc):
    compiled = build(candidate_request(axpy, config(axpy), cc))
    assert compiled.cc == cc and compiled.kernels["axpy"].registers > 0


def test_an_architecture_without_known_limits_has_no_occupancy(axpy):
    candidate, case = config(axpy), axpy.cases[0]
    compiled = build(candidate_request(axpy, candidate, (9, 0)))
    compiled = replace(compiled.with_launches(axpy.launches(candidate, case)), cc=(99, 0))
    assert compiled.resources.registers > 0
    assert compiled.resources.occupancy is None and compiled.resources.limiter is None
    assert compiled.max_threads == 1024


def test_ptx_on_request(axpy):
    compiled = build(candidate_request(axpy, config(axpy), (9, 0), ptx=True))
    assert compiled.ptx is not None
    assert ".target sm_90" in compiled.ptx and "axpy" in compiled.ptx


def test_parameters_are_those_of_the_cubin(axpy):
    variant = next(iter(axpy.variants.values()))
    info = build(candidate_request(axpy, config(axpy), (9, 0))).kernels["axpy"]
    flat = signature(variant.language, axpy.arguments, {"y": 1, "x": 1})
    sizes = {"float32": 4, "int32": 4}
    assert info.parameters == tuple(sizes.get(kind, 8) for _, kind in flat)
    packed, values = pack_arguments(
        variant.language,
        axpy.arguments,
        {"y": 1 << 33, "x": 1 << 34},
        {"y": (7,), "x": (7,)},
        {"a": 2, "n": 7},
    )
    assert tuple(ctypes.sizeof(value) for value in values) == info.parameters
    assert list(packed) == [ctypes.addressof(value) for value in values]


@pytest.mark.parametrize("language", ["cuda", "numba"])
def test_a_traced_kernel_gets_the_descriptor_after_its_arguments(axpy, language):
    given = ({"y": 1, "x": 2}, {"y": (7,), "x": (7,)}, {"a": 2, "n": 7})
    _, plain = pack_arguments(language, axpy.arguments, *given)
    _, traced = pack_arguments(language, axpy.arguments, *given, trace=(1 << 63, 2, 3, 4))
    more = traced[len(plain) :]
    assert tuple(ctypes.sizeof(value) for value in more) == DESCRIPTOR[language]
    assert b"".join(bytes(value) for value in more) == struct.pack("<4Q", 1 << 63, 2, 3, 4)


# -- Numba ------------------------------------------------------------------------------------------


def numba(folder: Path, text: str, *, entries=("k",), **more) -> Compiled:
    file = folder / "kernel.py"
    file.write_text("from numba import cuda, float32\n" + text)
    parameters = more.pop("parameters", (("float32", 1), ("float32", 1), ("int32", -1)))
    return build(CompileRequest("numba", str(file), entries, (9, 0), parameters, **more))


def make(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"def make():\n    def k(x, y, n):\n{lines}    return k\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (make("y[0] = x[0]\ny[1] = missing(n)"), 5, "k: NameError: name 'missing' is not defined"),
        (make("y[0] = x[0] + 'a'"), 4, "k: no implementation of add(float32, Literal[str](a))"),
        (make("t = cuda.shared.array(n, float32)\ny[0] = t[0]"), 4, "must be constants"),
        (make("y[0] = x.colour"), 4, "Unknown attribute 'colour' of type array(float32, 1d, C)"),
        (make("y[0, 1] = 1"), 4, "no implementation of setitem("),
        (make("return 3"), 4, "No conversion from Literal[int](3) to none"),
        (
            "@cuda.jit(device=True)\ndef f(a):\n    return a.colour\n" + make("y[0] = f(x)"),
            4,
            "Unknown attribute 'colour'",
        ),
        ("def make():\n    raise ValueError('tile must divide n')\n", 3, "ValueError: tile must divide n"),
        ("import no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def make(:\n", 2, "invalid syntax"),
        ("raise SystemExit(3)\n", 2, "SystemExit: 3"),
    ],
)
def test_errors_are_the_compiler_s_with_the_user_s_line(tmp_path, text, line, message):
    with pytest.raises(CompileError) as caught:
        numba(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'kernel.py'}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("def make():\n    return None\n", {}, "there is no kernel 'k'"),
        ("def make():\n    return 3\n", {}, "a Python function is needed, not int"),
        (make("y[0] = 1"), {"knobs": {"tile": 3}}, "make() takes no knob 'tile'"),
        ("def k(x, y, n):\n    y[0] = 1\n", {"knobs": {"tile": 3}}, "no make(tile)"),
        (make("y[0] = 1"), {"entries": ("k", "finish")}, "return a dict"),
        (make("y[0] = 1"), {"parameters": (("float32", 1),)}, "1 argument type"),
        (
            make("t = cuda.shared.array(100000, float32)\nt[n] = x[n]\ncuda.syncthreads()\ny[0] = t[1]"),
            {},
            "'k' uses too much shared data",
        ),
    ],
)
def test_other_numba_errors(tmp_path, text, more, message):
    with pytest.raises(CompileError) as caught:
        numba(tmp_path, text, **more)
    assert message in str(caught.value) and str(tmp_path / "kernel.py") in str(caught.value)
    assert "_ZN" not in str(caught.value)


def test_device_functions_compile_without_a_gpu(tmp_path):
    text = "@cuda.jit(device=True)\ndef twice(v):\n    return v * 2\n" + make("y[0] = twice(x[0])")
    assert numba(tmp_path, text).kernels["k"].registers > 0


def test_several_kernels_in_one_module(tmp_path):
    text = """
def make(scale):
    def first(x, y, n):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] * scale
    def second(x, y, n):
        s = cuda.shared.array(64, float32)
        s[cuda.threadIdx.x] = y[cuda.threadIdx.x]
        cuda.syncthreads()
        y[0] = s[n]
    return {"first": first, "second": second}
"""
    compiled = numba(tmp_path, text, entries=("first", "second"), knobs={"scale": 3})
    assert compiled.kernels["first"].shared_bytes == 0
    assert compiled.kernels["second"].shared_bytes == 256
    assert len(set(compiled.entries.values())) == 2
    launches = (Launch("second", (1, 1, 1), (64, 1, 1)), Launch("first", (1, 1, 1), (64, 1, 1)))
    assert compiled.with_launches(launches).resources.shared_bytes == 256
    with pytest.raises(CompileError, match="no kernel 'third'"):
        compiled.with_launches([Launch("third", (1, 1, 1), (64, 1, 1))])


def test_fast_math_is_a_knob_of_the_compiler(tmp_path):
    text = make("y[0] = x[0] / x[1]")
    exact, fast = (numba(tmp_path, text, knobs={"fastmath": on}) for on in (0, 1))
    assert fast.kernels["k"].code_bytes < exact.kernels["k"].code_bytes
    taken = text.replace("def make():", "def make(fastmath):\n    assert fastmath in (0, 1)")
    assert numba(tmp_path, taken, knobs={"fastmath": 1}).code_hash == fast.code_hash


def test_options_of_cuda_jit_are_obeyed(tmp_path):
    text = "@cuda.jit(launch_bounds=128)\ndef k(x, y, n):\n    y[0] = x[0] / x[1]\n"
    compiled = numba(tmp_path, text, reg_cap=32)
    assert compiled.max_threads == 128
    assert compiled.warnings[0].startswith("reg_cap=32 has no effect on 'k'")
    with pytest.raises(CompileError, match="reg_cap"):
        numba(tmp_path, text.replace("launch_bounds=128", "max_registers=32"))


def test_an_edited_sibling_is_seen(tmp_path):
    text = "from helper import SCALE\n" + make("y[0] = x[0] * SCALE")
    hashes = []
    for scale in (2, 3, 2):
        (tmp_path / "helper.py").write_text(f"SCALE = {scale}\n")
        hashes.append(numba(tmp_path, text).code_hash)
    assert hashes[0] == hashes[2] != hashes[1]


def test_siblings_of_the_same_name_in_two_folders(tmp_path):
    text = "from helper import SCALE\n" + make("y[0] = x[0] * SCALE")
    hashes = []
    for scale in (2, 3):
        folder = tmp_path / str(scale)
        folder.mkdir()
        (folder / "helper.py").write_text(f"SCALE = {scale}\n")
        hashes.append(numba(folder, text).code_hash)
    assert hashes[0] != hashes[1]


# -- CUDA C++ ---------------------------------------------------------------------------------------


def cuda(text: str, *, entries=("k",), **more) -> Compiled:
    return build(CompileRequest("cuda", more.pop("file", "k.cu"), entries, (9, 0), text=text, **more))


BODY = 'extern "C" __global__ void k(float *a) { a[0] = 1; }'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BODY.replace("1;", "foo(1);"), 'k.cu:1: identifier "foo" is undefined'),
        ("\n#include <stdint.h>\n" + BODY, "k.cu:2: cannot open source file"),
        ("#include <stdint.h>\n" + BODY, "use <cuda/std/cstdint>"),
        ('static_assert(N % 4 == 0, "N must be a multiple of 4");' + BODY, "N must be a multiple of 4"),
        ("__device__ int x;", "there is no kernel 'k'"),
        (BODY.replace("void k", "void other"), "there is no kernel 'k'; it has other"),
        ("namespace a { __global__ void k() {} } __global__ void k(int) {}", "several kernels"),
        (
            BODY.replace("a[0] = 1;", "__shared__ float s[99999]; s[int(a[1])] = 1; a[0] = s[2];"),
            "too much shared data",
        ),
    ],
)
def test_cuda_errors(text, message):
    with pytest.raises(CompileError) as caught:
        cuda(text, knobs={"N": 3})
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/passwd"',
        '#include "../secret.h"',
        "#include <cuda/../../../../etc/passwd>",
        '#define F "/etc/passwd"\n#include F',
        '#inc\\\nlude "/etc/passwd"',
        '#/**/include/**/"/etc/passwd"',
        '/* */ # /* x\n */ include /* y */ "/etc/passwd"',
        '%:include "/etc/passwd"',
        'const char *s = R"(" /*)";\n#include "/etc/passwd"\nconst char *t = R"(*/")";',
        '#embed "/etc/passwd"',
    ],
)
def test_no_file_of_the_machine_can_be_included(text):
    with pytest.raises(CompileError, match="header"):
        cuda(text + "\n" + BODY)


def test_includes_in_comments_are_harmless():
    cuda("// see #include below\n/* a\n * #include X\n b */ #include <cuda_fp16.h>\n" + BODY)


def test_own_folder_and_toolkit_headers(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.h").write_text("#define B 2\n")
    (tmp_path / "near.h").write_text('#include "sub/deep.h"\n#define A 1\n')
    file = tmp_path / "k.cu"
    file.write_text('#include <cuda/std/cstdint>\n#include "near.h"\n' + BODY.replace("1;", "A + B;"))
    request = CompileRequest("cuda", str(file), ("k",), (9, 0))
    before = build(request).code_hash
    (tmp_path / "sub" / "deep.h").write_text("#define B 3 \n")
    assert build(request).code_hash != before
    (tmp_path / "sub" / "deep.h").unlink()
    (tmp_path / "sub" / "deep.h").symlink_to("/etc/hostname")
    with pytest.raises(CompileError, match="leads out of"):
        build(request)


def test_mangled_names_and_templates():
    source = "namespace ns { __global__ void k() {} }"
    assert cuda(source).entries == {"k": "_ZN2ns1kEv"}
    source = "template <int N> __global__ void k(float *a) { a[0] = N; }"
    compiled = cuda(source, entries=("k<3>", "k<M>"), knobs={"M": 4})
    assert compiled.entries == {"k<3>": "_Z1kILi3EEvPf", "k<M>": "_Z1kILi4EEvPf"}


def test_truth_values_become_numbers():
    assert cuda(BODY.replace("1;", "ON ? 5 : 6;"), knobs={"ON": True}).kernels["k"].registers > 0


@pytest.mark.parametrize(
    ("attribute", "cap", "warning"),
    [
        ("", 32, None),
        ("__launch_bounds__(128)", 0, None),
        ("__launch_bounds__(128)", 32, "obeys its __launch_bounds__ (128 threads)"),
        ("__maxnreg__(48)", 32, "obeys its __maxnreg__(48)"),
        ("", 16, "too low for this architecture; the compiler uses 24"),
    ],
)
def test_a_register_cap_without_effect_is_told(attribute, cap, warning):
    compiled = cuda(BODY.replace("void k", f"void {attribute} k"), reg_cap=cap)
    assert (warning is None) == (compiled.warnings == ())
    assert warning is None or warning in compiled.warnings[0]


def test_parameters_that_differ_from_the_workload_s():
    with pytest.raises(
        CompileError, match="its parameters take 8 bytes, but the workload's arguments 8, 4 bytes"
    ):
        cuda(BODY, parameters=(("float32", 1), ("int32", -1)))


def test_an_architecture_nobody_knows():
    with pytest.raises(CompileError, match="not sm_50"):
        build(CompileRequest("cuda", "k.cu", ("k",), (5, 0), text=BODY))


def test_a_source_that_changed_meanwhile(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text(BODY)
    with pytest.raises(CompileError, match="changed while it was being compiled"):
        build(CompileRequest("cuda", str(file), ("k",), (9, 0)), {str(file): "another digest"})


def test_only_a_user_s_own_modules_count_as_sources(tmp_path, monkeypatch):
    """Installed ones count by their versions, wherever they lie: reading numba's takes seconds."""
    folders = {name: tmp_path / name for name in ("own", "other/dist-packages", "target")}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / f"{name.split('/')[0]}_module.py").write_text("import numpy, struct\n")
        monkeypatch.syspath_prepend(folder)
    (folders["target"] / "target_module-1.0.dist-info").mkdir()
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import numba, beside\nfrom own_module import x\nimport other_module, target_module\n")
    beside = tmp_path / "beside.py"
    beside.write_text("")
    request = CompileRequest("numba", str(kernel), ("k",), (9, 0))
    assert set(source_files(request)) == {str(kernel), str(beside), str(folders["own"] / "own_module.py")}


# -- launch arguments -------------------------------------------------------------------------------


class TestPackArguments:
    MATRIX = Argument("m", "buffer", "float64", ("r", "c"))
    SCALAR = Argument("s", "scalar", "int32", value="r")

    def test_numba_flattens_arrays(self):
        packed, values = pack_arguments(
            "numba", [self.MATRIX, self.SCALAR], {"m": 1 << 40}, {"m": (3, 5)}, {"s": -2}
        )
        assert [value.value for value in values] == [None, None, 15, 8, 1 << 40, 3, 5, 40, 8, -2]
        assert len(packed) == len(values)
        names = [name for name, _ in signature("numba", [self.MATRIX, self.SCALAR], {"m": 2})]
        assert names[4:6] == ["m.data", "m.shape[0]"] and len(names) == len(values)

    def test_cuda_takes_pointers(self):
        _, values = pack_arguments("cuda", [self.MATRIX, self.SCALAR], {"m": 7}, {}, {"s": 3})
        assert [value.value for value in values] == [7, 3]

    def test_a_scalar_may_be_for_one_language(self):
        size = Argument("n", "scalar", "int64", value="r", language="cuda")
        for language, count in (("cuda", 2), ("numba", 9)):
            arguments = [self.MATRIX, size]
            _, values = pack_arguments(language, arguments, {"m": 7}, {"m": (3, 5)}, {"n": 3})
            assert len(values) == len(signature(language, arguments, {"m": 2})) == count

    @pytest.mark.parametrize(
        ("dtype", "value"), [("int32", 1 << 31), ("int8", 128), ("uint32", -1), ("complex64", 1)]
    )
    def test_scalars_must_fit(self, dtype, value):
        with pytest.raises(ValueError, match="s"):
            pack_arguments("cuda", [Argument("s", "scalar", dtype)], {}, {}, {"s": value})

    def test_unknown_language(self):
        with pytest.raises(ValueError, match="unknown language"):
            pack_arguments("ptx", [], {}, {}, {})


def test_importing_the_toolchain_imports_no_compiler():
    code = (
        "import sys, warpdeck.core.toolchain, warpdeck.core.toolchain.abi;"
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'llvmlite', 'cuda', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

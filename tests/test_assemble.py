"""Workloads put together from parts: signatures, derived parts, origins, and what is wrong with parts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.check import CheckPlan
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Role, Trust
from warpdeck.core.tensors import uses_torch
from warpdeck.kernels import derive, load_workload
from warpdeck.kernels.assemble import assemble, derived, missing, require_describable
from warpdeck.kernels.parts import DERIVED, GIVEN, Parts, read_parts
from warpdeck.kernels.scaffold import new_workload
from warpdeck.kernels.signature import TYPES, kernels_in, parse_signature, signature_of

GEMM = "void gemm(const float A[m][k], const float B[k][n], float C[m][n], int m, int n, int k)"
AXPY_CU = """
// y = a*x + y  /* not: extern "C" __global__ void wrong(int n) */
#define TYPE(x) __global__ void macro(x)
static __device__ float twice(float v) { return 2 * v; }
extern "C" __global__ void __launch_bounds__(256)
axpy(const float *__restrict__ x, float *y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
AXPY_PY = "def reference(x, y, a, n):\n    return a * x + y\n"
NAMES = st.from_regex(r"[a-z]{1,5}", fullmatch=True).map(lambda s: f"v_{s}")


def written(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


# -- signatures ------------------------------------------------------------------------------------------


def test_a_prototype_with_extents_is_a_whole_signature() -> None:
    found = parse_signature(GEMM)
    assert found.entry == "gemm" and found.shapeless == () and found.params == ("m", "k", "n")
    a, _, c, m, *_ = found.arguments
    assert (a.kind, a.dtype, a.shape, a.direction) == ("buffer", "float32", ("m", "k"), "in")
    assert (c.shape, c.direction) == (("m", "n"), "out")
    assert (m.kind, m.dtype, m.value) == ("scalar", "int32", "m")


def test_qualifiers_types_and_values() -> None:
    found = parse_signature(
        'extern "C" __global__ void f(in unsigned long long *__restrict__ x /* [n] */,\n'
        " inout __half y[2*n + 1], workspace double w[ceil_div(n, 32)], // scratch\n"
        " float alpha = 1.5, size_t count = n*2, uint32_t z);"
    )
    x, y, w, alpha, count, z = found.arguments
    assert (x.dtype, x.shape, x.direction) == ("uint64", (), "in")
    assert (y.dtype, y.shape, y.direction) == ("float16", ("2*n + 1",), "inout")
    assert (w.kind, w.dtype, w.shape, w.data) == ("workspace", "float64", ("ceil_div(n, 32)",), "zeros")
    assert (alpha.value, count.value, z.value) == ("1.5", "n*2", "z")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["const ", "out ", "inout ", "workspace "]),
            st.sampled_from(sorted(set(TYPES) - {"struct"})),
            st.lists(NAMES, min_size=0, max_size=3),
        ),
        max_size=5,
    ),
    st.lists(st.tuples(st.sampled_from(["int", "size_t", "long long"]), NAMES), max_size=3),
)
def test_the_text_of_a_signature_says_the_same(buffers: list[Any], scalars: list[Any]) -> None:
    parts = ["out float *o"]
    parts += [
        f"{mark}{kind} {'' if shape else '*'}b{i}{''.join(f'[{s}]' for s in shape)}"
        for i, (mark, kind, shape) in enumerate(buffers)
    ]
    parts += [f"{kind} s{i} = {value}" for i, (kind, value) in enumerate(scalars)]
    found = parse_signature(f"void f({', '.join(parts)})")
    assert parse_signature(found.text()) == found
    assert len(found.arguments) == len(parts)


def test_json_says_what_a_prototype_says() -> None:
    rows = [
        {"name": "A", "dtype": "float32", "shape": ["m", "k"]},
        {"name": "B", "dtype": "float", "shape": ["k", "n"]},
        {"name": "C", "dtype": "float32", "shape": ["m", "n"], "direction": "out"},
        *({"name": p, "dtype": "int32"} for p in "mnk"),
    ]
    assert parse_signature(json.dumps({"name": "gemm", "arguments": rows})) == parse_signature(GEMM)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gemm", "not a prototype"),
        ("void f(float *x", "isn't closed"),
        ("void f(const float x[n])", "writes nothing"),
        ("void f(float x[n], float x[n])", "occurs twice"),
        ("void f(float **x)", "pointer to pointers"),
        ("void f(vec3 *x)", "no argument can have the type"),
        ("void f(float x[])", "empty []"),
        ("void f(float *x, out int n)", "scalar can't be out"),
        ("void f(float x[n] = 3)", "has no value"),
        ("void f(float x[__import__('os')])", "parameter 'x'"),
        ("void f(float x[a][b][c][d][e])", "at most 4"),
        ("void f(float *x, char c)", "isn't one of"),
        ("void f(float)", "a type and a name"),
        ("{", "not valid JSON"),
        ('{"a":' * 100_000, "not valid JSON"),
        ('{"name": "f"}', "write {"),
        ('{"name": "f", "arguments": [{"name": "x", "typ": 1}]}', "unknown key 'typ'"),
        ('{"name": "f", "arguments": [{"name": "x", "dtype": "complex64"}]}', "isn't one of"),
        ('{"name": "f", "arguments": [3]}', "an object with a name"),
    ],
)
def test_a_bad_signature_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"^here: ") as caught:
        parse_signature(text, "here")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@given(st.text(alphabet='void f(const float *x[n], int)=;{}"[]/*\n', max_size=60))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    try:
        found = parse_signature(text)
    except UsageError:
        return
    assert any(a.is_output for a in found.arguments)


def test_a_kernel_tells_its_own_signature() -> None:
    assert kernels_in(AXPY_CU) == ("axpy",)
    found = signature_of(AXPY_CU, "k.cu")
    assert found.text() == "void axpy(const float *x, out float *y, float a, int n)"
    with pytest.raises(UsageError, match="no kernel 'saxpy'; it has axpy"):
        signature_of(AXPY_CU, "k.cu", "saxpy")
    with pytest.raises(UsageError, match="no kernel in it"):
        signature_of("int main() {}", "k.cu")


# -- what follows from what ------------------------------------------------------------------------------


def test_a_kernel_and_a_reference_are_enough(tmp_path: Path) -> None:
    parts = Parts(kernel=AXPY_CU, reference=AXPY_PY, values={"a": "2"})
    workload = assemble(parts, tmp_path / "w")
    y = workload.argument("y")
    assert (y.direction, y.shape) == ("inout", ("n",))  # the reference takes it
    assert workload.name == "axpy" and workload.trust is Trust.OWN
    assert workload.origins == {
        "signature": DERIVED,
        "reference": GIVEN,
        "kernel": GIVEN,
        "cases": DERIVED,
        "launch": DERIVED,
    }
    (launch,) = workload.launches(workload.baseline("ladder"), workload.size_case(1000))
    assert (launch.entry, launch.grid, launch.block) == ("axpy", (4, 1, 1), (256, 1, 1))
    case = workload.correctness_cases()[0]
    with CheckPlan(workload, [case], seed=1) as plan:  # the reference works on what the signature declares
        data = plan.inputs(case, 0)
        right = (2 * data["x"].astype(np.float64) + data["y"]).astype(np.float32)
        assert plan.verify(case, 0, {"y": right}).status == "ok"
        assert plan.verify(case, 0, {"y": data["y"]}).status == "incorrect"


@pytest.mark.parametrize(
    ("body", "shape", "grid", "block"),
    [
        ("int i = blockIdx.x * blockDim.x + threadIdx.x;", ("n",), ["ceil_div(n, 256)"], [256]),
        ("int i = blockDim.x * blockIdx.x + threadIdx.x;", ("m", "n"), ["ceil_div(m * n, 256)"], [256]),
        ("int i = blockIdx.x * 128 + threadIdx.x;", ("n",), ["ceil_div(n, 128)"], [128]),
        ("size_t i = (size_t)blockIdx.x * T + threadIdx.x;", ("n",), ["ceil_div(n, 64)"], [64]),
        ("int row = blockIdx.x;", ("m", "n"), ["m"], [256]),
        (
            "int j = blockIdx.x * T + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;",
            ("m", "n"),
            ["ceil_div(n, 64)", "ceil_div(m, 8)"],
            [64, 8],
        ),
        (
            "int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;",
            ("m", "n"),
            ["ceil_div(n, 16)", "m"],
            [16, 1],
        ),
    ],
)
def test_the_launch_follows_from_how_the_kernel_indexes(
    body: str, shape: tuple[str, ...], grid: list[str], block: list[int]
) -> None:
    text = "".join(f"[{s}]" for s in shape)
    output = parse_signature(f"void f(float C{text}, int n)").arguments[0]
    source = f"#define T 64\n/* blockIdx.z */ __global__ void f() {{ {body} }}"
    assert derive.launch(source, "f", output) == {"grid": grid, "block": block}


def test_a_launch_in_three_dimensions_must_be_given() -> None:
    output = parse_signature("void f(float C[m][n])").arguments[0]
    with pytest.raises(UsageError, match="can't be derived"):
        derive.launch("__global__ void f() { int z = blockIdx.z; }", "f", output)


def test_what_is_missing_is_named() -> None:
    assert missing(derived(Parts(description="sum of rows"))) == ("signature", "reference", "kernel")
    assert missing(derived(Parts(signature="void f(const float *x, float *y)"))) == (
        *("shapes", "reference", "kernel"),
    )
    assert missing(derived(Parts(signature=GEMM, reference="def reference(A, B): return A @ B"))) == (
        "kernel",
    )
    axpy = derived(Parts(kernel=AXPY_CU, reference=AXPY_PY))
    assert missing(axpy) == ("values",)
    with pytest.raises(UsageError, match="no values: give a value in the signature"):
        assemble(axpy, Path("/nowhere"))
    with pytest.raises(UsageError, match="what shall the kernel compute"):
        require_describable(Parts(signature=GEMM))


# -- files -----------------------------------------------------------------------------------------------


def test_parts_come_from_files_and_flags_win(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(8, np.float32))
    written(tmp_path, "axpy.cu", AXPY_CU)
    written(tmp_path, "axpy.py", AXPY_PY)
    cases = {
        "cases": [
            {"name": "big", "role": "performance", "n": 4096},
            {"name": "eight", "params": {"n": 8}},
        ],
        "shapes": {"x": ["n"], "y": "n"},
        "values": {"a": 2},
        "launch": {"grid": ["ceil_div(n, BLOCK)"], "block": ["BLOCK"]},
        "knobs": {"BLOCK": [128, 256]},
        "tolerance": {"rtol": 1e-5},
    }
    config = {
        "description": 'y = "a*x" + y\non n',
        "reference": "axpy.py",
        "initial_kernel": "axpy.cu",
        "input_cases": cases,
        "name": "my axpy",
    }
    parts = read_parts(config=config, config_file=written(tmp_path, "c.json", config))
    assert Parts.from_json(json.loads(json.dumps(parts.to_json()))) == parts
    workload = assemble(parts, tmp_path / "w")
    assert (workload.name, workload.description) == ("my-axpy", 'y = "a*x" + y on n')
    assert [(c.name, c.role) for c in workload.cases] == [
        ("big", Role.PERFORMANCE),
        ("eight", Role.CORRECTNESS),
    ]
    assert workload.space("ladder").knobs == {"BLOCK": (128, 256)}
    assert workload.tolerance.rtol == 1e-5
    other = read_parts(
        config=config,
        config_file=tmp_path / "c.json",
        description="other",
        input_cases=written(tmp_path, "i.json", {**cases, "data": {"x": "file:x.npy"}, "cases": []}),
    )
    assert other.description == "other" and other.data == {"x": f"file:{tmp_path / 'x.npy'}"}


def test_data_files_are_copied_into_the_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    cases = {"cases": [{"name": "eight", "n": 8}], "data": {"x": "file:x.npy"}, "values": {"a": "2"}}
    parts = read_parts(
        initial_kernel=written(tmp_path, "k.cu", AXPY_CU),
        reference=written(tmp_path, "r.py", AXPY_PY),
        input_cases=written(tmp_path, "i.json", cases),
    )
    workload = assemble(parts, tmp_path / "w")
    (tmp_path / "x.npy").unlink()
    case = workload.cases[0]
    with CheckPlan(workload, [case], seed=1) as plan:
        assert plan.inputs(case, 0)["x"].tolist() == list(range(8))
    assert (
        assemble(parts_again(workload.folder, parts), tmp_path / "w").argument("x").data == "file:data/x.npy"
    )


def parts_again(folder: Path, parts: Parts) -> Parts:
    """As a session's folder has them: the data lie there already."""
    return Parts.from_json({**parts.to_json(), "data": {"x": f"file:{folder / 'data/x.npy'}"}})


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("input_cases", "{", "not valid JSON"),
        ("input_cases", "[" * 100_000, "not valid JSON"),
        ("input_cases", "3", 'write {"cases"'),
        ("input_cases", '{"case": []}', "unknown key 'case'"),
        ("input_cases", '{"cases": {}}', "cases must be a list"),
        ("input_cases", '{"cases": [{"name": 3}]}', "name must be a text"),
        ("input_cases", '{"data": {"x": "gaussian"}}', "isn't one of"),
        ("input_cases", '{"data": {"x": "file:none.npy"}}', "there is no file"),
        ("input_cases", '{"shapes": {"x": [1.5]}}', "list of extents"),
        ("input_cases", '{"launch": 3}', "launch must be"),
        ("signature", "void f(", "isn't closed"),
        ("reference", " \n", "is empty"),
        ("initial_kernel", "int x;", "no kernel in it"),
    ],
)
def test_a_bad_file_is_one_line(name: str, content: str, words: str, tmp_path: Path) -> None:
    suffix = {"reference": ".py", "initial_kernel": ".cu"}.get(name, ".json")
    file = written(tmp_path, f"part{suffix}", content)
    with pytest.raises(UsageError) as caught:
        read_parts(**{name: file})  # pyright: ignore[reportArgumentType]
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("reference", "none.py", "can't be read: No such file"),
        ("reference", "kernel.cu", "a CUDA kernel is an --initial-kernel"),
        ("initial_kernel", "x.txt", "give a .cu or .cuh file"),
        ("signature", ".", "can't be read"),
        ("signature", "/dev/zero", "larger than 4 MiB"),  # what has no size is read no further than that
    ],
)
def test_a_file_that_is_not_there_or_the_wrong_kind(name: str, file: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} ") as caught:
        read_parts(**{name: tmp_path / file})  # pyright: ignore[reportArgumentType]
    assert words in str(caught.value)


def test_parts_that_contradict_each_other(tmp_path: Path) -> None:
    base = Parts(kernel=AXPY_CU, reference=AXPY_PY, values={"a": "2"})
    with pytest.raises(UsageError, match="no parameter 'z'"):
        derived(Parts(**{**base.__dict__, "values": {"z": "1"}}))
    two = AXPY_CU + AXPY_CU.replace("axpy(", "other(")
    with pytest.raises(UsageError, match="none of them 'saxpy'"):
        derived(Parts(kernel=two, signature="void saxpy(float x[n])", reference=AXPY_PY))
    with pytest.raises(UsageError, match=r"parameter x shape: .*known: m"):
        assemble(Parts(**{**base.__dict__, "cases": ({"name": "odd", "m": 3},)}), tmp_path / "w")


# -- references in PyTorch ------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["import torch", "from torch import softmax\nimport torch"])
def test_a_reference_in_pytorch_gets_float64_tensors(head: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    body = "assert x.dtype == torch.float64 and x.device.type == 'cpu'\n    return torch.add(y, x, alpha=a)\n"
    reference = f"{head}\n\n\ndef reference(x, y, a, n):\n    {body}"
    for origins in ({}, {"reference": "generated by m1"}):  # in this process, and in the sandbox
        parts = Parts(kernel=AXPY_CU, reference=reference, values={"a": "2"}, origins=origins)
        workload = assemble(parts, tmp_path / f"w{len(origins)}")
        case = workload.correctness_cases()[0]
        with CheckPlan(workload, [case], seed=1) as plan:
            data = plan.inputs(case, 0)
            right = (2 * data["x"].astype(np.float64) + data["y"]).astype(np.float32)
            assert plan.verify(case, 0, {"y": right}).status == "ok"
            assert plan.verify(case, 0, {"y": right + 1}).status == "incorrect"


def test_torch_inside_a_function_is_the_vendors() -> None:
    assert not uses_torch("def vendor(x):\n    import torch\n    return torch.sum(x)\n")
    assert not uses_torch("import torchlike, numpy.torch\n")
    assert uses_torch("from torch.nn import functional") and not uses_torch("def (")


# -- origins and templates -------------------------------------------------------------------------------


def test_a_generated_reference_is_never_trusted(tmp_path: Path) -> None:
    base = Parts(kernel=AXPY_CU, reference=AXPY_PY, values={"a": "2"})
    by = {"kernel": "generated by m1", "reference": "generated by m1"}
    workload = assemble(Parts(**{**base.__dict__, "origins": by, "checks": ("agreed", "linear")}), tmp_path)
    assert workload.trust is Trust.GENERATED and workload.generated_reference == "generated by m1"
    assert workload.trust_of("initial") is Trust.GENERATED
    assert workload.origins["checks"] == "agreed; linear"
    own = assemble(Parts(**{**base.__dict__, "origins": {"kernel": "generated by m1"}}), tmp_path)
    assert own.trust is Trust.OWN and own.trust_of("initial") is Trust.GENERATED
    assert own.generated_reference is None


@pytest.mark.parametrize("language", ["cuda", "numba"])
def test_the_template_explains_every_key_and_works(language: str, tmp_path: Path) -> None:
    new_workload(tmp_path / "mine", language)
    text = (tmp_path / "mine/workload.toml").read_text()
    workload = load_workload(tmp_path / "mine")
    assert workload.name == "mine" and set(workload.space("full").knobs) == {"BLOCK", "reg_cap"}
    from warpdeck.kernels.schema import VARIANT_KEYS, WORKLOAD_KEYS

    tables = ("sizes", "floor", "vendor", "argument", "case", "launch", "knobs", "variant", "space")
    argument = ("kind", "dtype", "shape", "direction", "data", "value", "role", "edge", "exact")
    launch = ("grid", "block", "shared", "baseline", "baseline_space", "bytes", "flops")
    for key in (*WORKLOAD_KEYS, *VARIANT_KEYS, *tables, *argument, *launch, "origins"):
        assert re.search(rf"\b{key}\b", text), key

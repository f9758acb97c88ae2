"""Reading workloads: both forms of the file, and every fault with file, key and remedy."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.core.model import Role, Trust
from warpdeck.core.workload import Tolerance
from warpdeck.kernels import list_workloads, load_workload

AXPY = """
[workload]
name = "axpy"
description = "y = a*x + y"
entry = "axpy"
tolerance = { rtol = 1e-4, atol = 1e-5 }
restrictions = ["BLOCK <= n"]
[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"
data = "normal"
[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "inout"
[[argument]]
name = "a"
kind = "scalar"
dtype = "float32"
value = 2.5
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
shared = 0
[knobs]
BLOCK = [64, 128, 256]
reg_cap = [0, 32, 64]
"""

FULL = """
[workload]
name = "two"
default_size = 512
tolerance = { product = 2e-6 }
[sizes]
m = "size"
n = "2 * size"
[vendor]
name = "cuBLAS"
[floor]
bytes = "4 * m * n"
flops = "2 * m * n"
[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["m", "n"]
direction = "in"
[[argument]]
name = "y"
kind = "buffer"
dtype = "float64"
shape = ["m"]
direction = "out"
[[argument]]
name = "scratch"
kind = "workspace"
dtype = "int32"
shape = ["ceil_div(n, 32)"]
[[case]]
name = "small"
m = 3
n = 5
[[case]]
name = "zeros"
m = 4
n = 4
edge = true
data = "zeros"
exact = true
[[variant]]
name = "naive"
file = "naive.py"
entry = "naive"
tolerance = { rtol = 1e-3 }
ladder = 0
[variant.knobs]
block = [64, 256]
[[variant.launch]]
grid = ["m"]
block = ["block"]
[[variant]]
file = "tiled.cu"
entry = "tiled"
restrictions = ["tile <= n"]
[variant.knobs]
tile = [8, 16, 32]
mode = ["a", "b"]
[[variant.launch]]
grid = ["ceil_div(m, tile)", "ceil_div(n, tile)"]
block = ["tile", "tile"]
shared = "4 * tile * tile if mode == 'a' else 0"
[[variant.launch]]
entry = "finish"
grid = [1]
block = [32]
[space.classic]
variant = "naive"
baseline = { block = 256 }
[space.full]
variant = "tiled"
restrictions = ["mode == 'a' or tile > 8"]
baseline_space = "classic"
"""


def write(folder, text=AXPY, **files):
    (folder / "workload.toml").write_text(text)
    (folder / "kernel.cu").write_text("// axpy")
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return folder


@pytest.fixture
def full(tmp_path):
    return load_workload(write(tmp_path, FULL, naive_py="x = 1", tiled_cu="// tiled"))


def test_short_form(tmp_path):
    workload = load_workload(write(tmp_path))
    assert (workload.name, workload.trust, workload.folder) == ("axpy", Trust.OWN, tmp_path.resolve())
    assert [a.name for a in workload.arguments] == ["x", "y", "a", "n"]
    variant = workload.variants["kernel"]
    assert (variant.language, variant.entry) == ("cuda", "axpy")
    space = workload.spaces["full"]
    assert space.knobs == {"BLOCK": (64, 128, 256), "reg_cap": (0, 32, 64)}
    case = workload.size_case(1000)
    assert (case.name, case.role, case.params) == ("1000", Role.PERFORMANCE, {"n": 1000})
    assert workload.shapes(case) == {"x": (1000,), "y": (1000,)}
    assert workload.scalars(case) == {"a": 2.5, "n": 1000}
    assert workload.min_bytes(case) == 3 * 4000 and workload.flops(case) is None
    assert workload.cases[0].role is Role.CORRECTNESS
    (launch,) = workload.launches(workload.baseline("full"), case)
    assert (launch.entry, launch.grid, launch.block, launch.shared) == ("axpy", (16, 1, 1), (64, 1, 1), 0)


def test_full_form(full):
    assert full.size_case(100).params == {"m": 100, "n": 200}
    assert full.default_size == 512 and full.vendor_name == "cuBLAS"
    assert [full.variants[v].ladder for v in full.variants] == [0, None]
    assert full.variants["tiled"].language == "cuda"
    case = full.shape_case({"n": 40, "m": 20})
    assert case.name == "m=20,n=40"
    assert full.min_bytes(case) == 3200 and full.flops(case) == 1600
    assert full.shapes(case)["scratch"] == (2,)
    assert full.total_bytes(case) == 4 * 800 + 8 * 20 + 4 * 2
    baseline = full.baseline("full")
    assert (baseline.variant, baseline.config) == ("naive", {"block": 256})
    first, second = full.launches(full.candidate("full", {"tile": 8, "mode": "a"}), case)
    assert first.grid == (3, 5, 1) and first.block == (8, 8, 1) and first.shared == 256
    assert second.entry == "finish" and second.block == (32, 1, 1)
    assert len(full.space("full").configs()) == 5 and len(full.space("full").configs({"m": 9, "n": 9})) == 1
    assert full.space_of("tiled").name == "full"
    small, zeros = full.cases
    assert full.tolerance_of("naive", small) == Tolerance(rtol=1e-3)
    assert full.tolerance_of("tiled", small) == Tolerance(product=2e-6)
    assert full.tolerance_of("tiled", zeros).exact and zeros.edge and zeros.data == "zeros"


def test_candidate_ids_follow_the_source_and_what_it_includes(tmp_path):
    def identity():
        workload = load_workload(tmp_path)
        return workload.candidate("full", {"BLOCK": 64, "reg_cap": 0}).id

    write(tmp_path, kernel_cu='#include "shared.cuh"\n', shared_cuh="// 1")
    first = identity()
    assert identity() == first
    (tmp_path / "unrelated.cuh").write_text("// 1")
    assert identity() == first
    (tmp_path / "shared.cuh").write_text("// 2")
    assert identity() != first


def test_python_sources_follow_sibling_imports(tmp_path):
    text = AXPY.replace('entry = "axpy"', 'entry = "axpy"\nfile = "kernel.py"')
    hashes = set()
    for content in ("A = 1", "A = 2"):
        write(tmp_path, text, kernel_py="from .shared import A\nimport numpy\n", shared_py=content)
        hashes.add(load_workload(tmp_path).variants["kernel"].source_hash)
    assert len(hashes) == 2


def test_bundled_workloads():
    names = list_workloads()
    assert names == ["gemm", "layernorm", "reduction", "softmax", "transpose"]
    for name in names:
        workload = load_workload(name)
        assert workload.name == name and workload.trust is Trust.BUNDLED
        assert "full" in workload.spaces
        for size in (256, 8192):
            case = workload.size_case(size)
            for space in workload.spaces.values():
                for config in space.configs(case.params):
                    assert workload.launches(workload.candidate(space.name, config), case)
        baseline = workload.baseline("full")
        if "classic" in workload.spaces:
            assert baseline.config == {"block_size": 256, "reg_cap": 0}
        else:
            assert workload.variant(baseline.variant).ladder == 0
        assert load_workload(workload.folder).trust is Trust.BUNDLED


def test_unknown_names():
    with pytest.raises(UsageError, match="unknown workload 'softmx'; did you mean 'softmax'"):
        load_workload("softmx")
    with pytest.raises(UsageError, match="no such folder"):
        load_workload("./softmax-of-mine")


@pytest.mark.parametrize(
    ("size", "fault"), [(0, "positive whole number"), (-4, "positive"), (10**7, "GiB"), (10**12, "GiB")]
)
def test_impossible_sizes(size, fault):
    with pytest.raises(UsageError, match=fault):
        load_workload("gemm").size_case(size)


def test_scalars_must_fit_their_type(tmp_path):
    workload = load_workload(write(tmp_path, AXPY.replace('value = "n"', 'value = "n * 1000"')))
    with pytest.raises(UsageError, match=r"n = 3000000000 doesn't fit int32"):
        workload.size_case(3_000_000)


def test_shape_cases(full):
    for params, fault in (
        ({"m": 4}, "give a value for n too"),
        ({"m": 4, "n": 4, "q": 4}, "no parameter 'q'"),
        ({"m": 0, "n": 4}, "m must be at least 1"),
    ):
        with pytest.raises(UsageError, match=fault):
            full.shape_case(params)


def test_impossible_launches_are_named(full):
    case = full.shape_case({"m": 20, "n": 40})
    (config,) = [{"tile": 32, "mode": "a"}]
    assert full.launches(full.candidate("full", config), case)  # 1024 threads are allowed
    bad = replace(full, variants={**full.variants, "tiled": _wide(full.variants["tiled"])})
    with pytest.raises(UsageError, match=r"'tiled' with .*tile=32.*block \(64, 32, 1\) has 2048 threads"):
        bad.launches(bad.candidate("full", config), case)
    with pytest.raises(UsageError, match="isn't one of 8, 16, 32"):
        full.candidate("full", {"tile": 9, "mode": "a"})
    for getter, name in ((full.space, "ful"), (full.variant, "tield"), (full.argument, "scrach")):
        with pytest.raises(UsageError, match="did you mean"):
            getter(name)


def _wide(variant):
    (first, second) = variant.launches
    return replace(variant, launches=(replace(first, block=("2 * tile", "tile")), second))


SHORT_FAULTS = [
    ('name = "axpy"', "", "[workload] name: missing"),
    ('name = "axpy"', "name = 3", "[workload] name: must be a text, got 3"),
    ('entry = "axpy"', "", "[workload] entry: missing"),
    ('entry = "axpy"', 'entry = "axpy"\nentri = 1', "entri: unknown key; did you mean 'entry'"),
    ("[launch]", "[lanch]", "lanch: unknown key; did you mean 'launch'"),
    ("rtol = 1e-4", "rtol = -1.0", "[workload] tolerance rtol: must be at least 0"),
    ("rtol = 1e-4", "product = 1e-6", "product: stands alone"),
    ('"BLOCK <= n"', '"BLOK <= n"', "unknown name 'BLOK'; did you mean 'BLOCK'"),
    ('"BLOCK <= n"', '"BLOCK <= "', "[workload] restrictions: expression 'BLOCK <= ', position"),
    ('kind = "buffer"', 'kind = "bufer"', "[[argument]] x kind: 'bufer' isn't one of buffer, scalar"),
    ('dtype = "float32"', 'dtype = "float23"', "dtype: 'float23' isn't one of"),
    ('direction = "inout"', "", "[[argument]] y direction: missing"),
    ('direction = "inout"', 'direction = "in"', 'no buffer has direction "out"'),
    ('data = "normal"', 'data = "gauss"', "data: 'gauss' isn't one of normal, uniform"),
    ('shape = ["n"]', 'shape = ["q"]', "unknown name 'q'"),
    ('shape = ["n"]', 'shape = ["n - 1003"]', "every dimension must be at least 1"),
    ('shape = ["n"]', 'shape = ["n / 2"]', "501.5; a whole number is needed"),
    ('shape = ["n"]', 'shape = ["(1 - n) ** 0.5"]', "a whole number is needed"),  # a complex number
    ('shape = ["n"]', 'shape = ["2.0 ** 1023 * 10"]', "a whole number is needed"),  # infinite
    ("value = 2.5", 'value = "(1 - n) ** 0.5"', "a number is needed"),
    ("value = 2.5", "value = \"'text'\"", "a number is needed"),
    ("value = 2.5", "", "[[argument]] a value: missing"),
    ('name = "a"', 'name = "x"', "the name 'x' occurs twice"),
    ('role = "correctness"', 'role = "corectness"', "role: 'corectness' isn't one of"),
    ("n = 1003", "n = 0", "[[case]] odd n: must be a whole number of at least 1, got 0"),
    ("n = 1003", "n = true", "[[case]] odd n: must be a whole number of at least 1, got True"),
    ("n = 1003", "", "no case gives a parameter"),
    ("BLOCK = [64, 128, 256]", "BLOCK = []", "[workload] knobs BLOCK: must be a list of at least one value"),
    ("BLOCK = [64, 128, 256]", "BLOCK = [64, 64]", "a value occurs twice"),
    ("BLOCK = [64, 128, 256]", 'BLOCK = [64, "x"]', "the same type"),
    ("reg_cap = [0, 32, 64]", 'reg_cap = ["a"]', "reg_cap: must be whole numbers from 0 (no cap) to 255"),
    ("reg_cap = [0, 32, 64]", "reg_cap = [0, 256]", "reg_cap: must be whole numbers from 0"),
    ("BLOCK = [64, 128, 256]", "BLOCK = [64]\nn = [1]", "is a knob and a case parameter"),
    ('grid = ["ceil_div(n, BLOCK)"]', "", "launch grid: missing"),
    ('grid = ["ceil_div(n, BLOCK)"]', "grid = [1, 2, 3, 4]", "needs 1 to 3 entries, got 4"),
    ("[workload]", "[workload", "not valid TOML"),
    ("[workload]", "x = " + "[" * 5000 + "]" * 5000 + "\n[workload]", "nested too deeply"),
    ('entry = "axpy"', 'entry = "axpy"\nfile = "other.cu"', "other.cu doesn't exist"),
    ('entry = "axpy"', 'entry = "axpy"\nfile = "../secret.cu"', "outside the workload's folder"),
    ('entry = "axpy"', 'entry = "axpy"\ndefault_size = 0', "default_size: must be a positive"),
    ('entry = "axpy"', 'entry = "axpy"\nreference_limit_s = 0', "reference_limit_s: must be more than 0"),
    ('entry = "axpy"', 'entry = "axpy"\nreference_limit_s = inf', "reference_limit_s: must be more than 0"),
    ('entry = "axpy"', 'entry = "axpy"\nreference_limit_s = "9"', "must be a number of seconds"),
]

FULL_FAULTS = [
    ('file = "tiled.cu"', 'file = "naive.py"\nname = "naive"', "'naive' occurs twice"),
    ('m = "size"', "", "[sizes] m: missing"),
    ('m = "size"', 'm = "sise"', "unknown name 'sise'; did you mean 'size'"),
    ('bytes = "4 * m * n"', 'byte = "4"', "[floor] byte: unknown key; did you mean 'bytes'"),
    ('variant = "tiled"', 'variant = "tild"', "[space.full] variant: unknown variant 'tild'"),
    ('variant = "tiled"', "", "[space.full] variant: missing"),
    (
        'baseline_space = "classic"',
        'baseline_space = "clasic"',
        "unknown space 'clasic'; did you mean 'classic'",
    ),
    ('baseline_space = "classic"', 'baseline_space = "full"', "leads back to itself"),
    ("baseline = { block = 256 }", "baseline = { block = 255 }", "block=255 isn't one of 64, 256"),
    ("baseline = { block = 256 }", 'baseline = { block = 256 }\nbaseline_space = "full"', "stands beside"),
    (
        'variant = "tiled"',
        'variant = "tiled"\nknobs = { tile = [8] }',
        "mode is missing; variant 'tiled' needs",
    ),
    ("default_size = 512", 'entry = "x"', "entry: stands beside [[variant]]"),
    ("[vendor]", "[launch]\ngrid = [1]\n[vendor]", "stands beside [[variant]]"),
    ('entry = "naive"', 'entry = "naive"\nlanguage = "hip"', "'hip' isn't one of numba, cuda"),
    ('kind = "buffer"', 'kind = "buffer"\nlanguage = "cuda"', "only a scalar can be for one language"),
    ("tile = [8, 16, 32]", "tile = [[8], [9]]", "values must be numbers, texts or true/false"),
]


@pytest.mark.parametrize(("old", "new", "fault"), SHORT_FAULTS)
def test_faults_in_the_short_form(tmp_path, old, new, fault):
    folder = tmp_path / "w"
    folder.mkdir()
    (tmp_path / "secret.cu").write_text("")
    assert old in AXPY
    refuses(write(folder, AXPY.replace(old, new, 1)), fault)


@pytest.mark.parametrize(("old", "new", "fault"), FULL_FAULTS)
def test_faults_in_the_full_form(tmp_path, old, new, fault):
    assert old in FULL
    refuses(write(tmp_path, FULL.replace(old, new, 1), naive_py="x = 1", tiled_cu=""), fault)


def refuses(folder, fault):
    with pytest.raises(UsageError, match=re.escape(fault)) as e:
        load_workload(folder)
    assert "\n" not in str(e.value) and str(folder / "workload.toml") in str(e.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(UsageError, match=r"workload.toml: no such file"):
        load_workload(tmp_path)
    (tmp_path / "workload.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="can't be read"):
        load_workload(tmp_path)
    (tmp_path / "workload.toml").write_text(AXPY)
    with pytest.raises(UsageError, match=r"no kernel.cu or kernel.py exists"):
        load_workload(tmp_path)
    write(tmp_path, kernel_py="")
    with pytest.raises(UsageError, match=r"both kernel.cu and kernel.py exist"):
        load_workload(tmp_path)
    (tmp_path / "kernel.cu").unlink()
    (tmp_path / "kernel.py").write_text("def f(:")
    with pytest.raises(UsageError, match="invalid syntax"):
        load_workload(tmp_path)


ODD = [{}, [], "", -1, 0, 1.5, True, [{}], {"a": 1}, "n +", "inf", [[]]]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_value_anywhere_raises_anything_but_a_usage_error(tmp_path_factory, data):
    """Put an odd value at a random place of the file's tree."""
    from warpdeck.kernels.loader import source_hash
    from warpdeck.kernels.schema import parse_workload
    from warpdeck.kernels.table import Table

    folder = tmp_path_factory.mktemp("w")
    write(folder, FULL, naive_py="x = 1", tiled_cu="")
    odd = data.draw(st.sampled_from(ODD))
    tree = tomllib.loads(FULL)
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if not isinstance(child, dict | list) or not child or data.draw(st.booleans()):
            node[key] = odd
            break
        node = child
    try:
        workload = parse_workload(Table(tree, folder / "workload.toml"), folder, Trust.OWN, source_hash)
    except UsageError as e:
        assert "\n" not in str(e)
    else:
        assert workload.variants


def test_reference_module(tmp_path):
    workload = load_workload(write(tmp_path))
    with pytest.raises(UsageError, match=r"reference.py is missing"):
        workload.reference_module()
    (tmp_path / "reference.py").write_text("def reference(x): return x")
    assert np.all(workload.reference_module().reference(np.ones(2)) == 1)
    remote = replace(workload, trust=Trust.REMOTE)
    with pytest.raises(WarpdeckError, match="only in a sandbox"):
        remote.reference_module()


def test_a_file_that_is_too_large_is_no_source(tmp_path):
    write(tmp_path, AXPY)
    with (tmp_path / "kernel.cu").open("a") as kernel:
        kernel.write("// padding\n" * (5 << 17))
    with pytest.raises(UsageError, match=r"kernel\.cu: larger than 4 MiB"):
        load_workload(tmp_path)

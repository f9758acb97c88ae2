"""CUDA C++ compiled with its stage markers."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.toolchain import Compiled, CompileError, CompileRequest, sources
from warpdeck.core.toolchain.build import build


def cuda(text: str, *, entries=("k",), **more) -> Compiled:
    return build(CompileRequest("cuda", "k.cu", entries, (9, 0), text=text, **more))


MARKED = """
#include <warpdeck/trace.cuh>
WD_STAGES(load, store)
extern "C" __global__ void k(float *x WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    WD_PUSH(load);
    float a = x[threadIdx.x];
    WD_POP(load);
    x[threadIdx.x] = a + 1;
    WD_TRACE_END();
}
"""
ONE = (("float32", 1),)


def test_a_traced_kernel_has_stages_and_one_more_parameter():
    plain = cuda(MARKED, parameters=ONE)
    traced = cuda(MARKED, parameters=ONE, trace=True)
    assert (plain.stages, plain.kernels["k"].parameters) == ((), (8,))
    assert (traced.stages, traced.kernels["k"].parameters) == (("load", "store"), (8, 32))
    assert Compiled.from_bytes(traced.to_bytes()) == traced


def test_tracing_says_what_is_missing():
    with pytest.raises(
        CompileError, match=r"k\.cu: nothing to trace: it has no stage markers; #include <warpdeck"
    ):
        cuda('extern "C" __global__ void k(float *x) {}', parameters=ONE, trace=True)
    header_only = "#include <warpdeck/trace.cuh>\nWD_STAGES(load)\n"
    with pytest.raises(
        CompileError, match=r"k: nothing to trace: .* write WD_TRACE_PARAM after its last parameter"
    ):
        cuda(header_only + 'extern "C" __global__ void k(float *x) {}', parameters=ONE, trace=True)


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("WD_PUSH(load)", "WD_PUSH(wait)"), 6, "stage wait isn't among those that WD_STAGES names"),
        ((" WD_TRACE_PARAM", ""), 5, "put WD_TRACE_PARAM after the kernel's last parameter"),
        (("WD_TRACE_BEGIN();", ""), 6, r"WD_TRACE_BEGIN\(\) comes first in the kernel"),
        (("WD_STAGES(load, store)", ""), 6, r"name the stages with WD_STAGES\("),
        (("#include <warpdeck/trace.cuh>", ""), 3, "after #include <warpdeck/trace.cuh>"),
    ],
)
def test_misused_markers_say_where_and_what_was_forgotten(
    change: tuple[str, str], line: int, words: str
) -> None:
    text = MARKED.replace(*change)
    assert text != MARKED
    with pytest.raises(CompileError, match=rf"k\.cu:{line}: .*{words}"):
        cuda(text, parameters=ONE, trace=True)


def test_of_several_kernels_some_may_be_traced():
    text = MARKED + 'extern "C" __global__ void other(float *x) { *x = 0; }\n'
    traced = cuda(text, entries=("k", "other"), parameters=ONE, trace=True)
    assert [info.parameters for info in traced.kernels.values()] == [(8, 32), (8,)]


def test_the_trace_header_counts_where_it_is_included(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text(MARKED)
    written = CompileRequest("cuda", str(file), ("k",), (9, 0))
    given = CompileRequest("cuda", "k.cu", ("k",), (9, 0), text=MARKED)
    header = str(sources.TRACE_INCLUDE / "warpdeck" / "trace.cuh")
    assert set(sources.source_files(written)) == {str(file), header}
    assert set(sources.source_files(given)) == {header}
    keys = {
        sources.request_key(replace(given, trace=trace), {header: digest})
        for trace in (0, 1)
        for digest in "ab"
    }
    assert len(keys) == 4


def test_other_files_of_this_package_cant_be_included():
    with pytest.raises(CompileError, match="only headers of the CUDA toolkit and of the kernel's own folder"):
        cuda("#include <warpdeck/../../layout.py>\n" + MARKED)

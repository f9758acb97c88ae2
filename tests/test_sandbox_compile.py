"""Compiling code of others: what it may include, what it may name, and where its compiler runs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core import sandbox
from warpdeck.core.model import Trust
from warpdeck.core.sandbox import Layer
from warpdeck.core.toolchain import CompileError, CompilePool, CompileRequest
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.toolchain.confine import confine, confine_ptx
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.toolchain.sources import TRACE_INCLUDE, header_folders, source_files
from warpdeck.kernels import load_workload

KERNEL = 'extern "C" __global__ void k(float *a) { a[0] = 1; }\n'


def request(text, language="cuda", **more):
    return CompileRequest(language, "k.cu", ("k",), (9, 0), confined=True, text=text, **more)


def refused(text, folders=(TRACE_INCLUDE,)):
    """What `confine` says of a text; empty if it passes."""
    try:
        confine(request(text), text, tuple(folders))
    except CompileError as error:
        return str(error)
    return ""


# -- the rules, which need no compiler -----------------------------------------------------------------

SECRET = "/etc/hostname"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f'#include "{SECRET}"', 1),
        (f"int a;\n#include <{SECRET}>", 2),
        ('#include "../../secret.h"', 1),
        ('#include "warpdeck/../../secret.h"', 1),
        ('#include "~/secret.h"', 1),
        ('#include "secret.h"', 1),
        ("#include <cuda/../../../secret>", 1),
        (f'#include_next "{SECRET}"', 1),
        ("#include_next <warpdeck/trace.cuh>", 1),
        (f'#import "{SECRET}"', 1),
        (f'const char x[] = {{\n#embed "{SECRET}"\n}};', 2),
        (f'  #  include "{SECRET}"', 1),
        (f'%:include "{SECRET}"', 1),
        (f'??=include "{SECRET}"', 1),
        (f'/* x */ # /* y\nz */ include "{SECRET}"', 2),
        (f'/* x\n*/ #include "{SECRET}"', 2),
        (f'#inc\\\nlude "{SECRET}"', 2),
        (f'#inc??/\nlude "{SECRET}"', 2),
        (f'#\\\n\\\ninclude \\\n"{SECRET}"', 4),
        (f'int a;\\\nint b;\n#include "{SECRET}"', 3),
        (f'#define H "{SECRET}"\n#include H', 2),
        ("#define H(x) <x>\n#include H(secret)", 2),
        (f'#line 3 "{SECRET}"', 1),
        (f'# 3 "{SECRET}"', 1),
        (f'#if __has_include("{SECRET}")\n#endif', 1),
        (f'#if __has_\\\ninclude("{SECRET}")\n#endif', 1),
        (f'#if __has_embed("{SECRET}")\n#endif', 1),
        (f'#if __has_include_next("{SECRET}")\n#endif', 1),
    ],
)
def test_other_files_are_refused_with_the_line(text, line):
    message = refused(f"{text}\n{KERNEL}")
    assert message.startswith(f"k.cu:{line}: ") and "\n" not in message


def test_a_host_header_is_refused_with_its_replacement():
    assert refused("#include <stdint.h>").endswith("(NVRTC has no host headers; use <cuda/std/cstdint>)")
    assert refused("#include <cmath>").endswith("(leave it out: NVRTC has the functions built in)")


@pytest.mark.parametrize(
    "text",
    [
        "#include <warpdeck/trace.cuh>",
        '#include "warpdeck/trace.cuh"',
        "#  include <warpdeck/trace.cuh> // for markers",
        "// #include <vector>",
        "#define INCLUDE 1\n#if INCLUDE\n#endif",
        "#pragma unroll 4",
        "struct S { int include, file, line; };  int line_3 = 3;",
        "",
    ],
)
def test_what_a_kernel_needs_is_allowed(text):
    assert refused(f"{text}\n{KERNEL}") == ""


@given(
    st.lists(st.sampled_from(["/**/", " ", "\t", "\\\n", "/* x */", "\\\r\n", "/*\n*/", "\r"]), max_size=6),
    st.lists(st.sampled_from(["/**/", " ", "\t", "\\\n", "/* x */", "??/\n"]), max_size=6),
    st.sampled_from(["#", "%:", "??="]),
    st.sampled_from(['"/etc/hostname"', "</etc/hostname>", '"../x.h"', "<a/../../x>", '"x.h"', "MACRO"]),
    st.integers(0, 7),
)
def test_no_disguise_hides_an_include(before, between, hash_, operand, cut):
    word = "include"[:cut] + "\\\n" + "include"[cut:]
    text = f"{KERNEL}{''.join(before)}{hash_}{''.join(between)}{word}{''.join(between)}{operand}\n"
    assert refused(text).startswith("k.cu:")


@pytest.mark.parametrize("piece", ["#/**/", "#/*\n", "#/*", "*/#", "*/ #/* ", "/**/", "\n#", "/*\n", "*/#x"])
@pytest.mark.parametrize("end", ["", "*/"])
def test_no_text_takes_it_long(piece, end):
    started = time.process_time()
    refused(piece * (200_000 // len(piece)) + end)
    assert time.process_time() - started < 3  # a minute or two before


@given(st.text(max_size=60))
def test_any_text_is_judged(text):
    refused(text)


@pytest.mark.parametrize("entry", ['k;\n#include "/etc/hostname"', 'k"', "k#", "k\n"])
def test_a_kernels_name_is_no_source(entry):
    with pytest.raises(CompileError, match="can't be a kernel's name"):
        confine(replace(request(KERNEL), entries=(entry,)), KERNEL, ())


def test_ptx_names_no_other_file():
    header = header_folders()[0] / "x.h"
    confine_ptx(request(""), f'.file\t1 "k.cu"\n.file 2 "{header}"\n.loc 1 2 3\n', header_folders())
    for text in (
        '.file 1 "/etc/hostname"',
        '.file/**/1\n"/etc/hostname"',
        ".file x",
        '.include "y"',
        "{ .include",
    ):
        with pytest.raises(CompileError, match="inline PTX may not"):
            confine_ptx(request(""), text, header_folders())


def test_trust_decides(tmp_path):
    workload = load_workload("reduction")
    candidate = workload.baseline("classic")
    variant = workload.variant(candidate.variant)
    for trust, confined in ((None, False), (Trust.OWN, False), (Trust.GENERATED, True), (Trust.REMOTE, True)):
        other = replace(workload, variants={variant.name: replace(variant, trust=trust)})
        made = candidate_request(other, candidate, (9, 0))
        assert made.confined is confined
        assert (made.text is not None) is (confined and variant.language == "cuda")


def test_a_numba_kernel_of_others_imports_no_file_of_the_users(tmp_path, monkeypatch):
    (tmp_path / "helper.py").write_text("x = 1")
    (tmp_path / "kernel.py").write_text("import helper, math, numpy\ndef k(x): pass")
    made = CompileRequest("numba", str(tmp_path / "kernel.py"), ("k",), (9, 0), confined=True)
    with pytest.raises(
        CompileError, match=r"imports helper.py: code of others may import installed packages"
    ):
        source_files(made)


# -- the compilers -----------------------------------------------------------------------------------


@pytest.fixture
def pool(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")
    if sys.platform != "linux" or sandbox.layers().best is Layer.NONE:
        pytest.skip("nothing isolates here")
    with CompilePool(1, cache=CompileCache(tmp_path / "cache"), time_limit_s=60) as pool:
        yield pool


def compiled(pool, made):
    return pool.submit_request(made).result()


def test_the_machine_code_is_the_same_as_outside(pool):
    text = f"#include <cuda_fp16.h>\n#include <warpdeck/trace.cuh>\n{KERNEL}"
    inside, outside = (compiled(pool, replace(request(text), confined=c)) for c in (True, False))
    assert inside.code_hash == outside.code_hash and inside.ptx == outside.ptx


def test_the_compiler_itself_cannot_read_the_users_files(pool, tmp_path, monkeypatch):
    """Without the rules, as if they had a hole."""
    header = tmp_path / "secret.h"
    header.write_text("SECRET-OF-THE-USER this is no C++\n")
    text = f'#include "{header}"\n{KERNEL}'
    from warpdeck.core.toolchain import confined

    script = tmp_path / "probe.py"
    script.write_text(
        "import sys\nfrom cuda.bindings import nvrtc\n"
        f"_, p = nvrtc.nvrtcCreateProgram({text!r}.encode(), b'k.cu', 0, [], [])\n"
        "nvrtc.nvrtcCompileProgram(p, 0, [])\n"
        "_, n = nvrtc.nvrtcGetProgramLogSize(p)\nlog = b' ' * n\n"
        "nvrtc.nvrtcGetProgramLog(p, log)\nprint(log.decode())\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    policy = confined.policy(request(KERNEL), {}, folder, os.environ)
    done = sandbox.run([sys.executable, str(script)], replace(policy, read=[*policy.read, script]), 60)
    assert b"secret.h" in done.stdout and b"SECRET-OF-THE-USER" not in done.stdout + done.stderr, done


def test_line_information_cannot_name_another_file(pool):
    forged = KERNEL.replace("a[0] = 1;", 'asm volatile(".loc 1 5 0;\\n"); a[0] = 1;')
    for text in (f'#line 1 "/etc/hostname"\n{KERNEL}', forged):
        with pytest.raises(CompileError):
            compiled(pool, request(text))


def test_a_template_bomb_ends(pool):
    pool.time_limit_s = 8
    bomb = (
        "template <int N, int M> struct B { static constexpr long v = B<N-1, 2*M>::v + B<N-1, 2*M+1>::v; };\n"
        "template <int M> struct B<0, M> { static constexpr long v = M; };\n"
        'extern "C" __global__ void k(float *a) { a[0] = B<28, 1>::v; }\n'
    )
    start = time.monotonic()
    with pytest.raises(CompileError) as found:
        compiled(pool, request(bomb))
    assert time.monotonic() - start < 40 and "\n" not in str(found.value)
    assert compiled(pool, request(KERNEL)).entries == {"k": "k"}


def test_a_numba_module_of_others_runs_in_the_sandbox(pool, tmp_path):
    pytest.importorskip("numba.cuda", reason="needs the cuda extra")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="needs the cuda extra")
    folder, trace, secret = tmp_path / "folder", tmp_path / "trace", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("SECRET-OF-THE-USER")
    file = folder / "kernel.py"

    def attempt(statement):
        file.write_text(f"import os, socket\n{statement}\ndef k(x):\n    x[0] = 1\n")
        made = CompileRequest("numba", str(file), ("k",), (9, 0), (("float32", 1),), confined=True)
        return compiled(pool, made)

    assert list(attempt("pass").entries) == ["k"]
    for statement in (
        f"open({str(trace)!r}, 'w')",
        f"raise ValueError(open({str(secret)!r}).read())",
    ):
        with pytest.raises(CompileError, match=r"(Permission|FileNotFound|OS)Error") as found:
            attempt(statement)
        assert "SECRET-OF-THE-USER" not in str(found.value) + found.value.log
    assert not trace.exists()
    assert list(attempt("x = 5").entries) == ["k"]


def test_without_isolation_code_of_others_is_not_compiled(pool, monkeypatch):
    none = sandbox.Layers(*[sandbox.Probe(False, "not here")] * 3)
    monkeypatch.setattr("warpdeck.core.sandbox.probing.layers", lambda: none)
    with pytest.raises(sandbox.SandboxError, match="--allow-unsandboxed"):
        compiled(pool, request(KERNEL))
    assert compiled(pool, replace(request(KERNEL), confined=False)).entries == {"k": "k"}


def test_processes_end_with_the_pool(tmp_path, pool):
    def folders() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob(f"{sandbox.PREFIX}{os.getpid()}-*"))

    before = folders()  # of other tests of this process
    compiled(pool, request(KERNEL))
    pool.close()
    assert folders() <= before

"""The emulator's reading of CUDA C++: tokens, `__shared__` declarations, what is refused unseen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.emulator.errors import CandidateFault
from warpdeck.core.emulator.rewrite import rewrite
from warpdeck.core.emulator.rules import refuse
from warpdeck.core.emulator.source import FILE_LINES, Places, collect, wrapped
from warpdeck.core.emulator.tokens import tokens
from warpdeck.core.model import Status

PIECES = st.sampled_from(
    [
        "__shared__",
        "float",
        " ",
        "\n",
        "a",
        "[4]",
        ";",
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        ",",
        "::",
        "//x\n",
        "/*y*/",
        '"s"',
        "'c'",
        "#define X 1\n",
        "#pragma unroll\n",
        "extern",
        "*",
        "=",
        "1",
        "\\\n",
        'R"(z)"',
        "alignas(16)",
    ]
)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda n: (
        n not in ("do", "if", "int", "for", "char", "else", "case", "goto", "auto", "void", "long", "enum")
    )
)
TYPES = st.sampled_from(
    ["float", "unsigned long long", "const volatile int", "Pair<int, 3>", "std::pair<A<B, 2>, int*>"]
)
SIZES = st.sampled_from(["", "[32]", "[N][M + 1]", "[1 << 5]", "[sizeof(float) > 2 ? 1 : 2]"])


@given(st.text())
def test_tokens_are_the_whole_text(text: str) -> None:
    found = tokens(text)
    assert "".join(t.text for t in found) == text
    assert [t.line for t in found] == sorted(t.line for t in found)


@given(st.lists(PIECES).map("".join))
def test_tokens_know_their_lines(text: str) -> None:
    at = 0
    for token in tokens(text):
        assert token.line == text.count("\n", 0, at) + 1
        at += len(token.text)


@given(st.lists(PIECES).map("".join))
def test_rewriting_keeps_the_lines_or_refuses_in_one(text: str) -> None:
    try:
        done = rewrite(text)
    except CandidateFault as fault:
        assert fault.status is Status.COMPILE_ERROR
        assert re.match(r"@\d+: this __shared__ declaration can't be read: ", fault.message)
        return
    assert done.count("\n") == text.count("\n")
    assert "__shared__" not in [t.text for t in tokens(done) if t.kind == "word"]


@given(st.lists(PIECES.filter(lambda p: p != "__shared__")).map("".join))
def test_other_code_stays_as_it_is(text: str) -> None:
    assert rewrite(text) == text
    kept = f"int x; {text} // __shared__ float a[2];\n"
    if "/*" not in text.replace("/*y*/", "") and '"' not in text:
        assert rewrite(kept) == kept


@given(
    TYPES,
    st.lists(st.tuples(NAMES, SIZES), min_size=1, max_size=4, unique_by=lambda v: v[0]),
    st.integers(0, 5),
)
def test_every_declared_name_gets_its_type_and_place(
    base: str, variables: list[tuple[str, str]], lines: int
) -> None:
    listed = ", ".join(f"{name}{size}" for name, size in variables)
    text = "\n" * lines + f"void f() {{ int before; __shared__ {base} {listed}; int after; }}"
    done = rewrite(text)
    flat = re.sub(r"\s+", "", done)
    for name, size in variables:
        kind = f"wde_t0_{name}"
        assert re.sub(r"\s+", "", f"typedef {base} {kind}{size};") in flat
        assert (
            f'{kind}& {name} = wde_shared<{kind}>(wde_k0_{name}, alignof(wde_a0), "{name}", {lines + 1});'
            in done
        )
    assert "int before;" in done and "int after;" in done


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extern __shared__ float s[];", "float * const s = (float *)WDE_DYNAMIC;"),
        ("extern __shared__ int s[][4];", "int (* const s)[4] = (int (*)[4])WDE_DYNAMIC;"),
        ("__align__(16) extern __shared__ char s[];", "char * const s = (char *)WDE_DYNAMIC;"),
        (
            "extern volatile float __shared__ s[];",
            "volatile float * const s = (volatile float *)WDE_DYNAMIC;",
        ),
    ],
)
def test_dynamic_shared_memory(text: str, expected: str) -> None:
    assert re.sub(r" +", " ", rewrite(text)).strip() == re.sub(r" +", " ", expected)


@pytest.mark.parametrize("opening", ["", "namespace a {", 'extern "C" {', "namespace { namespace b::c {"])
def test_variables_at_file_scope_have_a_fixed_place(opening: str) -> None:
    assert "wde_shared_at_file_scope<" in rewrite(f"{opening} __shared__ float s[4];")


@pytest.mark.parametrize(
    "opening", ["void f() {", "auto f = [&](int i) {", "struct S { void f() {", "void f() try {"]
)
def test_variables_of_functions_have_one_per_block(opening: str) -> None:
    assert "wde_shared<" in rewrite(f"namespace a {{ {opening} __shared__ float s[4];")


@pytest.mark.parametrize(
    "wanted", ["alignas(16)", "__align__(16)", "__attribute__((aligned(16)))", "alignas(float4)"]
)
def test_alignment_is_kept(wanted: str) -> None:
    done = rewrite(f"void f() {{ __shared__ {wanted} float s[4]; }}")
    assert f"struct alignas({'float4' if 'float4' in wanted else '16'}) wde_a0" in done


@pytest.mark.parametrize(
    "text",
    [
        "__shared__ float s[2] = {1, 2};",
        "__shared__ int x{3};",
        "__shared__ float (*p)[3];",
        "__shared__;",
        "__shared__ x",
    ],
)
def test_what_cannot_be_shared_memory_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(CandidateFault, match=r"@3: "):
        rewrite(f"\nvoid f() {{\n{text} }}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#if __has_include(<x>)\n#endif", "__has_include"),
        ("int x = __has_include;", "__has_include"),
        ("#pragma GCC poison x", "#pragma GCC poison"),
        ('#pragma push_macro("x")', "push_macro"),
        ('_Pragma("GCC system_header")', "only #pragma unroll"),
        ("#define P(x) _Pragma(#x)\n", "only #pragma unroll"),
        ("#line 5", "#line"),
        ("%: line 5", "#line"),
        ('# 5 "other.cu"', "a line marker"),
        ('/* */ # /* */ ident "x"', "#ident"),
        ('/* */\\\n# \\\nident "x"', "#ident"),
        ('__attribute__((section(".text"))) int x;', "attribute section"),
        ("__attribute__((constructor)) void f() {}", "attribute constructor"),
        ("[[gnu::constructor]] void f() {}", "attribute gnu"),
        ("int wde_fail;", "wde_fail is reserved"),
        ("#define X __asan_poison_memory_region", "is reserved"),
        ("void __tsan_read4(void*);", "is reserved"),
    ],
)
def test_what_would_reach_beyond_the_kernel_is_refused(text: str, words: str) -> None:
    with pytest.raises(CandidateFault) as caught:
        refuse(f"int a;\n{text}\n")
    assert caught.value.status is Status.COMPILE_ERROR
    assert re.match("@[23]: ", caught.value.message) and words in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "#pragma unroll 4\n#pragma once\n#pragma nv_diag_suppress 177\n",
        '#define UNROLL _Pragma("unroll")\n',
        "__attribute__((aligned(16))) int x; [[maybe_unused]] int y; [[nodiscard]] int f();",
        '// __has_include __attribute__((section))\nconst char* s = "#line 5 __asan_x";',
        "int a[3]; int b = a[a[0]];",
    ],
)
def test_what_kernels_use_is_allowed(text: str) -> None:
    refuse(text)


def test_lines_of_headers_tell_their_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "k.cu").write_text('#include "sub/h.cuh"\nint x;\n')
    (tmp_path / "sub" / "h.cuh").write_text("#pragma once\n__device__ int y;\n")
    source = collect(tmp_path / "k.cu", ["k"], {"N": 4, "FAST": True, "reg_cap": 32})
    assert source.places.told(f"@2 and @{FILE_LINES + 2}") == "k.cu:2 and sub/h.cuh:2"
    files = wrapped(source)
    assert list(files) == ["k.cu.cpp", "sub/h.cuh"]
    assert f'#line {FILE_LINES + 1} "sub/h.cuh"' in files["sub/h.cuh"]
    assert "#define N 4\n" in files["k.cu.cpp"] and "#define FAST 1\n" in files["k.cu.cpp"]
    assert "reg_cap" not in files["k.cu.cpp"]


@given(st.integers(-5, 4 * FILE_LINES))
def test_a_line_is_named_or_unknown(line: int) -> None:
    name = Places(("a.cu", "b.cuh")).name(line)
    assert name == "" or re.fullmatch(r"(a\.cu|b\.cuh):[1-9]\d*", name)


@pytest.mark.parametrize("header", ["/etc/passwd", "../x.h", "~/x"])
def test_headers_of_other_folders_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "k.cu").write_text(f'#include "{header}"\n')
    with pytest.raises(CandidateFault) as caught:
        collect(tmp_path / "k.cu", ["k"], {})
    assert caught.value.status is Status.COMPILE_ERROR


def test_a_giant_source_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("// " + "x" * 2_000_000)
    with pytest.raises(CandidateFault, match=r"k\.cu: 2\.0 MB of source; at most 2 MB") as caught:
        collect(tmp_path / "k.cu", ["k"], {})
    assert caught.value.status is Status.COMPILE_ERROR

"""Machine code beside its source, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import here

from warpdeck.core.toolchain import ToolchainError
from warpdeck.core.toolchain.disassembly import disassemble, find, parse

LISTING = """
.text.k:
	//## File "/a/inner.h", line 7 inlined at "/a/k.cu", line 3
	//## File "/a/k.cu", line 3
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 IMAD R7, R7, UR4, R0 ;
.L_x_2:
	//## File "/a/k.cu", line 4
        /*0020*/                   BRA `(.L_x_2) ;
.text.other:
        /*0000*/                   EXIT ;
"""


@pytest.fixture(scope="module")
def tool() -> None:
    try:
        find()
    except ToolchainError as error:
        pytest.skip(str(error))


def test_a_listing_gives_every_instruction_its_innermost_line() -> None:
    found = list(parse(LISTING))
    assert [(i.kernel, i.address, i.file, i.line, i.label) for i in found] == [
        ("k", 0, "/a/inner.h", 7, ""),
        ("k", 16, "/a/inner.h", 7, ""),
        ("k", 32, "/a/k.cu", 4, ".L_x_2"),
        ("other", 0, "", 0, ""),
    ]
    assert found[1].text == "@!P0 IMAD R7, R7, UR4, R0"


def test_what_is_no_cubin_is_told(tool: None) -> None:
    with pytest.raises(ToolchainError, match="nvdisasm"):
        disassemble(b"not a cubin")


@pytest.mark.parametrize("variant", ["classic", "cuda"])
def test_sass_names_lines_of_the_kernels_file(tool: None, variant: str) -> None:
    done = here("sass", "softmax", "--variant", variant, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    files = {Path(i["file"]).name for i in document["instructions"] if i["file"]}
    assert ("classic.py" if variant == "classic" else "kernel.cu") in files
    assert any("MUFU.EX2" in i["text"] for i in document["instructions"])  # exp
    assert document["resources"]["registers"] > 0


def test_sass_text_and_bad_input(tool: None) -> None:
    done = here("sass", "softmax", "--variant", "classic")
    assert done.returncode == 0 and "classic.py:" in done.stdout and "EXIT" in done.stdout
    assert here("sass", "softmax", "--cc", "nine").returncode == 2
    assert here("sass", "softmax", "--cc", "3.0").returncode == 2
    assert here("sass", "softmacks").returncode == 2

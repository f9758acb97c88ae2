"""search_docs: what is indexed, what is found, and that no query breaks it."""

from __future__ import annotations

import os
import re
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.agents.llm.documents import MAX_ANSWER, Documents, refuse
from warpdeck.agents.llm.passages import READERS, SIZE, passages
from warpdeck.core.errors import UsageError

NOTES = sorted(
    note.name
    for note in resources.files("warpdeck.agents.llm").joinpath("notes").iterdir()
    if note.name.endswith(".md")
)


@pytest.fixture(scope="module")
def notes() -> Documents:
    return Documents()


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("shared memory bank conflicts padding", "shared-memory.md"),
        ("how do I coalesce my loads?", "memory-coalescing.md"),
        ("float4 misaligned address", "memory-coalescing.md"),
        ("cp.async wait_group stages", "async-copy.md"),
        ("online softmax", "softmax-layernorm.md"),
        ("Welford variance layer norm", "softmax-layernorm.md"),
        ("__launch_bounds__ register spills", "registers-launch-bounds.md"),
        ("long scoreboard stall", "counters-to-actions.md"),
        ("tensor cores tf32 precision", "tensor-cores.md"),
        ("transposing a matrix", "transpose.md"),
        ("uint32_t is undefined", "nvrtc-errors.md"),
        ("threads per SM on Turing", "architectures.md"),
        ("atomicInc ticket last block", "reduction.md"),
        ("grouping tiles for L2 hits", "l2-rasterisation.md"),
        ("latency hiding occupancy ILP", "occupancy-ilp.md"),
        ("register tile FMA shared words", "register-tiling.md"),
        ("cold and hot cache timing", "measuring.md"),
        ("missing guards partial tile zero-fill", "correctness-traps.md"),
        ("gemm rungs percent of cuBLAS", "gemm-ladder.md"),
        ("ballot and named barriers", "warp-primitives.md"),
    ],
)
def test_our_notes_answer_what_is_asked(notes: Documents, query: str, note: str) -> None:
    assert f"notes/{note}" in [hit.source for hit in notes.find(query)[:3]]


@pytest.mark.parametrize("name", NOTES)
def test_every_note_links_to_nvidias_documents(name: str) -> None:
    text = resources.files("warpdeck.agents.llm").joinpath("notes", name).read_text()
    links = re.findall(r"https?://[^\s),]+", text)
    assert links and all(re.match(r"https://(docs|developer)\.nvidia\.com/", link) for link in links)
    assert max(len(line) for line in text.splitlines()) <= 150
    assert text.count("```") % 2 == 0


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.text(alphabet='"*()^:+-{}ANDORNOT NEAR_ab', max_size=60)))
def test_any_text_is_a_query(notes: Documents, query: str) -> None:
    answer = notes.search(query)
    assert 0 < len(answer) <= MAX_ANSWER


def test_operators_are_words(notes: Documents) -> None:
    assert notes.find('transpose" OR source:*') == notes.find("transpose source")
    assert notes.find("NOT transpose NEAR(tile)")


def test_documents_of_the_user_are_found_with_their_section(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(
        "# Guide\n\nintro\n\n## Zorbing\n\nUse the frobnicator.\n```\n# no heading\n```\nend\n"
    )
    (tmp_path / "old.rst").write_text("Top\n===\n\nText.\n\nWidgets\n-------\n\nQuuxify them.\n")
    (tmp_path / "page.html").write_text(
        "<head><title>x</title></head><h1>Big</h1><script>var hidden;</script><p>one<h2>Small &amp; fine</h2>"
        "<p>plumbus <b>works</b></p>"
    )
    (tmp_path / "k.cu").write_text("// first\n" + "int a;\n" * 200 + "\n" + "int grommet;\n" * 3)
    (tmp_path / "skip.bin").write_bytes(b"grommet")
    (tmp_path / ".hidden.md").write_text("frobnicator")
    documents = Documents([tmp_path])
    assert documents.files == len(NOTES) + 4 and not documents.problems
    assert (
        found := documents.find("frobnicator")[0]
    ).section == "Guide › Zorbing" and "# no heading" in found.text
    assert documents.find("quuxify")[0].section == "Top › Widgets"
    assert (html := documents.find("plumbus")[0]).section == "Big › Small & fine" and html.text.split() == [
        "plumbus",
        "works",
    ]
    assert not documents.find("hidden")
    grommet = documents.find("grommet")[0]
    assert grommet.source.endswith("k.cu") and grommet.section == "lines 203 to 205"


def test_the_tool_answers_with_sources(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("The frobnicator needs grease.")
    tool = Documents([file]).tool()
    assert "user's documents" in tool.description and tool.parameters["required"] == ["query"]
    assert f"[1] {file}\nThe frobnicator needs grease." in tool.run({"query": "Frobnicators?"})
    assert tool.run({"query": "??"}).startswith("Nothing found")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("gone.md", None, "there is no such file or folder"),
        ("thing.docx", b"x", "unknown kind"),
        ("binary.txt", b"a\0b", "it is no text"),
        ("big.txt", b"x" * ((8 << 20) + 1), "larger than 8 MB"),
    ],
)
def test_a_bad_document_named_by_itself_is_an_error(tmp_path: Path, name: str, data: Any, words: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    for ask in (refuse, lambda path: Documents([path])):
        with pytest.raises(UsageError, match=words) as caught:
            ask(tmp_path / name)
        assert str(caught.value).startswith(f"--docs: {tmp_path / name}: ") and "\n" not in str(caught.value)


def test_pipes_devices_and_endless_files_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "zeros.md").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.md", tmp_path / "zeros.md", Path("/dev/zero")):
        with pytest.raises(UsageError, match=f"{path}: neither a file nor a folder"):
            refuse(path)
    documents = Documents([tmp_path], notes=False)
    assert documents.files == 0 and len(documents.problems) == 2


def test_of_a_huge_folder_a_bounded_part_is_read(tmp_path: Path) -> None:
    for number in range(60):
        with (tmp_path / f"{number:02d}.txt").open("wb") as file:
            file.write(b"frobnicator")
            file.truncate(1 << 33)  # sparse: half a terabyte in all
    (tmp_path / "readable.txt").write_text("frobnicator")
    refuse(tmp_path)
    documents = Documents([tmp_path], notes=False)
    assert [hit.source for hit in documents.find("frobnicator")] == [str(tmp_path / "readable.txt")]
    assert len(documents.problems) == 21 and documents.problems[-1] == "40 more were left out"


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match="no document in it; known: "):
        refuse(tmp_path)


def test_a_bad_document_in_a_folder_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0")
    (tmp_path / "b.txt").write_text("frobnicator")
    documents = Documents([tmp_path])
    assert documents.find("frobnicator") and documents.problems == [f"{tmp_path / 'a.txt'}: it is no text"]


def test_a_pdf_without_pypdf_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    file = tmp_path / "paper.pdf"
    file.write_bytes(b"%PDF-1.4\n")
    with pytest.raises(UsageError, match="pip install pypdf"):
        Documents([file])


def test_search_is_fast_on_megabytes(tmp_path: Path) -> None:
    lines = [
        f"line {n} about warps tiles banks caches number{n % 977} and other things of kernels"
        for n in range(40_000)
    ]
    (tmp_path / "big.txt").write_text("\n\n".join(lines))  # 3 MB
    documents = Documents([tmp_path])
    times = []
    for n in range(5):
        begun = time.process_time()
        assert documents.find(f"warps tiles number{n} caches")
        times.append(time.process_time() - begun)
    assert min(times) < 0.05


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(set(READERS) - {".pdf"})),
    st.lists(
        st.one_of(
            st.text(max_size=80), st.sampled_from(["# A", "====", "----", "```", "<h1>", "</h1>", "<p>", ""])
        ),
        max_size=60,
    ),
)
def test_any_document_splits_into_bounded_passages(suffix: str, lines: list[str]) -> None:
    data = "\n".join(lines).replace("\0", "").encode()
    for passage in passages(data, suffix):
        assert passage.text.strip() and len(passage.text) <= 4 * SIZE


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab #\n`", max_size=6000))
def test_text_and_sources_lose_nothing(text: str) -> None:
    letters = re.sub(r"\s", "", text)
    for suffix in (".txt", ".cu"):
        assert re.sub(r"\s", "", "".join(p.text for p in passages(text.encode(), suffix))) == letters

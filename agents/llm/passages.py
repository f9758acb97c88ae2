"""Splits documents into passages, each with the section that it is in."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

SIZE = 1500  # characters of a passage, about
MAX_PAGES = 2000  # of a PDF

_MARKDOWN = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_RULE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True)
class Passage:
    """A piece of a document. `section`: its headings, outermost first, or its lines or page."""

    section: str
    text: str


def passages(data: bytes, suffix: str) -> list[Passage]:
    """The passages of a document.

    Raises:
        ValueError: it can't be read; says why.
    """
    reason = unreadable(data, suffix)
    if reason is not None:
        raise ValueError(reason)
    return [piece for piece in READERS[suffix](data) if piece.text.strip()]


def unreadable(data: bytes, suffix: str) -> str | None:
    """Why a document can't be split, as far as can be told without doing it."""
    if suffix == ".pdf":
        known = importlib.util.find_spec("pypdf") is not None
        return None if known else "PDF documents need pypdf: pip install pypdf"
    return "it is no text" if b"\0" in data else None


def _decode(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace")


def _markdown(data: bytes) -> Iterator[Passage]:
    path: list[str] = []
    lines: list[str] = []
    fenced = False
    for line in _decode(data).splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _MARKDOWN.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield from _split(lines, " › ".join(filter(None, path)))
        lines = []
        level = len(heading[1])
        path = [*(path + [""] * level)[: level - 1], heading[2]]
    yield from _split(lines, " › ".join(filter(None, path)))


def _rst(data: bytes) -> Iterator[Passage]:
    levels: list[str] = []  # underline characters, outermost first
    path: list[str] = []
    lines: list[str] = []
    for line in _decode(data).splitlines():
        rule = _RULE.match(line)
        title = lines[-1].strip() if lines else ""
        if rule is None or not title or len(line.strip()) < len(title) or _RULE.match(title):
            lines.append(line)
            continue
        yield from _split(lines[:-1], " › ".join(path))
        lines = []
        if rule[1] not in levels:
            levels.append(rule[1])
        path = [*path[: levels.index(rule[1])], title]
    yield from _split(lines, " › ".join(path))


def _text(data: bytes) -> Iterator[Passage]:
    yield from _split(_decode(data).splitlines(), "")


def _source(data: bytes) -> Iterator[Passage]:
    lines = _decode(data).splitlines()
    begin = size = 0
    for at, line in enumerate([*lines, ""]):
        size += len(line) + 1
        # A blank line ends a passage that is long enough; where there is none, its length does.
        if size < SIZE * 2 and (size < SIZE // 2 or line.strip()) and at < len(lines):
            continue
        text = "\n".join(lines[begin : at + 1])
        section = f"lines {begin + 1} to {min(at + 1, len(lines))}"
        for cut in range(0, len(text), SIZE * 3):
            yield Passage(section, text[cut : cut + SIZE * 3])
        begin, size = at + 1, 0


class _Html(HTMLParser):
    """Collects text by section; scripts and styles are left out."""

    _BLOCKS = re.compile("p|div|li|tr|pre|table|section|article|br|ul|ol|dl|dt|dd|blockquote")
    _SILENT = re.compile("script|style|noscript|template|svg|nav|head")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[tuple[str, list[str]]] = [("", [])]
        self._path: list[str] = []
        self._title: list[str] | None = None
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._SILENT.fullmatch(tag):
            self._silent += 1
        elif re.fullmatch("h[1-6]", tag):
            self._title = []
        elif self._BLOCKS.fullmatch(tag):
            self.sections[-1][1].append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._SILENT.fullmatch(tag):
            self._silent = max(0, self._silent - 1)
        elif re.fullmatch("h[1-6]", tag) and self._title is not None:
            level = int(tag[1])
            title = " ".join("".join(self._title).split())
            self._path = [*(self._path + [""] * level)[: level - 1], title]
            self.sections.append((" › ".join(filter(None, self._path)), []))
            self._title = None
        elif self._BLOCKS.fullmatch(tag):
            self.sections[-1][1].append("\n")

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        (self.sections[-1][1] if self._title is None else self._title).append(data)


def _html(data: bytes) -> Iterator[Passage]:
    parser = _Html()
    parser.feed(_decode(data))
    parser.close()
    for section, parts in parser.sections:
        lines = [" ".join(line.split()) for line in "".join(parts).splitlines()]
        yield from _split(lines, section)


def _pdf(data: bytes) -> Iterator[Passage]:
    import pypdf  # pyright: ignore[reportMissingImports]
    from pypdf.errors import PyPdfError  # pyright: ignore[reportMissingImports]

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        for number, page in enumerate(reader.pages[:MAX_PAGES], 1):
            yield from _split(page.extract_text().splitlines(), f"page {number}")
    except (PyPdfError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the PDF can't be read ({error})") from None


def _split(lines: list[str], section: str) -> Iterator[Passage]:
    """Passages of about `SIZE` characters, which end at blank lines where they can."""
    piece: list[str] = []
    size = 0
    for line in lines:
        for part in _parts(line):
            if size and size + len(part) > SIZE * 2:
                yield Passage(section, "\n".join(piece))
                piece, size = [], 0
            piece.append(part)
            size += len(part) + 1
        if size >= SIZE and not line.strip():
            yield Passage(section, "\n".join(piece))
            piece, size = [], 0
    if piece:
        yield Passage(section, "\n".join(piece))


def _parts(line: str) -> list[str]:
    return [line[at : at + SIZE] for at in range(0, len(line), SIZE)] or [""]


READERS: dict[str, Callable[[bytes], Iterator[Passage]]] = {
    ".md": _markdown,
    ".rst": _rst,
    ".txt": _text,
    ".html": _html,
    ".htm": _html,
    ".cu": _source,
    ".cuh": _source,
    ".h": _source,
    ".pdf": _pdf,
}

"""Two versions of a source side by side: what is equal, what changed, and where in a line. No Textual here.

Lines that occur once in both versions are matched first, in order; difflib fills the gaps between them. That
gives diffs along functions and statements instead of along braces, and keeps 5,000 lines fast: difflib alone
takes time that grows with the square of how often its commonest line occurs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

CONTEXT = 3  # unchanged lines shown around a change where the rest is folded
LEAST_FOLD = 3  # fewer hidden lines aren't worth a row that says so
ALIKE = 0.5  # share of two lines' words in common from which one is the other, changed
MOST_PAIRS = 40_000  # comparisons for aligning one block; beyond, lines are aligned in order
LEAST_ANCHOR = 4  # characters of a line that may be matched by being unique
_WORD = re.compile(r"\w+|\s+|\+\+|--|->|::|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|[^\w\s]")


class Row(NamedTuple):
    """A line of the view. `kind`: "=" equal, "-" old, "+" new, "~" both sides of a change beside each other,
    "…" a fold of `hidden` lines. `old`, `new`: indices of lines; in a "-" or "+" row of the unified view the
    other index, if any, is the line it was changed from or to."""

    kind: str
    old: int | None
    new: int | None
    hidden: int = 0


class Block(NamedTuple):
    """Lines [old_from, old_to) and [new_from, new_to): equal, or changed into each other."""

    equal: bool
    old_from: int
    old_to: int
    new_from: int
    new_to: int


@dataclass(frozen=True)
class View:
    """Rows to show, and the indices of the rows where a change begins."""

    rows: tuple[Row, ...]
    hunks: tuple[int, ...]


@dataclass(frozen=True)
class Diff:
    """`blocks` cover both versions in order; `pairs` aligns each changed block: (old, new) lines, one of them
    None where a line has no counterpart."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    blocks: tuple[Block, ...]
    pairs: tuple[tuple[tuple[int | None, int | None], ...], ...]

    @property
    def added(self) -> int:
        """Lines only in the new version."""
        return sum(b.new_to - b.new_from for b in self.blocks if not b.equal)

    @property
    def removed(self) -> int:
        """Lines only in the old version."""
        return sum(b.old_to - b.old_from for b in self.blocks if not b.equal)

    def view(self, *, split: bool, context: int | None = CONTEXT) -> View:
        """The rows of the split or the unified view; `context` None: nothing is folded."""
        rows: list[Row] = []
        hunks: list[int] = []
        for index, (block, pairs) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            if not block.equal:
                hunks.append(len(rows))
                rows += _beside(pairs) if split else _below(pairs)
                continue
            lines = [Row("=", i, j) for i, j in pairs if i is not None and j is not None]
            if context is None:
                rows += lines
                continue
            head = context if index else 0
            tail = context if index < len(self.blocks) - 1 else 0
            hidden = len(lines) - head - tail
            if hidden < LEAST_FOLD:
                rows += lines
                continue
            rows += lines[:head]
            first = lines[head]
            rows.append(Row("…", first.old, first.new, hidden))
            rows += lines[len(lines) - tail :]
        return View(tuple(rows), tuple(hunks))


def compare(old: Sequence[str], new: Sequence[str]) -> Diff:
    """The diff of two versions, given as lines without their ends."""
    a, b = tuple(old), tuple(new)
    blocks: list[Block] = []
    i = j = 0
    for start, other, count in [*_joined(_matches(a, b)), (len(a), len(b), 0)]:
        if start > i or other > j:
            blocks.append(Block(False, i, start, j, other))
        if count:
            blocks.append(Block(True, start, start + count, other, other + count))
        i, j = start + count, other + count
    return Diff(a, b, tuple(blocks), tuple(tuple(_aligned(a, b, block)) for block in blocks))


def _beside(pairs: Sequence[tuple[int | None, int | None]]) -> Iterator[Row]:
    for i, j in pairs:
        yield Row("~" if i is not None and j is not None else "-" if j is None else "+", i, j)


def _below(pairs: Sequence[tuple[int | None, int | None]]) -> Iterator[Row]:
    yield from (Row("-", i, j) for i, j in pairs if i is not None)
    yield from (Row("+", i, j) for i, j in pairs if j is not None)


Match = tuple[int, int, int]  # lines from i of the old and from j of the new version are equal, how many


def _joined(matches: Iterator[Match]) -> list[Match]:
    found: list[Match] = []
    for i, j, count in matches:
        if found and (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) == (i, j):
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + count)
        elif count:
            found.append((i, j, count))
    return found


def _matches(a: Sequence[str], b: Sequence[str]) -> Iterator[Match]:
    head = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    most = min(len(a), len(b)) - head
    tail = next((k for k in range(most) if a[-1 - k] != b[-1 - k]), most)
    end_a, end_b = len(a) - tail, len(b) - tail
    yield 0, 0, head
    i, j = head, head
    for x, y in [*_anchors(a, b, head, end_a, end_b), (end_a, end_b)]:
        between = SequenceMatcher(None, a[i:x], b[j:y], autojunk=max(x - i, y - j) > 400)
        for match in between.get_matching_blocks():
            yield i + match.a, j + match.b, match.size
        if x < end_a:
            yield x, y, 1
            i, j = x + 1, y + 1
    yield end_a, end_b, tail


def _anchors(a: Sequence[str], b: Sequence[str], start: int, end_a: int, end_b: int) -> list[tuple[int, int]]:
    """Lines that occur once in each version, as far as they come in the same order in both."""
    in_a, in_b = Counter(a[start:end_a]), Counter(b[start:end_b])
    at = {b[j]: j for j in range(start, end_b) if in_b[b[j]] == 1}
    common = [
        (i, at[a[i]])
        for i in range(start, end_a)
        if in_a[a[i]] == 1 and a[i] in at and len(a[i].strip()) >= LEAST_ANCHOR
    ]
    # The longest run of pairs that ascends in both: patience sorting.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(common):
        place = bisect_left(ends, j)
        before.append(last[place - 1] if place else -1)
        ends[place : place + 1], last[place : place + 1] = [j], [index]
    chain = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(common[index])
        index = before[index]
    return chain[::-1]


def _aligned(a: Sequence[str], b: Sequence[str], block: Block) -> Iterator[tuple[int | None, int | None]]:
    """The lines of a block beside each other: equal ones, or those that look like one another."""
    olds, news = range(block.old_from, block.old_to), range(block.new_from, block.new_to)
    if block.equal:
        yield from zip(olds, news, strict=True)
        return
    i, j = block.old_from, block.new_from
    for x, y in [*_alike(a, b, olds, news), (block.old_to, block.new_to)]:
        yield from ((k, None) for k in range(i, x))
        yield from ((None, k) for k in range(j, y))
        if x < block.old_to and y < block.new_to:
            yield x, y
        i, j = x + 1, y + 1


def _alike(a: Sequence[str], b: Sequence[str], olds: range, news: range) -> list[tuple[int, int]]:
    """Pairs of similar lines, in order, with the greatest similarity in sum."""
    if not olds or not news:
        return []
    words_a, words_b = [_bag(a[i]) for i in olds], [_bag(b[j]) for j in news]
    if len(olds) * len(news) > MOST_PAIRS:
        both = zip(olds, news, words_a, words_b, strict=False)
        return [(i, j) for i, j, x, y in both if _similar(x, y) >= ALIKE]
    gain = [[0.0] * (len(news) + 1) for _ in range(len(olds) + 1)]
    same = [[_similar(x, y) for y in words_b] for x in words_a]
    for i in reversed(range(len(olds))):
        row, below = gain[i], gain[i + 1]
        for j in reversed(range(len(news))):
            paired = same[i][j] + below[j + 1] if same[i][j] >= ALIKE else 0.0
            row[j] = max(paired, row[j + 1], below[j])
    found, i, j = [], 0, 0
    while i < len(olds) and j < len(news):
        if same[i][j] >= ALIKE and gain[i][j] == same[i][j] + gain[i + 1][j + 1]:
            found.append((olds[i], news[j]))
            i, j = i + 1, j + 1
        elif gain[i][j] == gain[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _bag(line: str) -> Counter[str]:
    return Counter(word for word in _WORD.findall(line) if not word.isspace())


def _similar(x: Counter[str], y: Counter[str]) -> float:
    total = x.total() + y.total()
    return 2 * (x & y).total() / total if total else 0.0


Spans = tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def emphasis(old: str, new: str) -> tuple[Spans, Spans]:
    """The parts [from, to) of a line and of what it was changed to that differ: whole words, and spaces only
    where nothing else differs."""
    a, b = _WORD.findall(old), _WORD.findall(new)
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    changed = [code for code in codes if code[0] != "equal"]
    spans = (
        _spans(old, a, [(x, y) for _, x, y, _, _ in changed]),
        _spans(new, b, [(x, y) for _, _, _, x, y in changed]),
    )
    words = _stripped(old, spans[0]), _stripped(new, spans[1])
    return words if any(words) else spans


def _spans(line: str, words: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Spans:
    """Ranges of words as parts of the line; those with only space between them are one."""
    starts = [0, *accumulate(len(word) for word in words)]
    found: list[tuple[int, int]] = []
    for start, end in ((starts[x], starts[y]) for x, y in ranges if x < y):
        if found and not line[found[-1][1] : start].strip():
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return tuple(found)


def _stripped(line: str, spans: Spans) -> Spans:
    """The spans without space at their ends; those of nothing else are left out."""
    found = []
    for start, end in spans:
        text = line[start:end]
        if text.strip():
            found.append((start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())))
    return tuple(found)

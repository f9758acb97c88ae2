"""What a timeline's columns look like: covers in, grids of characters and colours out. No Textual here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .lanes import NONE, Cover, Ints

# Codes of colours. A stage k has three: STAGE + k, lit `stages` further on, faint 2 * `stages` further on.
# INK is what is written on a stage: dark in every theme, since stages have the same colours in all of them.
OUTSIDE, IDLE, UNKNOWN, TEXT, INK, STAGE = range(6)
SPACE = ord(" ")
_EIGHTHS = np.array([ord(c) for c in " ▏▎▍▌▋▊▉█"], dtype=np.uint32)
_HEIGHTS = np.array([ord(c) for c in " ▁▂▃▄"], dtype=np.uint32)
_EDGE, _HATCH, _MARK, _HAIR, _FAINT = (ord(c) for c in "▏╱◆│·")
SOLID = 0.5  # of a column from which on it is filled
STRIP = 1 / 64  # of a column from which on its second stage gets a strip
LETTER = 0.15  # and, without colours, its letter


@dataclass(frozen=True, eq=False)
class Look:
    """How stages are shown. `focus`: a stage beside which others are faint; `plain`: letters, no colours."""

    names: Sequence[str]
    letters: Sequence[str]
    focus: int | None = None
    plain: bool = False
    name_codes: list[NDArray[np.uint32]] = field(init=False)
    letter_codes: NDArray[np.uint32] = field(init=False)

    def __post_init__(self) -> None:
        codes = [np.array([ord(c) for c in name], dtype=np.uint32) for name in self.names]
        object.__setattr__(self, "name_codes", codes)
        small = np.array([ord(c) for c in self.letters] or [SPACE], dtype=np.uint32)
        object.__setattr__(self, "letter_codes", small)

    @property
    def stages(self) -> int:
        """How many stages."""
        return len(self.names)

    @property
    def codes(self) -> int:
        """How many colour codes there are."""
        return STAGE + 3 * max(1, self.stages)


@dataclass(eq=False)
class Grid:
    """Characters (code points) and colour codes of foreground and background, all (rows, columns)."""

    text: NDArray[np.uint32]
    ink: Ints
    ground: Ints

    def copy(self) -> Grid:
        """To draw over."""
        return Grid(self.text.copy(), self.ink.copy(), self.ground.copy())


def paint(
    cover: Cover,
    look: Look,
    *,
    alive: NDArray[np.bool_],
    unknown: NDArray[np.bool_],
    lit: NDArray[np.bool_],
    payload: Ints,
) -> Grid:
    """The grid of a cover.

    `alive`: columns in which the warp lived; `unknown`: in which its events were dropped; `lit`: which belong
    to the chosen slice; `payload`: a number to write beside the stage's name, NONE for none. All (rows,
    columns).
    """
    stage, busy = cover.stage, cover.busy
    any_stage = stage != NONE
    colour = _colour(stage, look, lit)
    solid = any_stage & (busy >= SOLID)
    thin = any_stage & ~solid
    ground = np.where(solid, colour, np.where(alive, IDLE, OUTSIDE))
    ink = np.full(stage.shape, INK, dtype=np.int64)
    text = np.full(stage.shape, SPACE, dtype=np.uint32)
    grid = Grid(text, ink, ground)
    known = np.where(any_stage, stage, 0)
    if look.plain:
        _plain(grid, look, cover, known, solid, thin)
    else:
        text[thin] = _HEIGHTS[np.clip(np.ceil(busy[thin] * 8), 1, 4).astype(np.int64)]
        ink[thin] = colour[thin]
        _edges(grid, cover, colour, solid, alive)
        _boundaries(grid, cover, solid)
        _strips(grid, cover, look, solid)
        _labels(grid, cover, look, solid, payload)
    hatched = unknown & ~any_stage
    text[hatched] = _HATCH
    ink[hatched] = UNKNOWN
    return grid


def _colour(stage: Ints, look: Look, lit: NDArray[np.bool_]) -> Ints:
    colour = STAGE + np.where(stage == NONE, 0, stage)
    if look.focus is not None:
        colour = np.where(stage == look.focus, colour, colour + 2 * look.stages)
    return np.where(lit, STAGE + np.where(stage == NONE, 0, stage) + look.stages, colour)


def _plain(
    grid: Grid,
    look: Look,
    cover: Cover,
    known: Ints,
    solid: NDArray[np.bool_],
    thin: NDArray[np.bool_],
) -> None:
    """Letters: capital where a column is mostly busy; small for what ran there less, even beside another;
    "·" for what isn't looked for."""
    small = look.letter_codes[known]
    capital = np.where((small >= ord("a")) & (small <= ord("z")), small - 32, small)
    grid.text[solid] = capital[solid]
    grid.text[thin] = small[thin]
    beside = solid & (cover.second != NONE) & (cover.part >= LETTER)
    grid.text[beside] = look.letter_codes[cover.second[beside]]
    if look.focus is not None:
        shown = np.where(beside, cover.second, known)
        grid.text[(solid | thin) & (shown != look.focus)] = _FAINT


def _edges(
    grid: Grid, cover: Cover, colour: Ints, solid: NDArray[np.bool_], alive: NDArray[np.bool_]
) -> None:
    """Where a column is shared by its two neighbours' stages, the border between them to an eighth."""
    filled = np.where(solid, colour, np.where(alive, IDLE, OUTSIDE))
    before = np.concatenate([filled[:, :1], filled[:, :-1]], axis=1)
    after = np.concatenate([filled[:, 1:], filled[:, -1:]], axis=1)
    eighth = np.rint(cover.left * 8).astype(np.int64)
    shared = (before != after) & (cover.left + cover.right > 0.97) & (eighth > 0) & (eighth < 8)
    shared[:, 0] = shared[:, -1] = False
    # A neighbour on the border itself would be drawn twice.
    shared[:, 1:] &= ~shared[:, :-1]
    grid.text[shared] = _EIGHTHS[eighth[shared]]
    grid.ink[shared] = before[shared]
    grid.ground[shared] = after[shared]


def _boundaries(grid: Grid, cover: Cover, solid: NDArray[np.bool_]) -> None:
    """A line where one slice of a stage follows another."""
    item, ground = cover.item, grid.ground
    follows = np.zeros(item.shape, dtype=bool)
    follows[:, 1:] = (
        solid[:, 1:]
        & solid[:, :-1]
        & (item[:, 1:] != NONE)
        & (item[:, 1:] != item[:, :-1])
        & (ground[:, 1:] == ground[:, :-1])
    )
    grid.text[follows] = _EDGE


def _strips(grid: Grid, cover: Cover, look: Look, solid: NDArray[np.bool_]) -> None:
    """Where a column has two stages, a strip as wide as the lesser one's share: no short wait is lost."""
    free = (grid.text == SPACE) | (grid.text == _EDGE)
    mixed = solid & free & (cover.second != NONE) & (cover.part >= STRIP)
    second = cover.second[mixed]
    grid.text[mixed] = _EIGHTHS[np.clip(np.rint(cover.part[mixed] * 8), 1, 4).astype(np.int64)]
    grid.ink[mixed] = _colour(second, look, np.zeros(second.shape, dtype=bool))


def _labels(grid: Grid, cover: Cover, look: Look, solid: NDArray[np.bool_], payload: Ints) -> None:
    """Names in the runs with room for them, letters in the shorter ones."""
    rows, columns = cover.stage.shape
    run = np.where(solid & (grid.text == SPACE), cover.stage, NONE)
    change = np.ones((rows, columns), dtype=bool)
    change[:, 1:] = (run[:, 1:] != run[:, :-1]) | (cover.item[:, 1:] != cover.item[:, :-1])
    at = np.flatnonzero(change)
    width = np.diff(np.append(at, rows * columns))
    stage = run.ravel()[at]
    room = (stage != NONE) & (width >= 3)
    flat, numbers = grid.text.reshape(-1), payload.ravel()
    for x, n, k in zip(at[room].tolist(), width[room].tolist(), stage[room].tolist(), strict=True):
        name = look.name_codes[k]
        if n < len(name) + 2:
            flat[x + n // 2] = look.letter_codes[k]
            continue
        flat[x + 1 : x + 1 + len(name)] = name
        number = int(numbers[x])
        if number != NONE and n >= len(name) + 3 + len(digits := str(number)):
            x += len(name) + 2
            flat[x : x + len(digits)] = [ord(c) for c in digits]


def mark(grid: Grid, where: NDArray[np.bool_]) -> None:
    """Put the glyph of marks on some cells."""
    grid.text[where] = _MARK
    grid.ink[where] = TEXT


def hairline(grid: Grid, row: int, column: int) -> None:
    """The cursor: a line through every row where nothing is written, and a bright cell in its own row."""
    if not 0 <= column < grid.text.shape[1]:
        return
    free = grid.text[:, column] == SPACE
    grid.text[free, column] = _HAIR
    grid.ink[free, column] = TEXT
    if 0 <= row < len(grid.text):
        grid.ink[row, column], grid.ground[row, column] = OUTSIDE, TEXT

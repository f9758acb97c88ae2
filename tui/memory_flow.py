"""How data moved between an SM, its L1, the L2 and DRAM in one launch, and how that is drawn. No Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..telemetry.ncu.counters import Counters
from .braille import bar
from .format import NONE, clip

SECTOR = 32  # bytes
WIDE = 86  # columns from which on it is drawn from left to right
_LD = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_ST = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
_L2_READ, _L2_WRITE = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"
# link -> (counter of what is read, of what is written), each with its bytes a unit; the first that was read.
_LINKS: tuple[tuple[str, str, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]], ...] = (
    ("SM", "L1", ((_LD, SECTOR),), ((_ST, SECTOR),)),
    (
        "L1",
        "L2",
        (("l1tex__m_xbar2l1tex_read_bytes.sum", 1), (_L2_READ, SECTOR)),
        (("l1tex__m_l1tex2xbar_write_bytes.sum", 1), (_L2_WRITE, SECTOR)),
    ),
    ("L2", "DRAM", (("dram_read_bytes", 1),), (("dram_write_bytes", 1),)),
)


@dataclass(frozen=True)
class Link:
    """Traffic between two levels, bytes of the launch; None where it wasn't read. `share`: of the largest
    traffic of the launch, 0..1, which is how thick it is drawn."""

    upper: str
    lower: str
    read: float | None
    written: float | None
    seconds: float | None

    def rate(self, moved: float | None) -> float | None:
        """Bytes a second."""
        return moved / self.seconds if moved is not None and self.seconds else None

    @property
    def total(self) -> float | None:
        """Both directions; None where neither was read."""
        known = [moved for moved in (self.read, self.written) if moved is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class Level:
    """One place. `hit`: share of its requests that it answered itself, 0..1; `busy`: share of its peak."""

    name: str
    hit: float | None
    busy: float | None


@dataclass(frozen=True)
class Flow:
    """Levels from the SM to DRAM, the three links between them, shared memory in words, and what is said
    where nothing was read."""

    levels: tuple[Level, ...]
    links: tuple[Link, ...]
    shared: str
    missing: str = ""


def flow(counters: Counters) -> Flow:
    """What the counters say of it."""

    def share(name: str) -> float | None:
        metric = counters.metrics.get(name)
        return None if metric is None else metric.norm

    def moved(ways: Sequence[tuple[str, int]]) -> float | None:
        return next((v * unit for name, unit in ways if (v := counters.value(name)) is not None), None)

    duration = counters.value("duration_ns")
    seconds = duration * 1e-9 if duration else None
    links = tuple(Link(a, b, moved(read), moved(written), seconds) for a, b, read, written in _LINKS)
    levels = (
        Level("SM", None, share("sm_throughput_pct")),
        Level("L1", share("l1_hit_rate"), share("l1_throughput_pct")),
        Level("L2", share("l2_hit_rate"), share("l2_throughput_pct")),
        Level("DRAM", None, share("dram_bw_pct")),
    )
    known = any(link.total is not None for link in links)
    missing = "" if known else "traffic was not collected; the metric sets memory and full have it"
    return Flow(levels, links, _shared_words(counters), missing)


def _shared_words(counters: Counters) -> str:
    """ "shared memory: 103 k passes, 0.0% of them bank conflicts"."""
    passes, conflicts = counters.value("shared_wavefronts"), counters.value("bank_conflict_pct")
    if passes is None:
        return ""
    if not passes:
        return "shared memory: not used"
    words = f"shared memory: {_scaled(passes).strip()} passes"
    return words if conflicts is None else f"{words}, {conflicts:.1f}% of them bank conflicts"


def _scaled(value: float) -> str:
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:#.3g}".rstrip(".") + f" {prefix}"
    return f"{value:.3g} "


def rate_words(link: Link, moved: float | None) -> str:
    """ "957 GB/s", or the bytes where the duration is unknown."""
    if moved is None:
        return NONE
    rate = link.rate(moved)
    return f"{_scaled(moved)}B" if rate is None else f"{_scaled(rate)}B/s"


def percent_words(share: float | None) -> str:
    """ "52.7%"."""
    return NONE if share is None else f"{100 * share:.1f}%"


def drawn(found: Flow, width: int) -> list[str]:
    """Lines of at most `width` characters: boxes from left to right where there is room, else one below the
    other."""
    if found.missing:
        return [clip(found.missing, width)]
    lines = _beside(found, width) if width >= WIDE else _below(found, width)
    return [line.rstrip() for line in lines] + ([clip(found.shared, width)] if found.shared else [])


def _arrow(moved: float | None, most: float, width: int, *, forward: bool) -> str:
    """As thick as its share of the largest traffic: nothing moved is dotted, unknown is a question mark."""
    if moved is None:
        return "?".center(width)
    line = "┄" if moved <= 0 else "─" if moved < most / 8 else "━" if moved < most / 1.5 else "═"
    body = line * (width - 1)
    return body + "▶" if forward else "◀" + body


def _most(found: Flow) -> float:
    return max((m for link in found.links for m in (link.read, link.written) if m), default=1.0)


def _box(level: Level) -> tuple[str, str, str]:
    """Name and two lines of words."""
    second = f"hit {percent_words(level.hit)}" if level.name in ("L1", "L2") else ""
    return level.name, second, f"{percent_words(level.busy)} busy"


def _beside(found: Flow, width: int) -> list[str]:
    inner = 11
    gap = min(22, (width - 4 * (inner + 2)) // 3)
    most = _most(found)
    boxes = [_box(level) for level in found.levels]
    rows = ["", "", "", "", "", ""]
    for i, texts in enumerate(boxes):
        words = [texts[0], texts[1], texts[2], ""]
        box = [f"┌{'─' * inner}┐", *(f"│{text:^{inner}}│" for text in words), f"└{'─' * inner}┘"]
        if i < len(found.links):
            link = found.links[i]
            between = [
                "",
                rate_words(link, link.read).center(gap),
                _arrow(link.read, most, gap, forward=False),
                _arrow(link.written, most, gap, forward=True),
                rate_words(link, link.written).center(gap),
                "",
            ]
        else:
            between = [""] * 6
        for y in range(6):
            rows[y] += box[y] + (between[y].ljust(gap) if i < len(found.links) else "")
    return rows


def _below(found: Flow, width: int) -> list[str]:
    """A line a level, and one a link between two of them."""
    most = _most(found)
    lines = []
    for i, level in enumerate(found.levels):
        name, hit, _ = _box(level)
        words = f"{percent_words(level.busy):>6} busy"
        room = max(0, min(14, width - 7 - len(words) - 13))
        filled = f"{bar(level.busy or 0.0, room)} " if room >= 4 else ""
        lines.append(clip(f"[{name:^4}] {filled}{words}  {hit}".rstrip(), width))
        if i < len(found.links):
            link = found.links[i]
            up, down = ("".join(_stem(m, most)) for m in (link.read, link.written))
            read, written = rate_words(link, link.read), rate_words(link, link.written)
            lines.append(clip(f"  ▲{up} {read:<{max(11, min(24, width // 2 - 5))}}▼{down} {written}", width))
    return lines


def _stem(moved: float | None, most: float) -> str:
    if moved is None:
        return "?"
    return "┆" if moved <= 0 else "│" if moved < most / 8 else "┃" if moved < most / 1.5 else "║"

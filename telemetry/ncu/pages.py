"""Parse what `ncu --import … --csv` prints: the page `raw` (metrics) and the page `source` (instructions).

Columns are read by name, since their set differs by version. Lines of the log and of the profiled program
may be mixed in. Malformed text gives one `NcuError`; a single odd row is left out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .counters import Metric
from .errors import bad_report
from .launch import NO_VALUE, Instruction, Launch, base_unit, has_no_value, number
from .metrics import stall_name

_FACTS = ("Block Size", "Grid Size", "Device", "CC", "Context", "Stream", "Process ID", "Process Name", "ID")
_SAMPLE_COLUMNS = ("# Samples", "Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)")
_EXECUTED = "Instructions Executed"


def parse_raw(text: str) -> list[Launch]:
    """The launches of a page `raw`, in its order, without instructions. Raises NcuError without a header.

    Values are in base units whatever `--print-units` was.
    """
    header: list[str] | None = None
    units: list[str] = []
    launches: list[Launch] = []
    for row in _rows(text):
        if row[0] == "ID" and "Kernel Name" in row:
            header, units = row, []
        elif header is not None and len(row) == len(header):
            if not units and not row[0].strip():
                units = row
            elif row[0].strip().isdecimal():
                launches.append(_launch(header, units or [""] * len(header), row))
    if header is None:
        raise bad_report("the page 'raw'", 'it has no header row that starts with "ID"')
    return launches


def _launch(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> Launch:
    metrics: dict[str, Metric] = {}
    absent: dict[str, str] = {}
    texts: dict[str, str] = {}
    kernel = ""
    for name, unit, cell in zip(header, units, row, strict=True):
        if name == "Kernel Name":
            kernel = cell
        elif name in _FACTS:
            texts[name] = cell
        elif (value := number(cell)) is not None:
            metrics[name] = Metric(*base_unit(value, unit))
        elif has_no_value(cell):
            absent[name] = NO_VALUE
        else:
            texts[name] = cell
    return Launch(kernel, metrics, absent, texts)


@dataclass(frozen=True)
class Page:
    """The instructions of one launch, each once, in address order."""

    kernel: str
    instructions: tuple[Instruction, ...]


def parse_source(text: str) -> list[Page]:
    """The launches of a page `source` in its order, of the view `sass` or `cuda,sass`.

    An instruction of inlined code stands in that view under each file it came from; the first one, which is
    the caller's, counts. Raises NcuError where the text holds no such page.
    """
    pages: list[Page] = []
    kernel: str | None = None
    found: dict[int, Instruction] = {}
    file = ""
    seen: set[tuple[str, str]] = set()  # (file, function) sections of the launch that is being read
    columns: _Columns | None = None
    line, source = 0, ""

    def close() -> None:
        if kernel is not None:
            pages.append(Page(kernel, tuple(found[address] for address in sorted(found))))

    for row in _rows(text):
        title = row[0]
        if title == "Kernel Name" and len(row) <= 3 and len(row) > 1:
            close()
            kernel, found, file, seen, columns = row[1], {}, "", set(), None
        elif title == "File Path" and len(row) in (2, 3):
            file, columns = row[1], None
        elif title == "Function Name" and len(row) in (2, 3):
            # No row says where the next launch begins: it does with another function, or when a file that
            # this launch already had comes again.
            if kernel != row[1] or (file, row[1]) in seen:
                close()
                kernel, found, seen = row[1], {}, set()
            seen.add((file, row[1]))
            columns, line, source = None, 0, ""
        elif (made := _Columns.of(row)) is not None:
            columns = made
        elif kernel is not None and columns is not None and len(row) == columns.count:
            if (number_of_line := columns.line(row)) is not None:
                line, source = number_of_line
            if (read := columns.instruction(row, len(found), file, line, source)) is not None:
                found.setdefault(read.address, read)
    close()
    if not pages:
        raise bad_report("the page 'source'", "it has no row that names a kernel")
    return pages


@dataclass(frozen=True)
class _Columns:
    """Where the columns of a source table are."""

    count: int
    address: int | None
    sass: int
    line_number: int | None
    samples: int | None
    executed: int | None
    stalls: Mapping[str, int]

    @classmethod
    def of(cls, row: Sequence[str]) -> _Columns | None:
        """The columns that a header row names; None for any other row."""
        places = [i for i, name in enumerate(row) if name == "Source"]
        if not places or row[0] not in ("Address", "Line No", "#"):
            return None
        with_lines = row[0] == "Line No"
        if with_lines and (len(places) < 2 or "Address" not in row):
            return None  # the view `cuda` alone has no instructions
        index = {name: i for i, name in reversed(list(enumerate(row)))}
        return cls(
            count=len(row),
            address=index.get("Address"),
            sass=places[1] if with_lines else places[0],
            line_number=0 if with_lines else None,
            samples=next((index[name] for name in _SAMPLE_COLUMNS if name in index), None),
            executed=index.get(_EXECUTED),
            stalls={
                stall_name(name.removeprefix("stall_")): i
                for name, i in index.items()
                if name.startswith("stall_") and "(" not in name
            },
        )

    def line(self, row: Sequence[str]) -> tuple[int, str] | None:
        """The line of source that the rows below come from; None if this row does not start one."""
        if self.line_number is None or not row[self.line_number].strip().isdecimal():
            return None
        return int(row[self.line_number]), row[self.line_number + 1].strip()

    def instruction(
        self, row: Sequence[str], index: int, file: str, line: int, source: str
    ) -> Instruction | None:
        """The instruction in a row; None for rows of source lines and for gaps ("...")."""
        address = _address(row[self.address]) if self.address is not None else index * 16
        if address is None:
            return None
        counts = {reason: _count(row[i]) for reason, i in self.stalls.items()}
        return Instruction(
            address=address,
            sass=row[self.sass].strip(),
            file=file,
            line=line,
            source=source,
            samples=_count(row[self.samples]) if self.samples is not None else 0,
            executed=_count(row[self.executed]) if self.executed is not None else 0,
            stalls={reason: count for reason, count in counts.items() if count},
        )


def _address(cell: str) -> int | None:
    try:
        return int(cell.strip(), 0)
    except ValueError:
        return None


def _count(cell: str) -> int:
    """A number of samples or executions; "-" is none."""
    value = number(cell)
    return int(value) if value is not None and value > 0 else 0


def _rows(text: str) -> Iterator[list[str]]:
    """The CSV rows in a text; lines that are not quoted CSV belong to a log and are left out."""
    for line in text.splitlines():
        if not line.startswith('"'):
            continue
        try:
            row = next(csv.reader([line], strict=True), None)
        except csv.Error:
            continue
        if row:
            yield row

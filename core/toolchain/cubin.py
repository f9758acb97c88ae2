"""What a cubin (an ELF file) says about its kernels, and when two cubins hold the same machine code.

Standard library only: no driver, no CUDA binary tools. Section and attribute numbers are those that
`cuobjdump -elf` prints.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NOBITS, _SYMTAB, _REL, _RELA = 8, 2, 9, 4
_OBJECT = 1  # kind of a symbol: a variable
_ATTR_MAX_THREADS, _ATTR_REQNTID, _ATTR_FRAME, _ATTR_MIN_STACK = 0x05, 0x10, 0x11, 0x12
_ATTR_KPARAM, _ATTR_MAXREG, _ATTR_REGCOUNT, _ATTR_BARRIERS = 0x17, 0x1B, 0x2F, 0x4C
# From sm_90 on .nv.shared counts the kilobyte that the system reserves in every block.
RESERVED_SHARED = 1024


@dataclass(frozen=True)
class KernelInfo:
    """One kernel's resources. Sizes in bytes."""

    symbol: str
    registers: int
    spill_bytes: int  # stores + loads, its own and those of functions it may call; only the log knows
    shared_bytes: int  # static, without the architecture's reserved kilobyte
    local_bytes: int  # stack frame
    barriers: int
    code_bytes: int
    max_threads: int | None = None  # from __launch_bounds__ or a required block size
    register_limit: int | None = None  # the cap the assembler obeyed; None where nothing was asked
    parameters: tuple[int, ...] = ()  # bytes of each parameter, in order


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int
    data: bytes  # empty for NOBITS


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


class Cubin:
    """A parsed cubin. Raises ValueError if the bytes aren't a well-formed 64-bit ELF cubin."""

    def __init__(self, data: bytes) -> None:
        try:
            self._parse(data)
        except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise ValueError(f"damaged cubin: {error}") from error

    def _parse(self, data: bytes) -> None:
        if data[:5] != b"\x7fELF\x02":
            raise ValueError("not a 64-bit ELF cubin")
        (table,) = struct.unpack_from("<Q", data, 0x28)
        (self._flags,) = struct.unpack_from("<I", data, 0x30)
        entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry) for i in range(count)]
        if not headers:
            raise ValueError("damaged cubin: no sections")
        if any(h[1] != _NOBITS and h[4] + h[5] > len(data) for h in headers):
            raise ValueError("damaged cubin: a section lies outside the file")

        def text(string_table: int, offset: int) -> str:
            start = headers[string_table][4] + offset
            end = data.find(b"\0", start)
            if end < 0:
                raise ValueError("damaged cubin: a name has no end")
            return data[start:end].decode()

        self.sections: list[_Section] = []
        self.symbols: list[_Symbol] = []
        for h in headers:
            body = b"" if h[1] == _NOBITS else data[h[4] : h[4] + h[5]]
            self.sections.append(_Section(text(names, h[0]), h[1], h[4], h[5], h[6], h[7], body))
        for section in self.sections:
            if section.kind != _SYMTAB:
                continue
            for at in range(0, section.size - 23, 24):
                name, info, _other, index, value, size = struct.unpack_from("<IBBHQQ", section.data, at)
                self.symbols.append(_Symbol(text(section.link, name), info & 15, index, value, size))
        self._read_attributes()

    def _read_attributes(self) -> None:
        self._module: dict[str, dict[int, int]] = {}
        self._kernel: dict[str, list[tuple[int, bytes]]] = {}
        for section in self.sections:
            if section.name == ".nv.info":
                for attribute, value in _attributes(section.data):
                    if attribute in (_ATTR_REGCOUNT, _ATTR_FRAME, _ATTR_MIN_STACK) and len(value) == 8:
                        symbol, number = struct.unpack("<II", value)
                        self._module.setdefault(self.symbols[symbol].name, {})[attribute] = number
            elif section.name.startswith(".nv.info."):
                self._kernel[section.name[9:]] = list(_attributes(section.data))
        self._by_name = {section.name: section for section in self.sections}

    @property
    def kernels(self) -> list[str]:
        """Symbols of the kernels (not of device functions)."""
        return [name for name in self._kernel if f".text.{name}" in self._by_name]

    @property
    def compute_capability(self) -> int:
        """Major × 10 + minor, for example 90."""
        note = self._by_name.get(".note.nv.cuinfo")
        if note is None or len(note.data) < 28:
            return self._flags & 0xFF  # toolkits before 13 keep it here and write no such note
        return struct.unpack_from("<H", note.data, 26)[0]

    def data(self, symbol: str) -> bytes | None:
        """The initial bytes of a variable; None if there is no such variable, or it starts as zeros.

        Raises ValueError if it lies outside its section.
        """
        found = next((s for s in self.symbols if s.name == symbol and s.kind == _OBJECT), None)
        if found is None or not 0 < found.section < len(self.sections):
            return None
        section = self.sections[found.section]
        if section.kind == _NOBITS:
            return None
        data = section.data[found.value : found.value + found.size]
        if len(data) != found.size:
            raise ValueError(f"damaged cubin: {symbol} lies outside its section")
        return data

    def info(self, symbol: str, log: str = "") -> KernelInfo:
        """Resources of one kernel; `log` is the assembler's verbose output (`-v`), for the spills.

        Raises KeyError if there is no such kernel, ValueError if its attributes are damaged.
        """
        text = self._by_name[f".text.{symbol}"]
        attributes = dict(self._kernel[symbol])
        module = self._module.get(symbol, {})
        shared = self._by_name.get(f".nv.shared.{symbol}")
        reserved = RESERVED_SHARED if self.compute_capability >= 90 else 0
        static = max(0, shared.size - reserved) if shared else 0
        threads = attributes.get(_ATTR_MAX_THREADS) or attributes.get(_ATTR_REQNTID)
        limit = _number(attributes.get(_ATTR_MAXREG))
        return KernelInfo(
            symbol=symbol,
            registers=module.get(_ATTR_REGCOUNT, 0),
            spill_bytes=spill_bytes(log, symbol, self.kernels),
            shared_bytes=static,
            local_bytes=module.get(_ATTR_FRAME, 0),
            barriers=_number(attributes.get(_ATTR_BARRIERS)) & 0xFF,
            code_bytes=text.size,
            max_threads=_product(threads) if threads else None,
            register_limit=limit if 0 < limit < 255 else None,
            parameters=_parameters(self._kernel[symbol]),
        )

    def code_hash(self, symbols: Sequence[str]) -> str:
        """Sixteen hex digits over what the GPU sees when these kernels run, in this order.

        Machine code, constants, initialised data, relocations, registers, stack, shared memory,
        barriers, parameters. Names, line information and the register cap that was asked for don't
        count, so that a cap which changes nothing ties with no cap. Raises as `info` does.
        """
        digest = hashlib.sha256()
        for position, symbol in enumerate(symbols):
            module = self._module.get(symbol, {})
            digest.update(f"kernel {position} {sorted(module.items())}".encode())
            for attribute, value in self._kernel[symbol]:
                if attribute in (_ATTR_KPARAM, _ATTR_MAX_THREADS, _ATTR_REQNTID, _ATTR_BARRIERS):
                    digest.update(bytes([attribute]) + value)
        wanted = {symbol: f"<{position}>" for position, symbol in enumerate(symbols)}
        others = set(self.kernels) - set(symbols)
        for section in sorted(self.sections, key=lambda s: self._canonical(s.name, wanted)):
            name = section.name
            if not _matters(name) or any(name.endswith("." + other) for other in others):
                continue
            digest.update(f"{self._canonical(name, wanted)} {section.size}\n".encode())
            if section.kind in (_REL, _RELA):
                for line in self._relocations(section, wanted):
                    digest.update(line.encode())
            else:
                digest.update(section.data)
        return digest.hexdigest()[:16]

    def _canonical(self, name: str, wanted: dict[str, str]) -> str:
        """A section's name with a kernel's symbol (which holds its source's name) replaced."""
        for symbol, place in wanted.items():
            if name.endswith("." + symbol):
                return name[: -len(symbol)] + place
        return name

    def _relocations(self, section: _Section, wanted: dict[str, str]) -> Iterator[str]:
        size = 24 if section.kind == _RELA else 16
        for at in range(0, section.size - size + 1, size):
            offset, info = struct.unpack_from("<QQ", section.data, at)
            addend = struct.unpack_from("<q", section.data, at + 16)[0] if size == 24 else 0
            if info >> 32 >= len(self.symbols):
                raise ValueError("damaged cubin: a relocation names no symbol")
            symbol = self.symbols[info >> 32]
            if 0 < symbol.section < len(self.sections):
                target = self._canonical(self.sections[symbol.section].name, wanted)
            else:
                target = symbol.name  # undefined here: the driver's, such as vprintf
            yield f"{offset} {info & 0xFFFFFFFF} {addend} {target} {symbol.value} {symbol.size}\n"


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The attribute records of a .nv.info section: format, number, then a value or a sized value."""
    at = 0
    while at + 4 <= len(data):
        form, attribute = data[at], data[at + 1]
        if form == 4:
            (size,) = struct.unpack_from("<H", data, at + 2)
            yield attribute, data[at + 4 : at + 4 + size]
            at += 4 + size
        else:
            yield attribute, data[at + 2 : at + 4]
            at += 4
        at = (at + 3) & ~3


def _number(value: bytes | None) -> int:
    return int.from_bytes(value[:2], "little") if value else 0


def _parameters(attributes: list[tuple[int, bytes]]) -> tuple[int, ...]:
    records = [value for attribute, value in attributes if attribute == _ATTR_KPARAM]
    if any(len(value) < 12 for value in records):
        raise ValueError("damaged cubin: a parameter's record is cut short")
    unpacked = [struct.unpack_from("<IHHI", value) for value in records]
    sizes = {ordinal: word >> 18 for _, ordinal, _, word in unpacked}
    return tuple(sizes[ordinal] for ordinal in sorted(sizes))


def _product(value: bytes) -> int:
    if len(value) < 12:
        raise ValueError("damaged cubin: launch bounds are cut short")
    x, y, z = struct.unpack("<III", value[:12])
    return x * y * z


def _matters(name: str) -> bool:
    """Whether a section's content changes what runs."""
    base = name.removeprefix(".rela").removeprefix(".rel")
    return base.startswith((".text.", ".nv.constant", ".nv.global", ".nv.shared."))


_FUNCTION = re.compile(r"Function properties for '?([^\s']+)")
# nvJitLink and NVRTC write a dotted prefix where the ptxas program writes four spaces.
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def spill_bytes(log: str, symbol: str, kernels: Sequence[str] = ()) -> int:
    """Spill stores + loads of a kernel, bytes, from the assembler's verbose log.

    Device functions that were not inlined have entries of their own, without their callers: their
    spills count for every kernel.
    """
    total, function = 0, ""
    others = set(kernels) - {symbol}
    for line in log.splitlines():
        if found := _FUNCTION.search(line):
            function = found[1]
        elif (found := _SPILLS.search(line)) and function not in others:
            total += int(found[2]) + int(found[3])
    return total

"""CUPTI's kernel activity records, read through its C interface.

The Python binding makes an object of every record, at 60 us apiece: longer than most kernels tuned here. The
functions used and the fields read (kind, start, end, name) have had one layout since CUDA 11.
Runs in a worker only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .records import Record

_CONCURRENT_KERNEL = 10
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers that aren't full are handed over too
_BUFFER_BYTES = 128 << 10  # holds some 600 records; a batch has at most 256
_RECORD = struct.Struct("<I12xQQ72xQ")  # kind, start, end, name

_Request = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Complete = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class CuptiError(Exception):
    """CUPTI is missing, or refuses."""


def find_library() -> ctypes.CDLL:
    """libcupti: of NVIDIA's wheels, else of the system. Raises CuptiError."""
    candidates: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for part in ("cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"):
            if Path(root, part).exists():
                candidates.append(str(Path(root, part)))
    candidates += ["libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"]
    problem = ""
    for name in candidates:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = problem or str(error)
    raise CuptiError(f"libcupti doesn't load ({problem}): pip install 'warpdeck[cuda]'")


class KernelRecords:
    """Collects a record of every kernel that this process runs. Start it before CUDA is initialised."""

    def __init__(self) -> None:
        self._library = find_library()
        self._rows: list[Record] = []
        self._free: list[Any] = []
        self._lent: dict[int, Any] = {}
        self._callbacks = (_Request(self._request), _Complete(self._complete))  # must outlive the library
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        self.enable()

    def enable(self) -> None:
        """Record from the next launch on. Raises CuptiError."""
        self._call("cuptiActivityEnable", ctypes.c_int(_CONCURRENT_KERNEL))

    def disable(self) -> None:
        """Record nothing from the next launch on."""
        self._call("cuptiActivityDisable", ctypes.c_int(_CONCURRENT_KERNEL))

    def drain(self, *, forced: bool = True) -> list[Record]:
        """Take the records of every kernel that has ended, in no order. Raises CuptiError.

        Not `forced`, none may come while another kernel runs; but CUPTI keeps its buffer on the device, and a
        new one costs the next launch 0.2 ms.
        """
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FORCED if forced else 0))
        rows, self._rows = self._rows, []
        return rows

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(ctypes.c_int(code), ctypes.byref(text))
            raise CuptiError(f"{function}: {(text.value or b'').decode() or f'error {code}'}")

    def _request(self, buffer: Any, size: Any, limit: Any) -> None:
        memory = self._free.pop() if self._free else (ctypes.c_uint64 * (_BUFFER_BYTES // 8))()
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], limit[0] = address, _BUFFER_BYTES, 0

    def _complete(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        names: dict[int, str] = {}
        for place in self._places(buffer, valid):
            kind, start, end, pointer = _RECORD.unpack(ctypes.string_at(place, _RECORD.size))
            if kind != _CONCURRENT_KERNEL:
                continue
            if pointer not in names:
                names[pointer] = ctypes.string_at(pointer).decode() if pointer else ""
            self._rows.append((names[pointer], start, end))
        memory = self._lent.pop(buffer, None)
        if memory is not None:
            self._free.append(memory)

    def _places(self, buffer: int, valid: int) -> Iterator[int]:
        """Addresses of a buffer's records."""
        record = ctypes.c_void_p()
        arguments = (ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record))
        while self._library.cuptiActivityGetNextRecord(*arguments) == 0 and record.value:
            yield record.value

"""Runs a bundled Numba kernel on the CPU, one OS thread per CUDA thread, with NumPy arrays as memory.

Numba's own simulator knows neither shuffles nor intrinsics; this knows what the bundled kernels use, and is
stricter than a GPU: vector accesses must be aligned and inside their array, indices not negative, and
shared and local memory start as NaN.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numba.np.numpy_support import as_dtype

from warpdeck.core.model import Launch

_here = threading.local()  # the running thread's coordinates and block
_atomics = threading.Lock()


class _Block:
    """What the threads of one block share."""

    def __init__(self, index: tuple[int, int], threads: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        self.shared: dict[int, np.ndarray] = {}
        self.barrier = threading.Barrier(threads)
        self.warps = [threading.Barrier(min(32, threads - first)) for first in range(0, threads, 32)]
        self.lanes = np.zeros(threads, np.float32)

    def abort(self) -> None:
        for barrier in (self.barrier, *self.warps):
            barrier.abort()


def _blank(shape: Any, dtype: Any) -> np.ndarray:
    kind = as_dtype(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else -1, kind)


class _Cuda:
    """The part of `numba.cuda` that the bundled kernels use."""

    threadIdx = property(lambda self: SimpleNamespace(x=_here.thread))
    blockIdx = property(lambda self: SimpleNamespace(x=_here.block.index[0], y=_here.block.index[1]))
    gridDim = property(lambda self: SimpleNamespace(x=_here.launch.grid[0], y=_here.launch.grid[1]))
    blockDim = property(lambda self: SimpleNamespace(x=_here.launch.block[0]))

    def __init__(self) -> None:
        self.shared = SimpleNamespace(array=self._shared)
        self.local = SimpleNamespace(array=lambda shape, dtype, alignment=None: _blank(shape, dtype))
        self.atomic = SimpleNamespace(add=self._atomic_add)

    def jit(self, **options: Any) -> Callable[[Any], Any]:
        assert options["device"]
        return lambda function: function

    def grid(self, dimensions: int) -> int:
        assert dimensions == 1
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x

    def gridsize(self, dimensions: int) -> int:
        assert dimensions == 1
        return self.gridDim.x * self.blockDim.x

    def syncthreads(self) -> None:
        _here.block.barrier.wait(60)

    def threadfence(self) -> None:
        """Python's memory is coherent."""

    def _shared(self, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray:
        number = _here.declared = _here.declared + 1  # every thread declares its arrays in the same order
        with _here.block.lock:
            return _here.block.shared.setdefault(number, _blank(shape, dtype))

    def _atomic_add(self, array: np.ndarray, index: int, value: Any) -> Any:
        with _atomics:
            old = array[index].copy()
            array[index] += value
            return old


def _mover(width: int) -> Callable[..., None]:
    def move(target: np.ndarray, i: int, source: np.ndarray, j: int) -> None:
        for array, at in ((target, i), (source, j)):
            assert 0 <= at <= array.size - width, f"access of {width} at {at} leaves {array.size} elements"
            assert at % width == 0, f"access of {width} at {at} is misaligned"
        target.reshape(-1)[i : i + width] = source.reshape(-1)[j : j + width]

    return move


def _load_flat(array: np.ndarray, offset: int) -> np.float32:
    assert 0 <= offset < array.size
    return array.reshape(-1)[offset]


def _store_flat(array: np.ndarray, offset: int, value: float) -> None:
    assert 0 <= offset < array.size
    array.reshape(-1)[offset] = value


def _warp(combine: Callable[[np.ndarray], np.float32]) -> Callable[[float], np.float32]:
    def across(value: float) -> np.float32:
        block, thread = _here.block, _here.thread
        warp = thread // 32
        block.lanes[thread] = value
        block.warps[warp].wait(60)
        result = combine(block.lanes[warp * 32 : warp * 32 + 32])
        block.warps[warp].wait(60)
        return result

    return across


def _substitutes() -> dict[str, Any]:
    movers = {width: _mover(width) for width in (1, 2, 4)}
    names = ("COPY", "LOAD_STREAMING", "STORE_STREAMING")
    return {
        **dict.fromkeys(names, movers),
        "cuda": _Cuda(),
        "load_flat": _load_flat,
        "store_flat": _store_flat,
        "warp_sum": _warp(lambda values: values.sum(dtype=np.float32)),
        "warp_max": _warp(np.max),
    }


def load(file: Path) -> ModuleType:
    """A kernel module whose `make` returns a function for `launch`."""
    spec = importlib.util.spec_from_file_location(f"_emulated_{file.parent.name}_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, substitute in _substitutes().items():
        if hasattr(module, name):
            setattr(module, name, substitute)
    return module


def launch(kernel: Callable[..., None], where: Launch, arguments: Mapping[str, np.ndarray]) -> None:
    """Run a kernel block by block. Raises the first thread's exception."""
    for y in range(where.grid[1]):
        for x in range(where.grid[0]):
            _run_block(kernel, where, (x, y), tuple(arguments.values()))


def _run_block(
    kernel: Callable[..., None], where: Launch, index: tuple[int, int], arguments: tuple[np.ndarray, ...]
) -> None:
    block = _Block(index, where.block[0])
    failures: list[Exception] = []

    def body(thread: int) -> None:
        _here.thread, _here.block, _here.launch, _here.declared = thread, block, where, 0
        try:
            with np.errstate(all="ignore"):
                kernel(*arguments)
        except Exception as error:
            if not isinstance(error, threading.BrokenBarrierError):
                failures.append(error)
            block.abort()

    threads = [threading.Thread(target=body, args=(i,)) for i in range(where.block[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert not block.barrier.broken

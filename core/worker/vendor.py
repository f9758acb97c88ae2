"""A vendor library's call, timed like a candidate. Imports torch, so only trusted workloads come here.

Runs in a worker only.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..model import Protocol, Status
from .buffers import Binding
from .faults import WorkerFault
from .gpu import Gpu, Operation
from .lane import Lane
from .measure import Meter, Subject

_CALLS_BEFORE = 5  # libraries choose algorithms and allocate workspaces in their first calls


def import_torch() -> Any:
    """torch. Raises WorkerFault (unsupported) where it doesn't import. Touches no GPU."""
    try:
        import torch
    except ImportError as error:
        raise WorkerFault(Status.UNSUPPORTED, f"no vendor time: torch doesn't import ({error})") from None
    return torch


class _Array:
    """Device memory as torch can wrap it."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: str) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (pointer, False),
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "strides": None,
            "stream": None,
        }


class Library:
    """torch, imported, and the workload's `vendor` function."""

    def __init__(self, path: str, gpu: Gpu) -> None:
        torch = import_torch()
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.torch = torch
        self.name = f"torch {torch.__version__}"
        self.device = f"cuda:{gpu.ordinal}"
        try:
            torch.cuda.set_device(gpu.ordinal)
            self.stream = torch.cuda.ExternalStream(int(gpu.stream))
        except (AttributeError, RuntimeError) as error:  # torch without CUDA
            raise WorkerFault(Status.UNSUPPORTED, f"no vendor time: {error}") from None
        self.function = _load(Path(path))


class VendorSubject(Subject):
    """`vendor(torch, **tensors)` in place of a kernel launch; its kernels are learnt from one call."""

    def __init__(self, lane: Lane, binding: Binding, library: Library) -> None:
        super().__init__(lane, binding, "", "", [])
        self._library = library
        accepted = inspect.signature(library.function).parameters
        self._everything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        self._accepted = set(accepted)
        self.names: tuple[str, ...] | None = None

    def launches(self, index: int) -> list[Operation]:
        """One operation: the call on this set's tensors."""
        if index not in self._packed:
            library, torch = self._library, self._library.torch
            target = self.binding.sets[index]
            tensors: dict[str, Any] = {}
            for argument in self.binding.arguments:
                name = argument.name
                if not self._everything and name not in self._accepted:
                    continue
                if argument.kind == "scalar":
                    tensors[name] = argument.value
                elif argument.kind == "buffer":
                    array = _Array(target.pointers[name], tuple(argument.shape), argument.dtype)
                    tensors[name] = torch.as_tensor(array, device=library.device)

            def call() -> tuple[int]:
                with torch.no_grad(), torch.cuda.stream(library.stream):
                    library.function(torch, **tensors)
                return (0,)

            self._packed[index] = [Operation(call, (), self._kernels(call), tensors)]
        return self._packed[index]

    def _kernels(self, call: Any) -> tuple[str, ...]:
        """The kernels of one call, in order. Raises WorkerFault if two calls differ."""
        if self.names is None:
            cupti = self._lane.cupti
            for _ in range(_CALLS_BEFORE):
                call()
            self._lane.gpu.synchronize()
            if cupti is None:
                self.names = ("vendor",)
            else:
                seen = []
                for _ in range(2):
                    cupti.drain()
                    call()
                    self._lane.gpu.synchronize()
                    seen.append(tuple(row[0] for row in cupti.drain()))
                if not seen[0] or seen[0] != seen[1]:
                    raise WorkerFault(
                        Status.RUNTIME_ERROR, f"the vendor call launches {seen[0]}, then {seen[1]}"
                    )
                self.names = seen[0]
        assert self.names is not None
        return self.names


def time_vendor(meter: Meter, subject: VendorSubject, protocol: Protocol) -> dict[str, Any]:
    """Samples of the vendor's call, as `Meter.measure` takes them, and its kernels."""
    try:
        timed = meter.measure(subject, protocol)
    except WorkerFault:
        raise
    except Exception as error:
        # Not a candidate's failure: say what the library said and go on without a vendor time.
        raise WorkerFault(Status.UNSUPPORTED, f"no vendor time: {type(error).__name__}: {error}") from error
    return {**timed.to_json(meter.lane), "kernels": list(subject.names or ())}


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("_warpdeck_vendor", path)
    if spec is None or spec.loader is None:
        raise WorkerFault(Status.UNSUPPORTED, f"{path} doesn't load")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    function = getattr(module, "vendor", None)
    if not callable(function):
        raise WorkerFault(Status.UNSUPPORTED, f"{path} has no function vendor(torch, …)")
    return function

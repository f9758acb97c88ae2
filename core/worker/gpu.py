"""One CUDA context through the driver API: errors as faults, modules, launches, device facts. Worker only."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model import Status
from .faults import WorkerFault

_SUCCESS = 0
_OUT_OF_MEMORY = 2
_NO_DEVICE = (
    3,
    34,
    100,
    101,
    803,
)  # not initialised, stub library, no device, invalid device, driver mismatch
# These end with the launch that caused them; every other error from 700 on corrupts the context for good.
_LAUNCH_ERRORS = (1, 98, 200, 209, 218, 222, 300, 301, 500, 701, 720)
_FP32_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}  # others: 128

# What `cuLaunchKernel` takes (the array of addresses), and the values that it points to.
Parameters = tuple[ctypes.Array[ctypes.c_void_p], list[Any]]

driver: Any = None  # cuda.bindings.driver, once `load_driver` found it


def load_driver() -> Any:
    """`cuda.bindings.driver`. Raises WorkerFault (unsupported) where it isn't installed."""
    global driver
    if driver is None:
        try:
            from cuda.bindings import driver as found  # pyright: ignore[reportAttributeAccessIssue]
        except ImportError as error:
            raise WorkerFault(
                Status.UNSUPPORTED, f"cuda-bindings doesn't import ({error}): pip install 'warpdeck[cuda]'"
            ) from None
        driver = found
    return driver


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value(s) of a driver call. Raises WorkerFault with the status that its error stands for."""
    code = result[0]
    if code != _SUCCESS:
        raise fault(int(code), what)
    if len(result) == 2:
        return result[1]
    return result[1:] or None


def fault(code: int, what: str) -> WorkerFault:
    """A driver error as a fault."""
    name, text = f"error {code}", ""
    if driver is not None:
        error = driver.CUresult(code)
        name = error.name
        described = driver.cuGetErrorString(error)
        if described[0] == _SUCCESS and described[1]:
            text = ": " + described[1].decode()
    message = f"{what}: {name}{text}"
    if code == _OUT_OF_MEMORY:
        return WorkerFault(Status.OUT_OF_MEMORY, message)
    if code in _LAUNCH_ERRORS:
        return WorkerFault(Status.LAUNCH_ERROR, message)
    if code in _NO_DEVICE:
        return WorkerFault(Status.UNSUPPORTED, message, fatal=True)
    return WorkerFault(Status.RUNTIME_ERROR, message, fatal=True)


def pack(*values: Any) -> Parameters:
    """Parameters of one of our own kernels, from ctypes values (read at each launch)."""
    return (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)), list(values)


@dataclass(frozen=True)
class Operation:
    """A launch with its arguments packed, or a memory operation: `call(*arguments)` queues it and returns the
    driver's error code, alone or first in a tuple.

    `names` are the kernels as CUPTI reports them, in order; none for a memory operation, which leaves no
    kernel record. `keep` holds the packed arguments alive.
    """

    call: Any
    arguments: tuple[Any, ...]
    names: tuple[str, ...] = ()
    keep: Any = None

    def queue(self) -> None:
        """Put it on the stream. Raises WorkerFault."""
        result = self.call(*self.arguments)
        code = result if type(result) is int else int(result[0])
        if code != _SUCCESS:
            raise fault(code, f"launch of {self.names[0]}" if self.names else "copy")


class Gpu:
    """A device and, once `open`, its context, one stream, and loaded modules.

    Uses the primary context, so that torch, where a vendor call needs it, shares it.
    """

    def __init__(self, ordinal: int) -> None:
        d = load_driver()
        try:
            check(d.cuInit(0), "starting CUDA")
        except RuntimeError as error:  # libcuda.so.1 isn't there
            raise WorkerFault(Status.UNSUPPORTED, f"no CUDA driver: {error}", fatal=True) from None
        count = check(d.cuDeviceGetCount(), "counting devices")
        if ordinal >= count:
            raise WorkerFault(Status.UNSUPPORTED, f"no CUDA device {ordinal}; there are {count}", fatal=True)
        self.ordinal = ordinal
        self.device = check(d.cuDeviceGet(ordinal), "device")
        self.stream: Any = None
        # Through ctypes, all converted beforehand, a launch takes 1 us; through the binding it takes 4.
        self._launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        self._modules: dict[str, tuple[Any, dict[str, Any]]] = {}

    @property
    def uuid(self) -> str:
        """As NVML prints it."""
        h = bytes(check(driver.cuDeviceGetUuid(self.device), "device uuid").bytes[:16]).hex()
        return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def open(self) -> None:
        """Create the context and the stream."""
        d = driver
        context = check(d.cuDevicePrimaryCtxRetain(self.device), "creating a context")
        check(d.cuCtxSetCurrent(context), "context")
        self.stream = check(d.cuStreamCreate(d.CUstream_flags.CU_STREAM_NON_BLOCKING), "stream")

    def attribute(self, name: str) -> int:
        """A device attribute by its name without CU_DEVICE_ATTRIBUTE_."""
        kind = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(kind, self.device), name))

    def info(self) -> dict[str, Any]:
        """What the device is. Clocks in MHz, sizes in bytes, bandwidth in GB/s, rate in TFLOP/s."""
        raw_name = check(driver.cuDeviceGetName(128, self.device), "device name")
        cc = (self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR"))
        sm_count = self.attribute("MULTIPROCESSOR_COUNT")
        sm_mhz = self.attribute("CLOCK_RATE") / 1e3
        memory_mhz = self.attribute("MEMORY_CLOCK_RATE") / 1e3
        bus_bits = self.attribute("GLOBAL_MEMORY_BUS_WIDTH")
        free, total = check(driver.cuMemGetInfo(), "memory")
        return {
            "name": bytes(raw_name).split(b"\0")[0].decode(),
            "uuid": self.uuid,
            "compute_capability": cc,
            "sm_count": sm_count,
            "l2_bytes": self.attribute("L2_CACHE_SIZE"),
            "memory_bytes": total,
            "free_bytes": free,
            "cuda_version": check(driver.cuDriverGetVersion(), "driver version"),
            "sm_clock_max_mhz": sm_mhz,
            "memory_clock_mhz": memory_mhz,
            "bus_bits": bus_bits,
            "dram_gbs": 2 * memory_mhz * bus_bits / 8e3,  # double data rate
            "fp32_tflops": sm_count * _FP32_PER_SM.get(cc, 128) * 2 * sm_mhz / 1e6,
            "max_threads": self.attribute("MAX_THREADS_PER_BLOCK"),
            "max_shared_bytes": self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            "shared_per_sm_bytes": self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        }

    def load(self, key: str, cubin: bytes, entries: Sequence[str]) -> dict[str, dict[str, int]]:
        """Load a module under `key` (once) and look up its kernels. Returns their attributes by name."""
        if key not in self._modules:
            module = check(driver.cuModuleLoadData(cubin), "loading the module")
            functions = {
                entry: check(driver.cuModuleGetFunction(module, entry.encode()), f"kernel {entry}")
                for entry in entries
            }
            self._modules[key] = (module, functions)
        kinds = driver.CUfunction_attribute
        return {
            entry: {
                "registers": check(
                    driver.cuFuncGetAttribute(kinds.CU_FUNC_ATTRIBUTE_NUM_REGS, function), "registers"
                ),
                "max_threads": check(
                    driver.cuFuncGetAttribute(kinds.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
                    "threads",
                ),
            }
            for entry, function in self._modules[key][1].items()
        }

    def unload(self, key: str) -> None:
        """Forget a module."""
        module, _ = self._modules.pop(key, (None, {}))
        if module is not None:
            check(driver.cuModuleUnload(module), "unloading a module")

    def function(self, key: str, entry: str) -> Any:
        """A loaded kernel."""
        try:
            return self._modules[key][1][entry]
        except KeyError:
            raise WorkerFault(Status.LAUNCH_ERROR, f"kernel {entry!r} isn't loaded") from None

    def launch(
        self,
        key: str,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        parameters: Parameters,
        stream: Any = None,
    ) -> Operation:
        """A packed launch, on the one stream or on another.

        Raises WorkerFault if it needs more shared memory than the device has.
        """
        function = self.function(key, entry)
        if shared > 48 * 1024:
            kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(function, kind, shared), f"{shared} bytes of shared memory")
        arguments = (
            ctypes.c_void_p(int(function)),
            *(ctypes.c_uint(int(n)) for n in (*grid, *block, shared)),
            ctypes.c_void_p(int(self.stream if stream is None else stream)),
            parameters[0],
            None,
        )
        return Operation(self._launch, arguments, (entry,), parameters)

    def synchronize(self) -> None:
        """Wait for the stream. A kernel's own failure surfaces here."""
        check(driver.cuStreamSynchronize(self.stream), "running the kernel")

"""Probes of the CUDA libraries, run as `python -m warpdeck.core.probes` in a process that may crash.

Prints one JSON line per probe as it ends: {name, ok, detail, remedy}. A probe that is missing from the output
took the process down.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import json
import sys
from collections.abc import Callable

EXTRA = 'pip install "warpdeck[cuda]" (or [cuda12] for GPUs older than compute capability 7.5)'
_SOURCE = b'extern "C" __global__ void probe(float *x) { x[threadIdx.x] += 1.0f; }'


class Failed(Exception):
    """A probe's verdict: what is wrong, and how to mend it."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.remedy = remedy


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def numba() -> str:
    """Numba, numba-cuda and NumPy fit together, and a kernel compiles to PTX (no GPU needed)."""
    versions = {p: _version(p) for p in ("numba", "numba-cuda", "numpy")}
    detail = ", ".join(f"{p} {v}" for p, v in versions.items())
    if "not installed" in (versions["numba"], versions["numba-cuda"]):
        raise Failed(detail, EXTRA)
    try:
        from numba import cuda as numba_cuda
        from numba import float32, types

        def kernel(x):
            x[numba_cuda.threadIdx.x] += float32(1)

        numba_cuda.compile(kernel, (types.Array(float32, 1, "C"),), cc=(8, 0))  # pyright: ignore[reportPrivateImportUsage]
    except Exception as error:
        hint = "install versions that fit: pip install -c constraints.txt …"
        if tuple(int(p) for p in versions["numpy"].split(".")[:2]) >= (2, 5):
            hint = 'NumPy 2.5 and newer break this Numba: pip install "numpy<2.5"'
        raise Failed(f"{detail}: {type(error).__name__}: {error}", hint) from error
    return f"{detail}; a kernel compiles"


def nvrtc() -> str:
    """NVRTC loads and compiles a kernel to a cubin."""
    from cuda.bindings import nvrtc as rtc  # pyright: ignore[reportAttributeAccessIssue]

    _, major, minor = rtc.nvrtcVersion()
    error, program = rtc.nvrtcCreateProgram(_SOURCE, b"probe.cu", 0, [], [])
    if int(error):
        raise Failed(f"NVRTC {major}.{minor}: {error.name}", EXTRA)
    (error,) = rtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_80"])
    if int(error):
        raise Failed(f"NVRTC {major}.{minor} does not compile: {error.name}", EXTRA)
    return f"NVRTC {major}.{minor} compiles to a cubin"


def nvjitlink() -> str:
    """nvJitLink loads."""
    from cuda.bindings import nvjitlink as link  # pyright: ignore[reportAttributeAccessIssue]

    major, minor = link.version()
    return f"nvJitLink {major}.{minor}"


def cupti() -> str:
    """CUPTI, the clock of choice, loads and answers. It needs the driver to do so."""
    from .worker.cupti import CuptiError, find_library

    remedy = "times come from event pairs until CUPTI works; see the check 'driver'"
    try:
        library = find_library()
    except CuptiError as error:
        raise Failed(str(error), remedy) from None
    version, now = ctypes.c_uint32(), ctypes.c_uint64()
    for call, value in ((library.cuptiGetVersion, version), (library.cuptiGetTimestamp, now)):
        code = call(ctypes.byref(value))
        if code:
            raise Failed(f"CUPTI error {code} in {call.__name__}", remedy)
    return f"CUPTI API {version.value} answers (nvidia-cuda-cupti {_version('nvidia-cuda-cupti')})"


def driver_api() -> str:
    """The CUDA driver initialises and can count its devices."""
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    remedy = "install or repair the NVIDIA driver; under WSL2 install it on Windows only"
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as problem:  # libcuda is missing
        raise Failed(str(problem), remedy) from problem
    if int(error):
        raise Failed(f"cuInit: {error.name}", remedy)
    _, count = driver.cuDeviceGetCount()
    _, version = driver.cuDriverGetVersion()
    return f"CUDA {version // 1000}.{version % 1000 // 10}, {count} device(s)"


def learning() -> str:
    """What the PPO agent needs is installed (not imported: that takes seconds)."""
    packages = ("torch", "gymnasium", "stable-baselines3", "pandas")
    versions = {p: _version(p) for p in packages}
    detail = ", ".join(f"{p} {v}" for p, v in versions.items())
    if "not installed" in versions.values():
        raise Failed(detail, 'only for PPO: pip install "warpdeck[rl]"')
    return detail


PROBES: dict[str, Callable[[], str]] = {
    "cuda driver api": driver_api,
    "numba": numba,
    "nvrtc": nvrtc,
    "nvjitlink": nvjitlink,
    "cupti": cupti,
    "reinforcement learning": learning,
}


def run(name: str) -> dict[str, object]:
    """One probe as a `doctor` check; never raises."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            detail = PROBES[name]()
    except Failed as failed:
        return {"name": name, "ok": False, "detail": str(failed), "remedy": failed.remedy}
    except ImportError as error:
        return {"name": name, "ok": False, "detail": f"not installed ({error})", "remedy": EXTRA}
    except Exception as error:  # noqa: BLE001 - whatever a library does, it is the finding
        return {"name": name, "ok": False, "detail": f"{type(error).__name__}: {error}", "remedy": EXTRA}
    return {"name": name, "ok": True, "detail": detail, "remedy": ""}


def main() -> None:
    """Run all probes."""
    for name in PROBES:
        print(json.dumps(run(name)), flush=True)


if __name__ == "__main__":
    main()

"""The counters that the metric sets ask for, against what CUPTI knows of every chip. Needs no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from warpdeck.telemetry.ncu.metrics import QUANTITIES, SETS

# One chip of every generation from Volta on, with its compute capability.
CHIPS = {
    "GV100": (7, 0),
    "TU102": (7, 5),
    "GA100": (8, 0),
    "GA102": (8, 6),
    "AD102": (8, 9),
    "GH100": (9, 0),
    "GB100": (10, 0),
    "GB202": (12, 0),
}
# Nsight Compute's own: facts of the launch and the tool, which CUPTI does not count.
TOOLS_OWN = ("launch__", "profiler__", "device__", "sm__maximum_warps")


def _structure(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    head = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]
    return type(name, (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Initialize = _structure(
    "Initialize",
    ("profilerType", ctypes.c_int),
    ("pChipName", ctypes.c_char_p),
    ("pCounterAvailabilityImage", ctypes.c_void_p),
    ("pHostObject", ctypes.c_void_p),
)
_Deinitialize = _structure("Deinitialize", ("pHostObject", ctypes.c_void_p))
_AddMetrics = _structure(
    "AddMetrics",
    ("pHostObject", ctypes.c_void_p),
    ("ppMetricNames", ctypes.POINTER(ctypes.c_char_p)),
    ("numMetrics", ctypes.c_size_t),
)

_ImageSize = _structure("ImageSize", ("pHostObject", ctypes.c_void_p), ("configImageSize", ctypes.c_size_t))
_Image = _structure(
    "Image",
    ("pHostObject", ctypes.c_void_p),
    ("configImageSize", ctypes.c_size_t),
    ("pConfigImage", ctypes.c_void_p),
)
_Passes = _structure(
    "Passes",
    ("configImageSize", ctypes.c_size_t),
    ("pConfigImage", ctypes.c_void_p),
    ("numOfPasses", ctypes.c_size_t),
)


def _call(library: ctypes.CDLL, function: str, parameters: Any) -> int:
    parameters.structSize = ctypes.sizeof(parameters)
    return getattr(library, function)(ctypes.byref(parameters))


@pytest.fixture(scope="module")
def cupti() -> ctypes.CDLL:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        library = Path(root) / "cu13" / "lib" / "libcupti.so.13"
        if library.is_file():
            return ctypes.CDLL(str(library))
    pytest.skip("needs the wheel nvidia-cuda-cupti")


def _unknown(library: ctypes.CDLL, chip: str, names: list[str]) -> set[str]:
    """The names that CUPTI does not know on this chip."""
    return {name for name in names if not _known(library, chip, name)}


def _known(library: ctypes.CDLL, chip: str, name: str) -> bool:
    host = _Initialize(profilerType=0, pChipName=chip.encode())  # its own: a refusal spoils the next answers
    assert _call(library, "cuptiProfilerHostInitialize", host) == 0
    handle = host.pHostObject  # pyright: ignore[reportAttributeAccessIssue]
    one = (ctypes.c_char_p * 1)(name.encode())
    answer = _call(
        library,
        "cuptiProfilerHostConfigAddMetrics",
        _AddMetrics(pHostObject=handle, ppMetricNames=one, numMetrics=1),
    )
    assert _call(library, "cuptiProfilerHostDeinitialize", _Deinitialize(pHostObject=handle)) == 0
    return answer == 0


@pytest.mark.parametrize("chip", CHIPS)
def test_each_chip_has_exactly_the_counters_that_the_catalogue_says(cupti: ctypes.CDLL, chip: str) -> None:
    said: dict[str, bool] = {}  # counter -> whether the catalogue says that this chip has it
    for quantity in QUANTITIES.values():
        for way in quantity.ways:
            for name in way.counters:
                # A counter may stand in several ways; the strictest restriction is the counter's own.
                said[name] = said.get(name, True) and way.on(CHIPS[chip])
    counters = [name for name in said if not name.startswith(TOOLS_OWN)]
    assert len(counters) > 60
    assert _unknown(cupti, chip, counters) == {name for name in counters if not said[name]}
    asked = {name for s in SETS.values() for name in s.counters(CHIPS[chip])}
    assert _unknown(cupti, chip, sorted(asked)) == set()


def _passes(library: ctypes.CDLL, chip: str, names: Sequence[str]) -> int:
    """How often CUPTI would run a kernel to read these counters."""
    host: Any = _Initialize(profilerType=0, pChipName=chip.encode())
    assert _call(library, "cuptiProfilerHostInitialize", host) == 0
    handle = host.pHostObject
    listed = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    added = _AddMetrics(pHostObject=handle, ppMetricNames=listed, numMetrics=len(names))
    assert _call(library, "cuptiProfilerHostConfigAddMetrics", added) == 0
    size: Any = _ImageSize(pHostObject=handle)
    assert _call(library, "cuptiProfilerHostGetConfigImageSize", size) == 0
    image = (ctypes.c_uint8 * size.configImageSize)()
    image_at = {"configImageSize": len(image), "pConfigImage": ctypes.addressof(image)}
    made = _Image(pHostObject=handle, **image_at)
    assert _call(library, "cuptiProfilerHostGetConfigImage", made) == 0
    passes: Any = _Passes(**image_at)
    assert _call(library, "cuptiProfilerHostGetNumOfPasses", passes) == 0
    assert _call(library, "cuptiProfilerHostDeinitialize", _Deinitialize(pHostObject=handle)) == 0
    return passes.numOfPasses


@pytest.mark.parametrize("chip", CHIPS)
def test_what_an_inner_loop_reads_takes_two_passes(cupti: ctypes.CDLL, chip: str) -> None:
    """The L2's hits and misses alone take two; Nsight Compute makes one more of any number above one."""
    assert _passes(cupti, chip, ["lts__t_sector_hit_rate.pct"]) == 2
    assert _passes(cupti, chip, SETS["seed"].counters(CHIPS[chip])) == 2
    older = {"GV100": 6, "TU102": 3, "GA100": 3}
    assert _passes(cupti, chip, SETS["cheap"].counters(CHIPS[chip])) == older.get(chip, 2)


def test_cupti_refuses_a_name_that_does_not_exist(cupti: ctypes.CDLL) -> None:
    assert _unknown(cupti, "GH100", ["no__such_metric.avg"]) == {"no__such_metric.avg"}

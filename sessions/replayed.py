"""`check --request FILE`: one candidate on one case, run again alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.devices.base import judged
from ..core.errors import UsageError, VerificationError
from ..core.model import (
    CacheMode,
    Candidate,
    Case,
    DeviceInfo,
    Evaluation,
    Protocol,
    Role,
    Trust,
)
from ..core.space import SearchSpace
from ..core.verify import WEAK_CASE
from ..core.workload import Argument, Tolerance, Variant, Workload
from ..kernels.loader import is_foreign, lone_hash
from ..kernels.parts import read_json
from ..kernels.recordings import open_device
from .requests import spec_of

SPACE = "request"
_DIRECTIONS = {"input": "in", "output": "out", "inout": "inout"}


@dataclass(frozen=True)
class Replay:
    """What came of it. `evaluation` is None where the case itself is refused (`weak_case`)."""

    request: Mapping[str, Any]
    device: DeviceInfo
    evaluation: Evaluation | None
    reason: str = ""

    @property
    def status(self) -> str:
        """The evaluation's, or `weak_case`."""
        return WEAK_CASE if self.evaluation is None else str(self.evaluation.status)

    def to_json(self) -> dict[str, Any]:
        """The document of `check --request --json`, without its schema version."""
        found = self.evaluation
        check = next(iter(found.checks), None) if found else None
        measured = next(iter(found.measurements), None) if found else None
        return {
            "request": self.request.get("id"),
            "workload": self.request.get("workload"),
            "variant": self.request.get("variant"),
            "origins": dict(self.request.get("origins") or {}),
            "device": self.device.to_json(),
            "status": self.status,
            "reason": found.message if found else self.reason,
            "cases": [check.to_json()] if check else [],
            "measurement": measured.to_json(samples=False) if measured else None,
            "median_ms": measured.median_ms if measured else None,
            "resources": found.resources.to_json() if found and found.resources else None,
        }


def replay(
    file: Path, device: str | None = None, *, seed: int | None = None, allow_shared: bool = False
) -> Replay:
    """Run a request.

    Args:
        file: as a session wrote it, or by hand.
        device: None: the request's own; `auto` if that isn't a live one.
        seed: of the inputs; None: the request's.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: the file can't be read or isn't a request; says which field.
        NoDeviceError: the device isn't there.
    """
    request = _read(file)
    try:
        workload, candidate, case = _subject(file, request)
        protocol = Protocol(
            cache=CacheMode(request.get("cache", "cold")),
            warmup=int(request.get("warmup", 10)),
            samples=int(request.get("iterations", 100)),
            min_samples=int(request.get("iterations", 100)),
            adaptive=False,
        )
        seed = int(request.get("seed", 0)) if seed is None else seed
        asked = device or str(request.get("device", "auto"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{file}: not a replay request: {what}") from None
    opened = open_device(asked, allow_shared=allow_shared)
    try:
        if opened.info.recorded:
            raise UsageError(
                f"{file}: {opened.info.label} runs nothing; use --device cuda:0, or cpu (emulated)"
            )
        backend = opened.prepare(workload, space=SPACE, cases=[case], seed=seed, allow_shared=allow_shared)
        try:
            evaluation = judged(backend.evaluate(candidate, [case], protocol), workload, backend, [case])
            return Replay(request, opened.info, evaluation)
        except VerificationError as weak:
            return Replay(request, opened.info, None, str(weak))
        finally:
            backend.close()
    finally:
        opened.close()


def _read(file: Path) -> dict[str, Any]:
    request = read_json(file, "--request")
    if not isinstance(request, dict):
        raise UsageError(f"{file}: not a replay request: it must hold one JSON object")
    return request


def _subject(file: Path, request: Mapping[str, Any]) -> tuple[Workload, Candidate, Case]:
    folder = file.resolve().parent
    source, reference = (_beside(file, folder, str(request[key])) for key in ("source", "reference"))
    if reference.name != "reference.py":
        raise UsageError(f"{file}: reference must be a file reference.py, not {reference.name}")
    about = request["case"]
    case = Case(
        str(about["name"]),
        Role.PERFORMANCE,
        {str(name): int(value) for name, value in about["params"].items()},
        edge=bool(about.get("edge")),
        data=about.get("data"),
        exact=bool(about.get("exact")),
    )
    launches = tuple(spec_of(row) for row in request.get("launches") or [request])
    digest = lone_hash(source)
    own = request.get("trust") in (Trust.OWN, Trust.BUNDLED) and not is_foreign(folder)
    trust = Trust.OWN if own else Trust.GENERATED
    variant = Variant(
        str(request.get("variant", source.stem)), source, "cuda", launches[0].entry, launches, digest,
        trust=Trust.GENERATED,
    )  # fmt: skip
    floor = request.get("floor") or {}
    workload = Workload(
        name=str(request.get("workload", "request")),
        description="",
        folder=reference.parent,
        trust=trust,
        arguments=tuple(_argument(row) for row in request["arguments"]),
        variants={variant.name: variant},
        spaces={SPACE: SearchSpace(SPACE, variant.name, {})},
        cases=(),
        sizes=dict.fromkeys(case.params, "size"),
        tolerance=_tolerance(request.get("tolerance") or {}),
        floor_bytes=_number(floor.get("bytes")),
        floor_flops=_number(floor.get("flops")),
        origins={str(k): str(v) for k, v in (request.get("origins") or {}).items()},
    )
    workload.shapes(case)
    workload.scalars(case)
    workload.launches(Candidate(variant.name, {}, digest), case)
    return workload, Candidate(variant.name, {}, digest), case


def _beside(file: Path, folder: Path, name: str) -> Path:
    """A file that a request names: below its folder, or a request from elsewhere would read any file of the
    user's into what it reports."""
    path = folder / name
    if not path.resolve().is_relative_to(folder):
        raise UsageError(f"{file}: it names {name}, which lies outside of its folder; copy it there")
    if not path.is_file():
        raise UsageError(f"{file}: it names {path}, which isn't there")
    return path


def _argument(row: Mapping[str, Any]) -> Argument:
    name, kind, dtype = str(row["name"]), str(row["kind"]), str(row["type"])
    if kind == "scalar":
        return Argument(name, kind, dtype, value=str(row["value"]))
    shape = tuple(str(int(n)) for n in row["shape"])
    direction = _DIRECTIONS[str(row["direction"])]
    if kind == "workspace":
        return Argument(name, kind, dtype, shape, direction, "zeros")
    return Argument(name, "buffer", dtype, shape, direction, str(row.get("data", "normal")))


def _tolerance(row: Mapping[str, Any]) -> Tolerance:
    return Tolerance(
        **{key: float(row[key]) for key in ("rtol", "atol", "product") if key in row},
        exact=bool(row.get("exact")),
    )


def _number(value: Any) -> str | None:
    return None if value is None else str(int(value))

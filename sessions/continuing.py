"""`tune --from` where the best itself is what goes on: a kernel's source, with its workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..agents import registry
from ..core.errors import UsageError
from ..core.model import Config, Trust
from ..core.workload import Variant, Workload
from ..kernels.assemble import parts_of
from ..kernels.bare import read_bare
from ..kernels.parts import GENERATED, Parts
from . import paths
from .best import subject
from .spec import RunSpec
from .standalone_cuda import baked
from .store import SessionStore
from .warmstart import starting_from

SOURCE_AGENT = "llm"  # begins with a kernel; the others with configurations


def continued(spec: RunSpec, source: str, *, named: bool) -> tuple[RunSpec, Parts | None]:
    """The spec of a run that goes on from `source`, and what its workload is made of, if not a name.

    Args:
        spec: as asked for; its workload is that of `source` unless one was named.
        source: a session, a .cu file that warpdeck wrote, or a result's JSON.
        named: whether the user named a workload.

    Raises:
        UsageError: nothing there to go on from, or it doesn't fit the named workload.
    """
    spec = replace(spec, origin=source)
    path = Path(source)
    if path.is_file() and path.suffix == ".cu":
        workload, variant = read_bare(path)
        config: Config = {}
    elif path.is_file() and path.name != paths.DATABASE:
        return starting_from(spec, source), None
    else:
        with SessionStore.open(paths.resolve(source)) as store:
            workload, variant, config = subject(store)
    if not named:
        earlier = workload.name if workload.trust is Trust.BUNDLED else str(workload.folder)
        spec = replace(spec, workload=earlier)
    if spec.agent != SOURCE_AGENT:
        if registry.agent_spec(spec.agent).needs_context:
            return spec, None  # a ladder begins at its foot
        return starting_from(spec, source), None
    if variant.language != "cuda":
        raise UsageError(f"--from {source}: its best is a Numba kernel; the model writes CUDA C++")
    return spec, _begun(workload, variant, config, source)


def _begun(workload: Workload, variant: Variant, config: Config, source: str) -> Parts:
    kernel, launches = baked(variant, config)
    special = {case: specs for case, specs in launches.items() if case is not None}
    parts = parts_of(workload, kernel, launches[None], special)
    own = workload.trust_of(variant.name) in (Trust.BUNDLED, Trust.OWN)
    author = f"whoever wrote {source}" if source.endswith(".cu") else f"a model: the best of {source}"
    origin = f"given: the best of {source}" if own else f"{GENERATED}{author}"
    return replace(parts, origins={**parts.origins, "kernel": origin})

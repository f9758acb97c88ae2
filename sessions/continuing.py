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
from ..kernels.imported import open_workload
from ..kernels.loader import is_foreign, list_workloads
from ..kernels.parts import GENERATED, Parts
from . import examples, paths
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
    bare = path.is_file() and path.suffix == ".cu"
    if not bare and path.is_file() and path.name != paths.DATABASE:
        if not spec.workload:
            raise UsageError(f"--from {source}: which workload? A result's file doesn't say where it is")
        return starting_from(spec, source), None
    if spec.agent != SOURCE_AGENT:
        if not spec.workload:
            spec = replace(spec, workload=_named(read_bare(path)[0]) if bare else _of_session(source))
        if bare or registry.agent_spec(spec.agent).needs_context:  # a ladder begins at its foot
            return spec, None
        return starting_from(spec, source), None
    config: Config = {}
    if bare:
        workload, variant = read_bare(path)
    else:
        with SessionStore.open(examples.resolve(source)) as store:
            workload, variant, config = subject(store)
    if named and open_workload(spec.workload).name != workload.name:
        raise UsageError(f"--from {source} is of workload '{workload.name}', not '{spec.workload}'")
    if variant.language != "cuda":
        raise UsageError(f"--from {source}: its best is a Numba kernel; the model writes CUDA C++")
    return replace(spec, workload=_named(workload)), _begun(workload, variant, config, source)


def _named(workload: Workload) -> str:
    return workload.name if workload.trust is Trust.BUNDLED else str(workload.folder)


def _of_session(name: str) -> str:
    """What a session worked on. UsageError if it doesn't say."""
    folder = examples.resolve(name)
    with SessionStore.open(folder) as store:
        stored = (store.header().get("spec") or {}).get("workload") or store.header().get("workload")
    if not stored:
        raise UsageError(f"--from {name}: the session doesn't say what it worked on: name the workload")
    if is_foreign(folder) and stored not in list_workloads():  # a stranger's choice of whose code runs
        raise UsageError(f"--from {name}: the session was imported: name the workload")
    return str(stored)


def _begun(workload: Workload, variant: Variant, config: Config, source: str) -> Parts:
    kernel, launches = baked(variant, config)
    special = {case: specs for case, specs in launches.items() if case is not None}
    parts = parts_of(workload, kernel, launches[None], special)
    own = workload.trust_of(variant.name) in (Trust.BUNDLED, Trust.OWN)
    author = f"whoever wrote {source}" if source.endswith(".cu") else f"a model: the best of {source}"
    origins = {"kernel": f"given: the best of {source}" if own else f"{GENERATED}{author}"}
    if workload.trust is Trust.REMOTE:  # its reference stays a stranger's in the new run's folder
        origins["reference"] = f"{GENERATED}whoever made {source}"
    return replace(parts, origins={**parts.origins, **origins})

"""From a workload's candidate to the compile it needs."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Candidate, Trust
from ..workload import Workload
from .compiled import Blocks, CompileRequest


def candidate_request(
    workload: Workload,
    candidate: Candidate,
    cc: tuple[int, int],
    *,
    ptx: bool = False,
    trace: bool = False,
    split: Blocks | None = None,
) -> CompileRequest:
    """The compile of a candidate for a compute capability; `trace`: with its stage markers; `split`: these
    in some blocks only.

    Raises UsageError for an unknown variant, or a source that can't be read.
    """
    variant = workload.variant(candidate.variant)
    knobs = dict(candidate.config)
    confined = workload.trust_of(variant.name) in (Trust.GENERATED, Trust.REMOTE)
    return CompileRequest(
        language=variant.language,
        file=str(variant.file.resolve()),
        entries=tuple(dict.fromkeys(launch.entry for launch in variant.launches)),
        cc=cc,
        reg_cap=int(knobs.pop("reg_cap", 0)),
        knobs=knobs,
        parameters=tuple(
            (a.dtype, -1 if a.kind == "scalar" else len(a.shape))
            for a in workload.arguments
            if a.taken_by(variant.language)
        ),
        ptx=ptx and variant.language == "numba",
        trace=trace,
        split=split,
        confined=confined,
        # The sandbox can't read the user's folders: the text goes there, and nothing beside it.
        text=variant.source() if confined and variant.language == "cuda" else None,
    )


def cuda_request(source: str, name: str, cc: tuple[int, int], options: Sequence[str] = ()) -> CompileRequest:
    """The compile of CUDA C++ text that has no file; `name` stands for it in messages."""
    return CompileRequest("cuda", name, (), cc, options=tuple(options), text=source)

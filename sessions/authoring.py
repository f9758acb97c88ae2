"""A workload that isn't whole when its run begins: the model writes the rest, in the run's own process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..agents.base import Context
from ..agents.llm.author import complete
from ..agents.llm.client import Client
from ..agents.llm.errors import LlmError
from ..agents.llm.settings import LlmSettings
from ..kernels.assemble import assemble
from ..kernels.parts import Parts
from .events import Kind
from .launch import check
from .spec import RunSpec
from .store import SessionStore


def whole(store: SessionStore, spec: RunSpec, context: Context) -> RunSpec:
    """Complete the workload's parts, write its folder, and keep the spec as it is then.

    Nothing that was paid for is asked again after an interruption: the answers are in the log.

    Raises:
        LlmError: the model can't be asked, or its references don't agree.
        WarpdeckError: no sandbox, a full disk; UsageError: parts that don't fit together.
    """
    assert spec.parts is not None
    client = Client(LlmSettings.from_options(spec.options), context)

    def tell(text: str) -> None:
        context.emit(Kind.MESSAGE, {"level": "info", "text": text})

    try:
        parts = complete(Parts.from_json(spec.parts), client, tell, seed=spec.seed)
    except LlmError as error:
        if error.kind != "budget":
            raise
        remedy = "give the parts that are missing, or begin again with a larger budget"
        raise LlmError(f"{error.message} before the workload was written", remedy, "budget") from None
    finally:
        client.close()
    workload = assemble(parts, Path(spec.workload))
    spec = replace(spec, parts=None)
    check(spec)
    store.set_header({"spec": spec.to_json(), "workload": workload.name})
    return spec

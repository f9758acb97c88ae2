"""The functions of a workload's `reference.py`: called here, or in a sandbox if they are a stranger's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..model import Trust
from ..sandbox import Layer
from ..sandbox.host_code import CALL_LIMIT_S, HostCode, HostCodeError
from ..workload import Workload


@dataclass(frozen=True)
class Functions:
    """What `reference.py` defines (see the package's documentation). `close` ends its sandbox, if any."""

    reference: Callable[..., Any]
    operands: Callable[..., Any] | None
    scale: Callable[..., Any] | None
    make_inputs: Callable[..., Any] | None
    close: Callable[[], None]


def functions_of(workload: Workload, layer: Layer | None = None) -> Functions:
    """Load a workload's reference: in this process only if it is bundled or the user's own. `layer`: what
    others' is kept apart by; None: the best that works here.

    Raises:
        UsageError: it is missing, fails to load, or has no `reference`.
        SandboxError: it is neither, and nothing isolates here, or loading it hit a limit.
    """
    if workload.trust not in (Trust.GENERATED, Trust.REMOTE):
        module = workload.reference_module()
        return Functions(
            module.reference,
            *(getattr(module, name, None) for name in ("operands", "scale", "make_inputs")),
            close=lambda: None,
        )
    path = workload.folder / "reference.py"
    if not path.is_file():
        raise UsageError(f"{path} is missing; it must define reference(**arguments)")
    code = HostCode(path, layer=layer)
    limit_s = workload.reference_limit_s or CALL_LIMIT_S
    try:
        reference = code.function("reference", limit_s)
        if reference is None:
            raise UsageError(f"{path}: no function reference(**arguments)")
        others = [code.function(name, limit_s) for name in ("operands", "scale", "make_inputs")]
    except BaseException:
        code.close()
        raise
    return Functions(reference, *others, close=code.close)


def told(error: BaseException) -> str:
    """What a function of `reference.py` raised, as "ValueError: message"."""
    return error.text if isinstance(error, HostCodeError) else f"{type(error).__name__}: {error}"

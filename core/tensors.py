"""References in PyTorch: their functions get tensors on the CPU, and give NumPy arrays like any other."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..telemetry.parsing import parse_module

FUNCTIONS = ("reference", "operands", "scale")


def uses_torch(source: str) -> bool:
    """Whether a file imports torch when it is loaded (not only inside a function)."""
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError):
        return False
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    return any(name.partition(".")[0] == "torch" for name in names)


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with arrays in and out; inside it they are tensors of the same type, mostly float64."""
    import torch

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            result = function(*map(tensor, arguments), **{k: tensor(v) for k, v in named.items()})
        return _arrays(result)

    return called


def _arrays(result: Any) -> Any:
    if isinstance(result, Mapping):
        return {name: _arrays(value) for name, value in result.items()}
    if isinstance(result, tuple | list):
        return tuple(_arrays(value) for value in result)
    return result.detach().cpu().numpy() if hasattr(result, "detach") else result

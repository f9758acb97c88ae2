"""What the tests of workloads made of parts share: a small computation, and a model that writes it."""

from __future__ import annotations

from typing import Any

from llm_steps import Asked, Step, answer

SIGNATURE = "void rowsum(const float x[m][n], float y[m], int m, int n)"
REFERENCE = "import numpy as np\n\n\ndef reference(x):\n    return np.sum(x, axis=1)\n"
SECOND = """
import numpy as np


def reference(x, m):
    y = np.zeros(m)
    for i in range(m):
        for value in x[i]:
            y[i] += value
    return y
"""
WRONG = "import numpy as np\n\n\ndef reference(x):\n    return np.max(x, axis=1)\n"
KERNEL = """
extern "C" __global__ void rowsum(const float* x, float* y, int m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += x[(long long)i * n + j];
    y[i] = sum;
}
"""
LAUNCH = {"entry": "rowsum", "grid": ["ceil_div(m, 64)"], "block": ["64"], "shared": "0"}
RULES = [
    {"kind": "linear", "inputs": ["x"], "power": 1, "axis": 0, "output_axis": 0},
    {"kind": "invariant", "inputs": ["x"], "power": 1, "axis": 1, "output_axis": 0},
    {"kind": "permutation", "inputs": ["x"], "power": 1, "axis": 0, "output_axis": 0},
]
DRAFT: dict[str, Any] = {
    "signature": SIGNATURE,
    "reference": REFERENCE,
    "kernel": KERNEL,
    "launches": [LAUNCH],
    "properties": RULES,
    "rtol": 1e-4,
    "atol": 1e-4,
}


def proposal(source: str = KERNEL, **more: Any) -> dict[str, Any]:
    """What the loop asks for."""
    return {
        "idea": "the same again",
        "summary": "to see that it is told",
        "source": f"// another text\n{source}",
        "launches": [LAUNCH],
        "case_launches": [],
        **more,
    }


class Author:
    """A scripted model. `drafts` and `references` are given out in turn, the last one again and again."""

    def __init__(
        self,
        drafts: tuple[Any, ...] = (DRAFT,),
        references: tuple[str, ...] = (SECOND,),
        proposals: tuple[Any, ...] = (proposal(),),
    ) -> None:
        self.drafts, self.references, self.proposals = list(drafts), list(references), list(proposals)

    def __call__(self, asked: Asked) -> Step:
        system = str(asked.messages[0]["content"])
        if system.startswith("You complete the description"):
            asked_for = asked.body["response_format"]["json_schema"]["schema"]["required"]
            draft = _next(self.drafts)
            return answer({name: draft[name] for name in asked_for})
        if system.startswith("You write the reference"):
            return answer({"reference": _next(self.references)})
        return answer(_next(self.proposals))


def _next(items: list[Any]) -> Any:
    return items.pop(0) if len(items) > 1 else items[0]

"""How long the configurations of large search spaces take to be found.

    python benchmarks/large_spaces.py

Eight knobs of eight values each (16.8 million products) under different restrictions, each in a process of
its own for its memory. The last one compares strings, which goes one product after the other.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from warpdeck.core.space import SearchSpace

KNOBS = {f"k{i}": tuple(range(1, 9)) for i in range(8)}
SUM, PRODUCT = " + ".join(KNOBS), " * ".join(KNOBS)
SPACES = {
    "a product of all": (KNOBS, (f"{PRODUCT} <= 256",)),
    "a remainder of all": (KNOBS, (f"({SUM}) % 7 == 0 and k0 != k1",)),
    "half of all": (KNOBS, (f"{SUM} <= 36",)),
    "two narrow, one wide": (KNOBS, ("k0 * k1 <= 16", "k2 % k3 == 0", f"{SUM} <= 30")),
    "strings in order": ({**KNOBS, "k6": ("a", "b"), "k7": ("a", "b")}, (f"{SUM[:-10]} < 20 or k6 < k7",)),
}


def main() -> None:
    if len(sys.argv) == 1:
        for name in SPACES:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    knobs, rules = SPACES[sys.argv[1]]
    space = SearchSpace("large", "kernel", knobs, rules)
    start = time.perf_counter()
    found = len(space.configs())
    took = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    counts = f"{space.cardinality:>11,} products {found:>10,} valid"
    print(f"{sys.argv[1]:22} {counts} {took:7.2f} s {memory:6.0f} MB")


if __name__ == "__main__":
    main()

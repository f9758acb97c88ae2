"""The table of quantities as Markdown: `python docs/counter_reference.py` prints it."""

from __future__ import annotations

from warpdeck.telemetry.ncu.metrics import QUANTITIES, SETS, STALLS, Quantity

HEAD = """# Counters

What `warpdeck profile` reads and computes from Nsight Compute's counters. Where several ways are given, the
first whose counters this chip and this metric set have is taken. A quantity that can't be had is missing with
its reason, never 0.
"""


def render() -> str:
    """The whole page."""
    parts = [HEAD, "## Quantities", "| name | unit | meaning | counters | sets |\n|---|---|---|---|---|"]
    stalls = {f"stall_{reason}" for reason in STALLS}
    parts[-1] += "".join(_row(q) for q in QUANTITIES.values() if q.name not in stalls)
    parts += [
        "## Stall reasons",
        "Shares of the samples in which a warp did not issue; it waits for:",
        "| reason | waits for |\n|---|---|" + "".join(f"\n| `{n}` | {text} |" for n, text in STALLS.items()),
        "## Metric sets",
        "| set | what for |\n|---|---|"
        + "".join(f"\n| `{s.name}` | {s.description} |" for s in SETS.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _row(quantity: Quantity) -> str:
    ways = "; or ".join(" and ".join(f"`{c}`" for c in way.counters) for way in quantity.ways)
    sets = ", ".join(s.name for s in SETS.values() if quantity.name in s.quantities and s.name != "full")
    cells = (f"`{quantity.name}`", quantity.unit or "–", _plain(quantity.meaning), ways, sets or "full")
    return "\n| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(render())

"""The dashboard's keys and settings as Markdown: `python docs/key_reference.py` prints it."""

from __future__ import annotations

import ast
import inspect
import itertools

from warpdeck.tui import settings
from warpdeck.tui.keys import Key, registry

HEAD = """# Keys and settings of the dashboard

Made from the code; `warpdeck config keys` prints the same list, and `?` shows those that work where you are.

## Settings

The file is where `warpdeck config path settings` says. A mistake in it is told and the rest is used;
`warpdeck config show` shows what is in force.

```toml
theme = "light"

[keys]
"run.pause" = "f2"
"*.help" = "f1,question_mark"
```
"""


def render() -> str:
    """The whole page."""
    rows = "".join(f"\n| `{name}` | {text} | {default} |" for name, text, default in _fields())
    parts = [HEAD, f"| setting | meaning | default |\n|---|---|---|{rows}", "## Keys"]
    for where, keys in itertools.groupby(registry().values(), key=lambda key: key.where):
        parts.append(f"### {_title(where)}")
        parts.append("| id | key | does |\n|---|---|---|" + "".join(map(_row, keys)))
    return "\n\n".join(parts) + "\n"


def _row(key: Key) -> str:
    keys = " ".join(f"`{shown}`" for shown in key.shown.replace("|", "\\|").split(" "))
    changes = "" if key.changes is None else "; refused by a read-only dashboard"
    return f"\n| `{key.id}` | {keys} | {key.words}{changes} |"


def _title(where: type) -> str:
    """The class's name in words: "Run screen", "Diff pane"."""
    name = where.__name__.removesuffix("Screen").removesuffix("Pane").replace("WarpdeckApp", "Everywhere")
    words = "".join(f" {c.lower()}" if c.isupper() and i else c for i, c in enumerate(name))
    kind = " screen" if where.__name__.endswith("Screen") else ""
    return f"{words}{kind}"


def _fields() -> list[tuple[str, str, str]]:
    """Name, documentation and default of each setting, from the lines below it in the code."""
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(settings)).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    found = []
    for declared, said in itertools.pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(said, ast.Expr):
            name = ast.unparse(declared.target)
            default = getattr(settings.Settings(), name)
            shown = "none" if default == {} else f"`{str(default).lower()}`"
            found.append((name, " ".join(ast.literal_eval(said.value).split()), shown))
    return found


if __name__ == "__main__":
    print(render())

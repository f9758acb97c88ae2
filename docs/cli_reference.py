"""The command-line reference as Markdown: `python docs/cli_reference.py` prints it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from warpdeck.cli.app import app

README = Path(__file__).parent.parent / "README.md"


def render() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    parts = ["# Command line", _text(root.help), "## Exit codes", _exit_codes()]
    for path, command in _commands(root, ("warpdeck",)):
        parts += [f"## `{' '.join(path)}`", _text(command.help)]
        usage = " ".join([*path, *_usage(command)])
        parts.append(f"```console\n{usage}\n```")
        rows = [_row(p) for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        if rows:
            parts.append("\n".join(["| option | meaning | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _exit_codes() -> str:
    """The README's table."""
    found = re.search(r"^\| exit code \|.*\n(?:\|.*\n)+", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "README.md has no table of exit codes"
    return found[0]


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        here = (*path, name)
        if hasattr(child, "commands"):
            yield from _commands(child, here)
        else:
            yield here, child


def _usage(command: Any) -> list[str]:
    words = ["[OPTIONS]"]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            dots = "..." if parameter.nargs == -1 else ""
            words.append(f"{name}{dots}" if parameter.required else f"[{name}]{dots}")
    return words


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        metavar = parameter.metavar if not parameter.is_flag else None
        name = ", ".join(f"`{o}`" for o in parameter.opts) + (f" `{metavar}`" if metavar else "")
    default = parameter.default
    shown = default is not None and default is not False and default != () and not callable(default)
    return f"| {_cell(name)} | {_cell(_text(parameter.help))} | {f'`{default}`' if shown else ''} |"


def _text(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\f", "").replace("\b", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(render())

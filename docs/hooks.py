"""Prepares what the site is built from: the command-line reference, and a clean view of the package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from cli_reference import render
from counter_reference import render as render_counters
from key_reference import render as render_keys
from ladder_reference import render as render_ladders

ROOT = Path(__file__).parent.parent
VIEW = ROOT / "build" / "docs"  # what mkdocs.yml names for mkdocstrings


def _link_packages() -> None:
    """Let mkdocstrings read a folder that links to the packages only.

    The repository's root is the package: a walk over it would follow .src back into itself, and read .venv.
    """
    shutil.rmtree(VIEW, ignore_errors=True)
    package = VIEW / "warpdeck"
    package.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.suffix == ".py" or (entry / "__init__.py").is_file():
            (package / entry.name).symlink_to(entry)


_link_packages()  # before the plugins are configured


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages that are made from the code."""
    files.append(File.generated(config, "reference/cli.md", content=render()))
    files.append(File.generated(config, "reference/counters.md", content=render_counters()))
    files.append(File.generated(config, "reference/keys.md", content=render_keys()))
    files.append(File.generated(config, "reference/ladders.md", content=render_ladders()))
    return files

"""Saving a pane: `e` writes a picture (SVG and PNG) and the data (CSV) of the focused plot or table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding

from ..core.errors import WarpdeckError
from ..sessions.drawing import text_width
from .access import changes
from .charts import FAINT, Chart, Grid, Saved, Sheet

__all__ = ["Chart", "Exported", "Grid", "Saved", "Sheet", "save"]


class Exported:
    """A widget whose content can be saved. It adds `BINDING` to its own and says what is `exported`.

    The files go to the screen's `export_folder` if it names one that can be written to, else to the folder
    that the console was started in. `export_caption`, if the screen has one, is written below the picture.
    """

    BINDING: ClassVar[Binding] = Binding(
        "e", "export", "Save", show=False, id="pane.export", tooltip="Save this pane as SVG, PNG and CSV"
    )

    def exported(self) -> Saved | None:
        """What is saved; None if there is nothing."""
        raise NotImplementedError

    @changes("write files")
    async def action_export(self: Any) -> None:
        """Save the pane."""
        saved = self.exported()
        if saved is None:
            self.notify("there is nothing to save yet", severity="warning")
            return
        folder = getattr(self.screen, "export_folder", None)
        folders = [f for f in (folder, Path.cwd()) if f is not None]
        name = self.id or type(self).__name__.lower()
        self.run_worker(
            _save(self, saved, folders, name, getattr(self.screen, "export_caption", "")), group="export"
        )


async def _save(widget: Any, saved: Saved, folders: list[Path], name: str, caption: str) -> None:
    try:
        files = await asyncio.to_thread(save, saved, folders, name, caption)
    except WarpdeckError as error:
        widget.notify(str(error), title="could not save", severity="error", markup=False)
    else:
        kinds = ", ".join(file.suffix for file in files[1:])
        widget.notify(f"{files[0]}, {kinds}", title="saved", timeout=10, markup=False)


def save(saved: Saved, folders: list[Path], name: str, caption: str = "") -> list[Path]:
    """Write `NAME-N.svg`, `.png` and `.csv`, N the first that is free, into the first of `folders` that takes
    them. The picture says below what it is of. WarpdeckError if no folder takes them."""
    drawing = saved.drawing()
    if caption:
        drawing.width = max(drawing.width, text_width(caption) + 20)
        drawing.text(10, drawing.height + 2, caption, FAINT)
        drawing.height += 16
    contents = {
        ".svg": drawing.svg().encode(),
        ".png": drawing.png(),
        ".csv": saved.csv().encode(),
    }
    stem = re.sub(r"[^\w.-]+", "-", name)
    problem: OSError | None = None
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            base = next(base for base in _bases(folder, stem) if not _taken(base, contents))
            files = [base.with_name(base.name + ending) for ending in contents]
            for file, content in zip(files, contents.values(), strict=True):
                file.write_bytes(content)
        except OSError as error:
            problem = error
        else:
            return files
    raise WarpdeckError(f"{problem}; start the console in a folder that can be written to")


def _bases(folder: Path, stem: str) -> Iterator[Path]:
    return (folder / f"{stem}-{number}" for number in range(1, 1_000_000))


def _taken(base: Path, endings: dict[str, bytes]) -> bool:
    return any(base.with_name(base.name + ending).exists() for ending in endings)

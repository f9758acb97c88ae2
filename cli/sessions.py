"""`sessions`: what was run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import UsageError
from . import names, options
from .output import confirmed, json_document, line, message, table, warning

sessions_app = typer.Typer(
    help="What was run: list, show, compare, export, import, remove.", no_args_is_help=True
)

if TYPE_CHECKING:
    from ..sessions.comparing import Row

Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="A session's name, a unique beginning of it, a path, `last`, or a bundled name.",
        autocompletion=names.sessions,
    ),
]


@sessions_app.command("list")
def sessions_list(as_json: options.Json = False) -> None:
    """List the sessions, newest first. A damaged one is shown as such.

    Bundled sessions are unpacked among them when they are first asked for by name.
    """
    from ..sessions import examples
    from ..sessions.listing import list_sessions

    found = list_sessions()
    packed = [name for name in examples.names() if name not in {info.id for info in found}]
    for info in found:
        if info.error:
            warning(info.error)
    if as_json:
        json_document({"sessions": [info.to_json() for info in found], "bundled": packed})
        return
    if packed:
        message(f"bundled, to show or replay by name: {', '.join(packed)}")
    if not found:
        message("no sessions yet; `warpdeck tune softmax` makes one")
        return
    table(
        ["session", "workload", "agent", "device", "started", "steps", "best", "state"],
        [
            (
                i.id,
                i.workload,
                i.agent,
                i.device,
                i.started,
                i.steps,
                None if i.best_speedup is None else f"{i.best_speedup:.3f}×",
                i.state,
            )
            for i in found
        ],
        right=(5, 6),
    )


@sessions_app.command("show")
def sessions_show(session: Session = "last", as_json: options.Json = False) -> None:
    """Show a session: its result, how it ended, its files."""
    from ..sessions import examples
    from ..sessions.database import odd_content
    from ..sessions.listing import show

    document = show(examples.resolve(session))
    if as_json:
        json_document(document)
        return
    with odd_content(document["id"]):
        _show(document)


def _show(document: Mapping[str, Any]) -> None:
    from .results import show_result

    ended = f": {document['reason']}" if document["reason"] else ""
    line(f"session   {document['id']} ({document['state']}{ended})")
    line(f"started   {document['started']}; ran {document['seconds']:.1f} s, {document['events']} events")
    line(f"folder    {document['path']}")
    if document["header"].get("command"):
        line(f"command   {document['header']['command']}")
    for artifact in document["artifacts"]:
        line(f"{artifact['name']:<9} {artifact['path']}")
    if document["result"]["best"]:
        line()
        show_result(document["result"])


@sessions_app.command("compare")
def sessions_compare(
    sessions: Annotated[
        list[str],
        typer.Argument(
            metavar="SESSION SESSION...",
            help="Two or more: names, or beginnings.",
            autocompletion=names.sessions,
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Compare sessions: best, intervals, statuses, budgets, best configurations side by side."""
    from ..sessions import examples
    from ..sessions.comparing import compare

    found = compare([examples.resolve(session) for session in sessions])
    if as_json:
        json_document(found.to_json())
        return
    table(
        ["", "", *found.sessions],
        [
            ("≠" if row.differs else "", row.name, *(_cell(row, i) for i in range(len(row.cells))))
            for row in found.rows
        ],
    )
    for note in found.notes:
        message(note)


def _cell(row: Row, index: int) -> str:
    return f"{row.cells[index]} *" if row.best == index else row.cells[index]


@sessions_app.command("export")
def sessions_export(
    session: Session,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="What to write; - is stdout. [default: in this folder]"),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="A table of every configuration and size (phase 0).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The result and every evaluation, without samples.")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="A standalone kernel: knobs baked in, dispatched by size.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="A report to read and send: one HTML file; - is stdout."),
    ] = None,
) -> None:
    """Export a session: packed (to import elsewhere), as CSV or JSON, as a report, or its best kernel."""
    from ..sessions import examples

    if csv + as_json + best + (html is not None) > 1:
        raise UsageError("--csv, --json, --best and --html exclude each other")
    if html is not None and target is not None:
        raise UsageError(f"--html names its own file: leave {target} out")
    folder = examples.resolve(session)
    if html is not None:
        _export_html(folder, html)
        return
    if target is not None and str(target) != "-" and not target.is_dir():
        options.writable(target, "FILE")
    if csv:
        _export_csv(folder, target or Path(f"{folder.name}.csv"))
    elif best:
        _export_best(folder, target)
    elif as_json and str(target) == "-":
        from ..sessions.exporting import session_document

        json_document(session_document(folder))
    else:
        from ..sessions.exporting import export

        line(str(export(folder, "json" if as_json else "tar", target)))


def _export_csv(folder: Path, target: Path) -> None:
    from ..sessions import phase0
    from ..sessions.store import SessionStore

    with SessionStore.open(folder) as store:
        if str(target) == "-":
            table_rows, failures = phase0.rows(store)
            line(phase0.csv_text(table_rows).rstrip("\n"))
        else:
            _, failures = phase0.export([store], target)
            line(str(target))
    if failures:
        message(f"{failures} evaluation(s) that failed have no row")


def _export_html(folder: Path, target: Path) -> None:
    from ..sessions.html_report import report, write_report

    if str(target) == "-":
        line(report(folder).rstrip("\n"))
        return
    options.writable(None if target.is_dir() else target, "--html")
    line(str(write_report(folder, target)))


def _export_best(folder: Path, target: Path | None) -> None:
    from ..sessions.best import standalone
    from ..sessions.report import write_text
    from ..sessions.store import SessionStore

    with SessionStore.open(folder) as store:
        name, text = standalone(store)
    if target is not None and str(target) == "-":
        line(text.rstrip("\n"))
        return
    path = target / name if target is not None and target.is_dir() else target or Path(name)
    suffix = Path(name).suffix
    if path.suffix != suffix and path.suffix in (".py", ".cu"):
        raise UsageError(f"FILE {path}: this kernel's source ends in {suffix}")
    write_text(path, text)
    line(str(path))


@sessions_app.command("import")
def sessions_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `sessions export` packed.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name it differently.")] = None,
) -> None:
    """Import a session that was exported elsewhere."""
    from ..sessions.portable import import_session

    line(import_session(file, name=name).name)


@sessions_app.command("rm")
def sessions_rm(
    sessions: Annotated[
        list[str],
        typer.Argument(metavar="SESSION", help="Names, or unique beginnings.", autocompletion=names.runs),
    ],
    yes: options.Yes = False,
) -> None:
    """Remove sessions for good."""
    from ..sessions import paths
    from ..sessions.listing import remove

    folders = [paths.resolve(session) for session in sessions]
    if not yes and not confirmed(f"remove {', '.join(f.name for f in folders)} for good?"):
        raise typer.Abort
    for folder in folders:
        remove(folder)
        line(folder.name)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(sessions_app, name="sessions")

"""`workloads` and `recordings`: what can be tuned, and what was measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .output import json_document, line, message, table, warning

workloads_app = typer.Typer(help="What can be tuned: bundled workloads and your own.", no_args_is_help=True)


@workloads_app.command("list")
def workloads_list(as_json: options.Json = False) -> None:
    """List the bundled workloads."""
    from ..kernels.loader import list_workloads, load_workload

    found = [load_workload(name) for name in list_workloads()]
    rows = [
        {
            "name": w.name,
            "description": w.description,
            "variants": list(w.variants),
            "spaces": {s.name: s.cardinality for s in w.spaces.values()},
            "vendor": w.vendor_name,
        }
        for w in found
    ]
    if as_json:
        json_document({"workloads": rows})
        return
    table(
        ["workload", "spaces (unrestricted)", "beside", "description"],
        [
            (
                r["name"],
                ", ".join(f"{n} {c:,}" for n, c in r["spaces"].items()),
                r["vendor"],
                r["description"],
            )
            for r in rows
        ],
    )


@workloads_app.command("show")
def workloads_show(
    workload: options.Workload, size: options.Sizes = None, as_json: options.Json = False
) -> None:
    """Show a workload: arguments, cases, variants, spaces, knobs and restrictions."""
    from ..core.bench import performance_cases
    from ..kernels.loader import load_workload
    from ..kernels.stored import list_stored

    loaded = load_workload(workload)
    beside = [info for info in list_stored(loaded.name) if not info.error]
    cases = performance_cases(loaded, size or [])
    document = {
        "name": loaded.name,
        "description": loaded.description,
        "folder": str(loaded.folder),
        "arguments": [
            {
                "name": a.name,
                "kind": a.kind,
                "dtype": a.dtype,
                "shape": list(a.shape),
                "direction": a.direction,
                "value": a.value,
                "language": a.language,
            }
            for a in loaded.arguments
        ],
        "tolerance": loaded.tolerance.to_json(),
        "cases": [{"name": c.name, "role": str(c.role), "params": dict(c.params)} for c in loaded.cases],
        "performance_cases": [{"name": c.name, "params": dict(c.params)} for c in cases],
        "variants": [
            {"name": v.name, "file": str(v.file), "language": v.language, "source_hash": v.source_hash}
            for v in loaded.variants.values()
        ],
        "spaces": [
            {
                "name": s.name,
                "variant": s.variant,
                "knobs": {k: list(v) for k, v in s.knobs.items()},
                "restrictions": list(s.restrictions),
                "baseline": dict(loaded.baseline(s.name).config),
                "unrestricted": s.cardinality,
                "valid": {c.name: len(s.configs(c.params)) for c in cases},
            }
            for s in loaded.spaces.values()
        ],
        "vendor": loaded.vendor_name,
        "traces_and_profiles": [info.to_json() for info in beside],
    }
    if as_json:
        json_document(document)
        return
    line(f"{loaded.name}: {loaded.description}")
    line(f"folder   {loaded.folder}")
    line(f"beside   {loaded.vendor_name or 'no vendor library'}")
    line(f"correct  {', '.join(f'{k} {v}' for k, v in loaded.tolerance.to_json().items())}")
    line()
    table(
        ["argument", "kind", "type", "shape or value", "direction"],
        [
            (
                a.name,
                f"{a.kind} ({a.language} only)" if a.language else a.kind,
                a.dtype,
                a.value if a.kind == "scalar" else "×".join(a.shape),
                None if a.kind == "scalar" else a.direction,
            )
            for a in loaded.arguments
        ],
    )
    for space in document["spaces"]:
        line()
        counts = ", ".join(f"{n:,} at {case}" for case, n in space["valid"].items())
        line(
            f"space {space['name']} (variant {space['variant']}): {counts};"
            f" unrestricted {space['unrestricted']:,}"
        )
        width = max((len(k) for k in space["knobs"]), default=0)
        for knob, values in space["knobs"].items():
            line(f"  {knob:<{width}}  {' '.join(str(v) for v in values)}")
        for restriction in space["restrictions"]:
            line(f"  only if {restriction}")
        line("  baseline " + ", ".join(f"{k}={v}" for k, v in space["baseline"].items()))
    for kind in dict.fromkeys((info.kind, info.device) for info in beside):
        mine = [f"{info.variant} at {info.case}" for info in beside if (info.kind, info.device) == kind]
        line()
        line(f"{kind[0]}s on {kind[1]}: {', '.join(mine)}; shown by: warpdeck {kind[0]} {loaded.name}")


@workloads_app.command("new")
def workloads_new(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to create; its name names the kernel.")
    ],
    language: Annotated[
        str, typer.Option("--language", metavar="cuda|numba", help="What the kernel is written in.")
    ] = "cuda",
) -> None:
    """Create a workload's folder, complete and working, to start from."""
    from ..kernels.loader import list_workloads
    from ..kernels.scaffold import new_workload

    for file in new_workload(folder, language):
        line(str(file))
    named = (
        f"./{folder}" if str(folder) in list_workloads() else str(folder)
    )  # alone it means the bundled one
    message(f"edit the kernel, then: warpdeck check {named}   and   warpdeck bench {named} --watch")


recordings_app = typer.Typer(help="Measured spaces that recorded devices answer from.", no_args_is_help=True)


@recordings_app.command("list")
def recordings_list(as_json: options.Json = False) -> None:
    """List the recordings that ship and those you imported, and traces and profiles beside them."""
    from ..kernels.recordings import list_recordings
    from ..kernels.stored import list_stored

    found = list_recordings()
    beside = list_stored()
    for info in (*found, *beside):
        if info.error:
            warning(info.error)
    if as_json:
        json_document(
            {
                "recordings": [info.to_json() for info in found],
                "traces_and_profiles": [info.to_json() for info in beside],
            }
        )
        return
    if not found:
        message("no recordings")
        return
    table(
        ["recording", "device", "gpu", "date", "configs", "kB", "from"],
        [
            (
                info.id,
                f"recorded:{r.name}" if (r := info.recording) else None,
                r.device.name if r else "damaged",
                r.date if r else None,
                len(r.entries) if r else None,
                round(info.bytes / 1000),
                "bundled" if info.bundled else "imported",
            )
            for info in found
        ],
        right=(4, 5),
    )
    if not beside:
        return
    line()
    table(
        ["shown by", "variant", "size", "device", "gpu", "date", "kB", "from"],
        [
            (
                f"warpdeck {info.kind} {info.workload}" if info.workload else info.path.name,
                info.variant,
                info.case,
                info.device,
                "damaged" if info.error else info.gpu,
                info.date,
                round(info.bytes / 1000),
                "bundled" if info.bundled else "imported",
            )
            for info in beside
        ],
        right=(6,),
    )


@recordings_app.command("import")
def recordings_import(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A recording, a T4 file or a Kernel Tuner cache; plain or .gz."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Its device becomes recorded:NAME. [default: the file's]"
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option("--workload", metavar="W", help="What was tuned. [default: the kernel's name]"),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name", metavar="GPU", help="What it was measured on, if the file doesn't say."
        ),
    ] = None,
    t1: Annotated[
        Path | None,
        typer.Option("--t1", metavar="FILE", help="The T1 file of the tuning problem: knobs, kernel, size."),
    ] = None,
) -> None:
    """Import a recording, or what another tuner measured; its device is then known by its name.

    What is odd about another tuner's file is said on stderr, once, and kept in the recording.
    """
    from ..core.recording import statuses
    from ..kernels.recordings import import_recording

    path, found = import_recording(file, name=name, workload=workload, device_name=device_name, t1=t1)
    line(str(path))
    if not found.imported:
        return
    for note in found.origin["notes"]:
        warning(note)
    counts = ", ".join(f"{n} {status}" for status, n in statuses(found.entries.values()).items())
    message(f"{found.workload}, {found.reading.label}: {len(found.entries)} configurations ({counts})")
    message(f"tune it: warpdeck tune --device recorded:{found.name}")


@recordings_app.command("export")
def recordings_export(
    recording: Annotated[str, typer.Argument(metavar="RECORDING", help="As `recordings list` names it.")],
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file to write, or a folder; - is stdout.")
    ] = Path(),
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="warpdeck (all that is known, valid T4), t4 (plain T4) or kernel-tuner (its cache).",
        ),
    ] = "warpdeck",
    cache: Annotated[
        str | None,
        typer.Option("--cache", metavar="cold|hot", help="Whose samples the others hold. [default: cold]"),
    ] = None,
) -> None:
    """Export a recording, for warpdeck or another tuner."""
    from ..core.model import CacheMode
    from ..kernels.recordings import export_recording, recording_text

    mode = CacheMode(options.choice("--cache", cache, ("cold", "hot"))) if cache else None
    if str(target) == "-":
        line(recording_text(recording, form, mode).rstrip("\n"))
    else:
        line(str(export_recording(recording, target, form, mode)))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(workloads_app, name="workloads")
    app.add_typer(recordings_app, name="recordings")

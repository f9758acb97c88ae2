"""What may load when: the command line and the console stay light, and the package list stays complete."""

from __future__ import annotations

import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "numba", "pandas", "openai", "cuda", "gymnasium", "stable_baselines3", "optuna")
LAYERS = ("cli", "tui", "sessions")


def modules_after(code: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What an empty program loads; numba-cuda's .pth file loads a redirector in every process."""
    return modules_after("pass")


def python_modules(folder: str) -> list[str]:
    files = sorted((ROOT / folder).rglob("*.py"))
    return ["warpdeck." + ".".join(f.relative_to(ROOT).with_suffix("").parts) for f in files]


@pytest.mark.parametrize("layer", LAYERS)
def test_upper_layers_import_nothing_heavy(layer: str, bare: set[str]) -> None:
    imports = "\n".join(f"import {name}" for name in python_modules(layer) if not name.endswith("__init__"))
    loaded = modules_after(imports) - bare
    assert not loaded & set(HEAVY)
    if layer == "sessions":
        assert "textual" not in loaded and "typer" not in loaded


def test_help_is_light(bare: set[str]) -> None:
    loaded = modules_after("from warpdeck.cli.app import run\nassert run(['--help']) == 0") - bare
    assert not loaded & {*HEAVY, "textual", "numpy", "rich"}


def test_help_is_fast() -> None:
    """200 ms at most, in processor time of the whole process: wall time depends on what runs beside."""

    def cost() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "warpdeck", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cost() for _ in range(3)) <= 0.2


def test_the_package_itself_loads_nothing(bare: set[str]) -> None:
    loaded = modules_after("import warpdeck\nassert 'load_workload' in dir(warpdeck)") - bare
    assert not loaded & {*HEAVY, "numpy", "typer", "textual"}


def test_public_names_exist() -> None:
    import warpdeck

    for name in warpdeck.__all__:
        assert getattr(warpdeck, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = warpdeck.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_every_package_is_installed() -> None:
    """setuptools can't find packages whose root is the repository's: the list is kept by hand."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(config["tool"]["setuptools"]["packages"])
    outside = {"tests", "docs", "build", "site"}
    found = {"warpdeck"}
    for init in ROOT.glob("[a-z]*/**/__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts[0] not in outside and "templates" not in parts:
            found.add(".".join(("warpdeck", *parts)))
    assert listed == found


def test_every_data_file_is_packaged() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = config["tool"]["setuptools"]["package-data"]
    packaged = set()
    for package, patterns in packages.items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            packaged.update(folder.glob(pattern))
    for folder in ("core", "kernels", "telemetry", "agents", "sessions", "tui", "cli"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                is_module = file.suffix == ".py" and (file.parent / "__init__.py").is_file()
                assert is_module or file in packaged, f"{file.relative_to(ROOT)} is not in the wheel"

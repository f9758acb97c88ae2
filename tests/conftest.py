"""What every test shares: an own home, no colours, and GPU tests skipped where there is no GPU."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says nothing on a machine that does something else as well.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a shell's background jobs; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.set_threshold(50_000, 20, 20)  # at the usual 700 a sixth of the screens' tests was collecting garbage


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own `WARPDECK_HOME`, cache and lock folder, so that no test touches the user's."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("WARPDECK_HOME", str(home))
    monkeypatch.setenv("WARPDECK_LOCK_DIR", str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "110")
    return home


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all of pytest's processes share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def compiled_once(isolated_home: Path, kept: Path) -> None:
    """What is compiled is kept for other tests: for those that aren't about compiling."""
    (kept / "compiled").mkdir(exist_ok=True)
    (isolated_home / "cache").mkdir()
    (isolated_home / "cache" / "compiled").symlink_to(kept / "compiled")


@pytest.fixture(scope="session", autouse=True)
def emulator_cache(kept: Path) -> Iterator[None]:
    """Compiling the emulator's own code takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPDECK_EMULATOR_CACHE", str(kept / "emulator"))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where NVML sees no device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from warpdeck.telemetry import nvml

    if nvml.device_count() == 0:
        skip = pytest.mark.skip(reason="needs a CUDA GPU")
        for item in marked:
            item.add_marker(skip)

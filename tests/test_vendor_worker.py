"""The worker that holds the vendor's library: real processes, and stand-ins for torch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warpdeck.core.worker import ForkServer, WorkerFault, WorkerHandle
from warpdeck.core.worker.library import VendorWorker

LOADING = "import os\n__version__ = os.environ['CUDA_MODULE_LOADING']\n"
MISSING = "raise ImportError('no such library')\n"
SLOW = "import os, time\nopen(os.environ['SEEN'], 'w').write(str(os.getpid()))\ntime.sleep(60)\n"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], VendorWorker]]:
    """A vendor worker whose torch is this source text."""
    servers: list[ForkServer] = []

    def begin(torch: str) -> VendorWorker:
        (tmp_path / "torch.py").write_text(torch)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
        servers.append(ForkServer())
        return VendorWorker(servers[-1], lambda handle: None)

    yield begin
    for server in servers:
        server.close()


def ready(vendor: VendorWorker) -> None:
    deadline = time.monotonic() + 30
    while not vendor.ready and time.monotonic() < deadline:
        time.sleep(0.005)
    assert vendor.ready


def test_it_imports_in_the_background_in_a_worker_that_loads_lazily(
    start: Callable[[str], VendorWorker], tmp_path: Path
) -> None:
    vendor = start(LOADING)
    opened: list[WorkerHandle] = []
    vendor._open = lambda handle: opened.append(handle)
    ready(vendor)
    assert not opened  # no context before a time is asked for
    with pytest.raises(WorkerFault, match="no context yet"):  # what only a GPU can have answered
        vendor.handle(tmp_path / "reference.py", object())
    assert opened[0].call("vendor_import") == {"torch": "LAZY"}
    vendor.close()


def test_without_the_library_every_call_says_so(start: Callable[[str], VendorWorker], tmp_path: Path) -> None:
    vendor = start(MISSING)
    for _ in range(2):
        with pytest.raises(WorkerFault, match="torch doesn't import"):
            vendor.handle(tmp_path / "reference.py", object())
    vendor.close()


def test_closing_ends_an_import_that_goes_on(start: Callable[[str], VendorWorker], tmp_path: Path) -> None:
    vendor = start(SLOW)
    vendor.begin()
    deadline = time.monotonic() + 30
    while not (tmp_path / "seen").exists() or not (tmp_path / "seen").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    pid = int((tmp_path / "seen").read_text())
    began = time.monotonic()
    assert not vendor.ready
    vendor.close()
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

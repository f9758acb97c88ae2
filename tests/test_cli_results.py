"""Documents of runs that found nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import synthetic

from warpdeck.core import recording
from warpdeck.core.model import Status
from warpdeck.kernels import load_workload


def test_json_is_printed_when_no_configuration_worked(tmp_path: Path) -> None:
    made = synthetic.make(load_workload("softmax"), "full", 256)
    failed = {
        key: replace(entry, status=Status.TIMEOUT, message="10 s are over", series={})
        for key, entry in made.entries.items()
    }
    file = tmp_path / made.file_name
    recording.save(replace(made, entries=failed), file)
    command = [sys.executable, "-m", "warpdeck", "tune", "softmax", "--device", f"recorded:{file}"]
    command += ["--size", "256", "--agent", "random", "--steps", "3", "--headless", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["best"] is None and document["counts"] == {"timeout": 3}
    assert "no configuration worked" in done.stderr and "Traceback" not in done.stderr

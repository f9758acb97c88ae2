"""Secrets of this process' environment stay in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from warpdeck.core.environment import is_secret, without_secrets
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.toolchain.process import CompileProcess
from warpdeck.core.worker import ForkServer


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "github_token", "PGPASSWORD", "SSH_AUTH_SOCK"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "KEYBOARD", "TOKENIZERS_PARALLELISM"]
)
def test_names_that_processes_need(name: str) -> None:
    assert not is_secret(name, "/usr/lib")


def test_a_password_in_a_url_is_a_secret() -> None:
    given = {"http_proxy": "http://me:hush@proxy:3128", "https_proxy": "http://proxy:3128", "A": "b"}
    assert without_secrets(given) == {"https_proxy": "http://proxy:3128", "A": "b"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_compile_processes_and_workers_get_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    monkeypatch.setenv("WARPDECK_TEST_HARMLESS", "yes")
    assert os.environ["OPENAI_API_KEY"] == "sk-hush"
    compiler = CompileProcess(CompileCache(tmp_path))
    try:
        with ForkServer() as server:
            worker = server.fork()
            for pid in (compiler.pid, server.pid, worker.pid):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                assert b"WARPDECK_TEST_HARMLESS=yes" in environment
                assert b"hush" not in environment
            worker.kill()
    finally:
        compiler.close()

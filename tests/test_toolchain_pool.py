"""The compile pool: its processes, its cache, and what a hostile kernel can't do to either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

pytest.importorskip("numba.cuda", reason="needs the cuda extra")
pytest.importorskip("cuda.bindings.nvjitlink", reason="needs the cuda extra")

from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.model import Launch
from warpdeck.core.toolchain import Compiled, CompileError, CompilePool, CompileRequest
from warpdeck.core.toolchain.cache import CompileCache, pack, unpack

CC = (9, 0)
BODY = 'extern "C" __global__ void k(float *a) { a[threadIdx.x] = VALUE; }'
NUMBA = """
import os, signal, sys, time
def make(tile):
    {}
    def k(x):
        x[0] = tile
    return k
"""


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "cache")


@pytest.fixture
def pool(cache):
    with CompilePool(2, cache=cache, time_limit_s=60) as pool:
        yield pool


def cuda(value: int, **more) -> CompileRequest:
    return CompileRequest("cuda", "k.cu", ("k",), CC, knobs={"VALUE": value}, text=BODY, **more)


def numba(folder: Path, statement: str = "pass", **more) -> CompileRequest:
    file = folder / "kernel.py"
    text = NUMBA.format(statement)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
    return CompileRequest(
        "numba", str(file), ("k",), CC, (("float32", 1),), {"tile": more.pop("tile", 1)}, **more
    )


def children() -> set[int]:
    """Processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def test_results_come_from_the_cache_the_second_time(pool, cache, tmp_path):
    first = pool.submit_request(numba(tmp_path)).result(60)
    assert not first.cached and first.seconds > 0
    again = pool.submit_request(numba(tmp_path)).result(60)
    assert again.cached and again.cubin == first.cubin and again.seconds == first.seconds
    with CompilePool(1, cache=cache) as other:
        assert other.submit_request(numba(tmp_path)).result(60).cached
    (tmp_path / "kernel.py").write_text(NUMBA.format("tile = 7"))
    changed = pool.submit_request(numba(tmp_path, "tile = 7")).result(60)
    assert not changed.cached and changed.code_hash != first.code_hash


def test_launches_belong_to_the_request(pool):
    small, large = Launch("k", (1, 1, 1), (32, 1, 1)), Launch("k", (9, 1, 1), (1024, 1, 1), 100 * 1024)
    futures = [pool.submit_request(cuda(1), [launch]) for launch in (small, large)]
    results = [future.result(60) for future in futures]
    assert [r.launches for r in results] == [(small,), (large,)]
    assert [r.resources.occupancy for r in results] == [0.5, 1.0]
    with pytest.raises(CompileError, match="no kernel 'other'"):
        pool.submit_request(cuda(1), [Launch("other", (1, 1, 1), (32, 1, 1))]).result(60)


def test_every_failure_arrives_through_the_future(pool, tmp_path):
    missing = CompileRequest("cuda", str(tmp_path / "none.cu"), ("k",), CC)
    wrong = cuda(1)
    wrong = CompileRequest("cuda", "k.cu", ("k",), CC, text=BODY)  # VALUE isn't defined
    with pytest.raises(CompileError, match="can't read the source"):
        pool.submit_request(missing).result(60)
    with pytest.raises(CompileError, match='identifier "VALUE" is undefined') as caught:
        pool.submit_request(wrong).result(60)
    assert "1 error detected" in caught.value.log
    assert pool.submit_request(cuda(2)).result(60).entries == {"k": "k"}


def test_a_crash_fails_its_job_alone(pool, tmp_path):
    crash = numba(tmp_path, "print('last words', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    futures = [pool.submit_request(cuda(i)) for i in range(3)]
    crashed = pool.submit_request(crash)
    futures += [pool.submit_request(cuda(i)) for i in range(3, 6)]
    with pytest.raises(CompileError, match=r"the compiler process died \(SIGSEGV\)") as caught:
        crashed.result(60)
    assert "last words" in caught.value.log
    assert all(isinstance(future.result(60), Compiled) for future in futures)


def test_an_answer_that_makes_no_sense_fails_its_job_alone(pool, tmp_path):
    """A module can write to any descriptor it finds, and so pose as the compiler."""
    forge = "[os.write(fd, b'C' + (3).to_bytes(8, 'little') + b'abc') for fd in range(3, 9) if _pipe(fd)]"
    helper = (
        "_pipe = lambda fd: os.path.exists(f'/proc/self/fd/{fd}') and stat.S_ISFIFO(os.fstat(fd).st_mode)"
    )
    forged = pool.submit_request(numba(tmp_path, f"import stat; {helper}; {forge}; os._exit(0)"))
    with pytest.raises(CompileError, match="answered nonsense"):
        forged.result(60)
    assert pool.submit_request(cuda(1)).result(60).entries == {"k": "k"}


def test_an_exit_fails_its_job_alone(pool, tmp_path):
    with pytest.raises(CompileError, match=r"the compiler process died \(exit code 3\)"):
        pool.submit_request(numba(tmp_path, "os._exit(3)")).result(60)
    assert pool.submit_request(cuda(1)).result(60).entries


def test_a_stuck_compile_is_stopped(cache, tmp_path):
    with CompilePool(1, cache=cache, time_limit_s=1) as pool:
        stuck = pool.submit_request(numba(tmp_path, "time.sleep(600)"))
        after = pool.submit_request(cuda(1))
        with pytest.raises(CompileError, match="took more than 1 s and was stopped"):
            stuck.result(60)
        assert after.result(60).entries


def test_cancelling(cache, tmp_path):
    with CompilePool(1, cache=cache) as pool:
        ready = tmp_path / "running"
        statement = f"open({str(ready)!r}, 'w'); time.sleep(600)"
        running = pool.submit_request(numba(tmp_path, statement))
        waiting = pool.submit_request(cuda(1))
        twin = pool.submit_request(cuda(2)), pool.submit_request(cuda(2))
        pool.cancel(waiting)
        pool.cancel(twin[0])
        assert waiting.cancelled() and twin[0].cancelled()
        wait_until(ready.exists)
        pool.cancel(running)
        with pytest.raises(CancelledError):
            running.result(10)
        assert twin[1].result(60).entries  # with a new process
        pool.cancel(twin[1])  # done: nothing happens
        assert twin[1].result().entries


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closing_leaves_no_process_and_no_open_future(cache, tmp_path):
    before = children()
    pool = CompilePool(2, cache=cache)
    pool.submit_request(cuda(1)).result(60)
    ready = tmp_path / "running"
    futures = [pool.submit_request(numba(tmp_path, f"open({str(ready)!r}, 'w'); time.sleep(600)"))]
    futures += [pool.submit_request(cuda(i)) for i in range(2, 12)]
    wait_until(ready.exists)
    assert children() - before
    pool.close()
    assert children() == before
    assert not wait(futures, 0).not_done
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit_request(cuda(99))
    pool.close()


def test_processes_for_code_of_others_are_ready_before_there_is_any(cache):
    before = children()
    with CompilePool(4, cache=cache) as pool:
        for ready in pool.warm(9):
            ready.result(60)
        warm = children() - before
        assert len(warm) == 2 and not [f for f in cache.folder.rglob("*") if f.is_file()]
        assert pool.submit_request(cuda(1, confined=True)).result(60).entries
        assert children() - before == warm


def test_processes_die_with_a_killed_parent(tmp_path):
    (tmp_path / "kernel.py").write_text(NUMBA.format("time.sleep(600)"))
    code = """
import sys, time
from pathlib import Path
from warpdeck.core.toolchain import CompilePool, CompileRequest
from warpdeck.core.toolchain.cache import CompileCache
folder = Path(sys.argv[1])
pool = CompilePool(1, cache=CompileCache(folder / "cache"))
make = CompileRequest("numba", str(folder / "kernel.py"), ("k",), (9, 0), (("float32", 1),), {"tile": 1})
pool.submit_request(make)
while not (jobs := [job.process.pid for job in pool._jobs.values() if job.process]):
    time.sleep(0.01)
print(*jobs, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_is_the_parent_s_to_handle(cache):
    with CompilePool(1, cache=cache) as pool:
        others = children()  # of other tests of this process
        pool.submit_request(cuda(1)).result(60)
        mine = children() - others
        for pid in mine:
            os.kill(pid, signal.SIGINT)
        assert pool.submit_request(cuda(2)).result(60).entries
        assert children() >= mine


def test_a_process_that_ended_while_idle_is_replaced(cache):
    with CompilePool(1, cache=cache) as pool:
        before = children()
        pool.submit_request(cuda(1)).result(60)
        for pid in children() - before:
            os.kill(pid, signal.SIGKILL)
        assert pool.submit_request(cuda(2)).result(60).entries


def test_this_process_imports_no_compiler(tmp_path):
    (tmp_path / "kernel.py").write_text(NUMBA.format("pass"))
    code = """
import os, sys
from pathlib import Path
from warpdeck.core.toolchain import CompileRequest, compile_cuda, default_pool
folder = Path(sys.argv[1])
assert compile_cuda('extern "C" __global__ void k() {}', "k.cu", (9, 0)).entries == {"k": "k"}
make = CompileRequest("numba", str(folder / "kernel.py"), ("k",), (9, 0), (("float32", 1),), {"tile": 1})
assert default_pool().submit_request(make).result().entries["k"]
assert (folder / "home" / "cache" / "compiled").is_dir()
print([m for m in sys.modules if m.split('.')[0] in ('numba', 'llvmlite', 'cuda', 'torch')])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "WARPDECK_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_register_caps_share_numba_s_work(pool, cache, tmp_path):
    log = tmp_path / "makes"
    statement = f"open({str(log)!r}, 'a').write('x')"
    results = [pool.submit_request(numba(tmp_path, statement, reg_cap=cap)).result(60) for cap in (0, 32, 64)]
    assert log.read_text() == "x"
    assert len({result.code_hash for result in results}) == 1


def test_equal_requests_under_way_compile_once(cache, tmp_path):
    log = tmp_path / "makes"
    request = numba(tmp_path, f"open({str(log)!r}, 'a').write('x'); time.sleep(0.2)")
    with CompilePool(2, cache=cache) as pool:
        results = [future.result(60) for future in [pool.submit_request(request) for _ in range(8)]]
    assert log.read_text() == "x"
    assert len({id(result.cubin) for result in results}) == 1


def test_a_module_s_prints_don_t_reach_stdout(pool, tmp_path, capfd):
    pool.submit_request(numba(tmp_path, "print('noise'); os.write(1, b'noise')")).result(60)
    assert capfd.readouterr() == ("", "")


def test_no_gpu_is_touched(pool, tmp_path):
    statement = "from numba import cuda; assert not cuda.is_available()"
    assert pool.submit_request(numba(tmp_path, statement)).result(60).entries


# -- the cache --------------------------------------------------------------------------------------


def entries(cache: CompileCache) -> list[Path]:
    return sorted(path for path in cache.folder.glob("??/*") if path.is_file())


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_entries_are_compiled_again(pool, cache, tmp_path, damage):
    first = pool.submit_request(numba(tmp_path)).result(60)
    for path in entries(cache):
        data = path.read_bytes()
        path.write_bytes(data[:-1] if damage is None else damage)
    again = pool.submit_request(numba(tmp_path)).result(60)
    assert not again.cached and again.code_hash == first.code_hash
    assert pool.submit_request(numba(tmp_path)).result(60).cached


def test_a_cache_that_can_t_be_written_only_costs_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with CompilePool(1, cache=CompileCache(blocked / "cache")) as pool:
        assert not pool.submit_request(cuda(1)).result(60).cached
        assert not pool.submit_request(cuda(1)).result(60).cached


def test_least_recently_used_go_first(tmp_path):
    cache = CompileCache(tmp_path, limit=10_000)
    keys = [f"{i:02d}key" for i in range(10)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1500))
        os.utime(cache.folder / key[:2] / key[2:], (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # used just now
    cache.trim()
    kept = [key for key in keys if cache.get(key) is not None]
    assert kept == [keys[0], *keys[-4:]]  # 80% of the limit
    assert not list(tmp_path.glob("*/.tmp*"))


def test_readers_never_see_part_of_an_entry(tmp_path):
    cache, stop, wrong = CompileCache(tmp_path), threading.Event(), []
    versions = [pack({"n": n}, [bytes([n]) * 200_000]) for n in range(2)]

    def read() -> None:
        while not stop.is_set():
            data = cache.get("00key")
            if data is not None and data not in versions:
                wrong.append(len(data))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(200):
        cache.put("00key", versions[n % 2])
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.lists(st.binary(max_size=200)))
@settings(deadline=None)
def test_container_round_trip(header, blobs):
    assert unpack(pack(header, blobs)) == (header, blobs)


@given(st.binary(max_size=300))
def test_container_refuses_anything_else(data):
    with pytest.raises(ValueError, match="not compiled code"):
        unpack(data)

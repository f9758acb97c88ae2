"""Compiling in parallel, in processes of its own, through the cache."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass, field, replace

from ..errors import WarpdeckError
from ..model import Candidate, Case, Launch
from ..workload import Workload
from .cache import CompileCache
from .compiled import Compiled, CompileError, CompileRequest, ToolchainError
from .process import CompileProcess, ProcessEnded
from .requests import candidate_request, cuda_request
from .sources import request_key, source_files

MAX_WORKERS = 16
TIME_LIMIT_S = 60.0
_NOTHING = 'extern "C" __global__ void nothing() {}'


@dataclass(eq=False)
class _Job:
    key: str
    request: CompileRequest
    files: dict[str, str]
    waiters: list[tuple[Future[Compiled], tuple[Launch, ...]]] = field(default_factory=list)
    kept: bool = True  # in the cache
    started: bool = False
    process: CompileProcess | None = None  # while it compiles


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CompilePool:
    """Compile processes that start when needed and end with `close` (or with this process).

    This process imports neither Numba nor the CUDA bindings. A candidate that takes a compile process
    down, or keeps it busy beyond the time limit, fails alone; the next one gets a new process. Equal
    requests that are under way are compiled once.

    Args:
        workers: Processes at most; None: one for each CPU, at most 16.
        cache: Where results are kept; None: the user's cache folder.
        time_limit_s: Seconds that one compile may take.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cache: CompileCache | None = None,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self.workers = min(available_cpus(), MAX_WORKERS) if workers is None else workers
        if self.workers < 1:
            raise ValueError("a pool needs at least one worker")
        self.cache = CompileCache() if cache is None else cache
        self.time_limit_s = time_limit_s
        self._lock = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._jobs: dict[str, _Job] = {}  # waiting or running, by key
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        atexit.register(self.close)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # -- submitting --------------------------------------------------------------------------------

    def submit(
        self,
        workload: Workload,
        candidate: Candidate,
        case: Case,
        cc: tuple[int, int] = (9, 0),
        *,
        ptx: bool = False,
        trace: bool = False,
    ) -> Future[Compiled]:
        """Compile a candidate, with its stage markers if `trace`.

        The case gives the launches for `Compiled.resources`, no more.

        What is wrong with the candidate (CompileError, UsageError), the missing compiler
        (ToolchainError) and an early end (CancelledError) arrive through the future.
        """
        try:
            request = candidate_request(workload, candidate, cc, ptx=ptx, trace=trace)
            launches = workload.launches(candidate, case)
        except WarpdeckError as error:
            return _failed(error)
        return self.submit_request(request, launches)

    def submit_cuda(
        self, source: str, name: str, cc: tuple[int, int], options: Sequence[str] = ()
    ) -> Future[Compiled]:
        """Compile CUDA C++ text; every kernel in it is an entry under its own symbol."""
        return self.submit_request(cuda_request(source, name, cc, options))

    def submit_request(self, request: CompileRequest, launches: Sequence[Launch] = ()) -> Future[Compiled]:
        """Compile a request; see `submit`."""
        future: Future[Compiled] = Future()
        try:
            files = source_files(request)
        except WarpdeckError as error:
            return _failed(error)
        key = request_key(request, files)
        stored = self._stored(key)
        if stored is not None:
            _settle(future, stored, tuple(launches))
            return future
        with self._lock:
            if self._closed:
                raise RuntimeError("the compile pool is closed")
            job = self._jobs.get(key)
            if job is None:
                job = _Job(key, request, files)
                self._enqueue(job)
            elif job.started:
                future.set_running_or_notify_cancel()
            job.waiters.append((future, tuple(launches)))
        return future

    def warm(self, count: int, cc: tuple[int, int] = (9, 0)) -> list[Future[Compiled]]:
        """Have processes ready that compile CUDA C++ of others: so many, but no more than half of all.

        To start one and to load the compiler in it takes longer than most compiles. Returns at once, with
        what tells when each is ready.
        """
        request = replace(cuda_request(_NOTHING, "nothing.cu", cc), confined=True)
        started: list[Future[Compiled]] = []
        with self._lock:
            for number in range(min(count, max(self.workers // 2, 1))):
                key = f"nothing {number}"
                if not self._closed and key not in self._jobs:
                    started.append(Future())
                    self._enqueue(_Job(key, request, {}, [(started[-1], ())], kept=False))
        return started

    def _enqueue(self, job: _Job) -> None:
        self._jobs[job.key] = job
        self._queue.append(job)
        self._lock.notify()
        if len(self._queue) > self._idle and len(self._threads) < self.workers:
            thread = threading.Thread(target=self._serve, name="warpdeck-compile", daemon=True)
            self._threads.append(thread)
            thread.start()

    def cancel(self, future: Future[Compiled]) -> None:
        """Give up on a future, also when it is being compiled: then its process ends, unless others
        wait for the same code. The future raises CancelledError."""
        if future.cancel() or future.done():
            return
        with self._lock:
            job = next((j for j in self._jobs.values() if any(f is future for f, _ in j.waiters)), None)
            if job is None:
                return
            job.waiters = [(f, launches) for f, launches in job.waiters if f is not future]
            if not job.waiters and job.process is not None:
                job.process.kill()
        future.set_exception(CancelledError())

    def close(self) -> None:
        """End every compile process now; what waits or runs is cancelled. Closing twice is fine."""
        with self._lock:
            self._closed = True
            futures = [future for job in self._jobs.values() for future, _ in job.waiters]
            for job in self._jobs.values():
                job.waiters = []
                if job.process is not None:
                    job.process.kill()
            self._queue.clear()
            self._jobs.clear()
            self._lock.notify_all()
        for future in futures:
            if future.cancel():
                future.set_running_or_notify_cancel()  # wakes who waits
            elif not future.done():
                future.set_exception(CancelledError())
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        atexit.unregister(self.close)

    # -- the threads, one for each process ---------------------------------------------------------

    def _next(self) -> _Job | None:
        with self._lock:
            self._idle += 1
            try:
                while not self._queue and not self._closed:
                    self._lock.wait()
                return None if self._closed else self._queue.popleft()
            finally:
                self._idle -= 1

    def _serve(self) -> None:
        kept: dict[bool, CompileProcess | None] = {}  # one for code of others, one for the rest
        try:
            while (job := self._next()) is not None:
                confined = job.request.confined
                if not confined or job.request.language == "cuda":
                    kept[confined] = self._run(job, kept.get(confined))
                elif (process := self._run(job, None)) is not None:
                    process.close()  # the module that ran in it may have changed it
        finally:
            for process in kept.values():
                if process is not None:
                    process.close()

    def _run(self, job: _Job, process: CompileProcess | None) -> CompileProcess | None:
        """Compile one job. Returns the process to go on with; None if it is gone."""
        with self._lock:
            job.started = True
            job.waiters = [w for w in job.waiters if w[0].set_running_or_notify_cancel()]
        outcome: Compiled | WarpdeckError | None
        try:
            outcome = None
            for attempt in range(2):  # a process that ended while idle isn't this candidate's fault
                if process is not None and not process.alive:
                    process.close()
                    process = None
                if process is None:
                    process = CompileProcess(self.cache, job.request, job.files)
                with self._lock:
                    if self._closed or not job.waiters:
                        break
                    job.process = process
                try:
                    outcome = process.compile(job.request, job.files, self.time_limit_s)
                    if job.kept:
                        self.cache.put(job.key, outcome.to_bytes())
                    break
                except ProcessEnded as end:
                    if attempt:
                        raise ToolchainError(f"the compiler process doesn't start ({end})") from None
        except WarpdeckError as error:
            outcome = error
        except OSError as error:
            outcome = WarpdeckError(f"can't start a compile process: {error.strerror or error}")
        with self._lock:
            job.process = None
            self._jobs.pop(job.key, None)
            waiters, job.waiters = job.waiters, []
        for future, launches in waiters:
            _settle(future, outcome, launches)
        return process if process is not None and process.alive else None

    def _stored(self, key: str) -> Compiled | None:
        data = self.cache.get(key)
        if data is None:
            return None
        try:
            return replace(Compiled.from_bytes(data), cached=True)
        except (ValueError, KeyError, TypeError):
            self.cache.drop(key)
            return None


def _failed(error: BaseException) -> Future[Compiled]:
    future: Future[Compiled] = Future()
    future.set_exception(error)
    return future


def _settle(
    future: Future[Compiled], outcome: Compiled | WarpdeckError | None, launches: tuple[Launch, ...]
) -> None:
    """Give a future its result: the code for its own launches, or the error; None: it was cancelled."""
    try:
        if isinstance(outcome, Compiled):
            future.set_result(outcome.with_launches(launches) if launches else outcome)
        else:
            future.set_exception(outcome or CancelledError())
    except CompileError as error:
        future.set_exception(error)
    except InvalidStateError:  # cancelled just now
        pass


_default: CompilePool | None = None
_default_lock = threading.Lock()


def default_pool() -> CompilePool:
    """This process's shared pool, started at the first call."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = CompilePool()
        return _default


def compile_candidate(
    workload: Workload,
    candidate: Candidate,
    case: Case,
    cc: tuple[int, int] = (9, 0),
    *,
    ptx: bool = False,
    trace: bool = False,
) -> Compiled:
    """Compile a candidate in the shared pool and wait for it.

    Args:
        case: Gives the launches for `Compiled.resources`.
        cc: Compute capability to compile for; the GPU need not be here.
        ptx: Numba: keep the PTX too (CUDA C++ always has it).
        trace: Compile the stage markers in.

    Raises:
        CompileError: it doesn't compile; the message is the compiler's own.
        UsageError: an unknown variant, or an impossible launch.
        ToolchainError: the compilers aren't installed.
    """
    return default_pool().submit(workload, candidate, case, cc, ptx=ptx, trace=trace).result()


def compile_cuda(source: str, name: str, cc: tuple[int, int], options: Sequence[str] = ()) -> Compiled:
    """Compile CUDA C++ text in the shared pool and wait for it; entries are the kernels' symbols.

    Raises CompileError and ToolchainError as `compile_candidate` does. `name` stands for the text in
    messages and line information.
    """
    return default_pool().submit_cuda(source, name, cc, options).result()

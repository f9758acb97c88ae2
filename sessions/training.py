"""A training run as a session: its log can be attached to and replayed like any other run's."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..agents import registry
from ..core.errors import ExitCode, WarpdeckError
from . import facts, paths
from .alive import RunLock
from .events import Kind, Lifecycle
from .log import LogWriter, RunControl
from .store import SessionStore

if TYPE_CHECKING:
    from ..agents.ppo import TrainResult


def train_session(
    settings: Mapping[str, Any],
    *,
    name: str | None = None,
    sessions: Path | None = None,
    listen: Callable[[str, Mapping[str, Any]], None] = lambda kind, data: None,
    signals: bool = False,
) -> tuple[Path, TrainResult]:
    """Train a policy in this process; its files lie in the session's artifacts.

    Args:
        settings: fields of `agents.ppo.TrainConfig`.
        name: the session's id; made from agent and time if None.
        sessions: folder of sessions; the home's if None.
        listen: told every event too; must be quick.
        signals: SIGINT and SIGTERM stop the training after its step and keep its model; a second one at once.

    Returns:
        The session's folder, and where its files are and how it went.

    Raises:
        UsageError: a missing extra, an unknown name, an impossible value, a size that isn't recorded.
        NoDeviceError: the CUDA device isn't there.
    """
    registry.require_rl()
    from ..agents.ppo import TrainConfig, require_torch_device, train
    from ..agents.tasks import tasks_of

    config = TrainConfig(**settings)
    require_torch_device(config.torch_device)
    with ExitStack() as stack:
        tasks = tasks_of(config)
        stack.callback(tasks.close)
        label = "+".join(dict.fromkeys(task.kernel for task in tasks.tasks))
        store = SessionStore.create(
            sessions or paths.home().sessions,
            name or paths.new_id(label.replace("+", "-"), "ppo"),
            {
                "training": dict(settings),
                "workload": label,
                "agent": "ppo",
                "seed": config.seed,
                "command": facts.command_line(),
            },
        )
        stack.enter_context(store)
        lock = RunLock.acquire(store.folder)
        stack.callback(lock.release)
        log = LogWriter(store)
        stack.callback(log.close)
        control = RunControl(store, log, lock)
        stack.callback(control.close)
        if signals:
            stack.enter_context(_stop_on_signals(control))

        def sink(kind: str, data: Mapping[str, Any]) -> None:
            if kind == Kind.ARTIFACT:
                data = {**data, "path": str(Path(data["path"]).relative_to(store.folder))}
            log.sink(kind, data)
            listen(kind, data)

        bench = tasks.tasks[0].bench
        sink(Kind.STATE, {"state": Lifecycle.RUNNING, "reason": ""})
        sink(
            Kind.START,
            {
                "workload": label,
                "agent": "ppo",
                "seed": config.seed,
                "space": config.space,
                "cases": [],  # an episode has one each; the steps' speedups are over their own baselines
                "device": bench.device.to_json(),
                "protocol": {"cache": config.cache, "warmup": 1, "samples": 5},
                "steps": config.total_steps,
                "time_limit_s": None,
                "command": facts.command_line(),
                "versions": facts.versions(),
                "knobs": {knob: list(values) for knob, values in tasks.space.knobs.items()},
                "total_configs": len(bench.configs()),
            },
        )
        try:
            result = train(config, store.folder / paths.ARTIFACTS, sink=sink, control=control, tasks=tasks)
        except BaseException as error:
            code = error.exit_code if isinstance(error, WarpdeckError) else ExitCode.RUN_FAILED
            stopped = isinstance(error, KeyboardInterrupt)
            sink(
                Kind.STATE,
                {
                    "state": Lifecycle.CANCELLED if stopped else Lifecycle.FAILED,
                    "reason": "stopped at once" if stopped else str(error),
                    "exit_code": int(ExitCode.INTERRUPTED if stopped else code),
                },
            )
            raise
        ended = Lifecycle.CANCELLED if result.stopped else Lifecycle.FINISHED
        code = ExitCode.INTERRUPTED if result.stopped else ExitCode.OK
        sink(Kind.STATE, {"state": ended, "reason": control.stop_reason or "", "exit_code": int(code)})
        return store.folder, result


@contextmanager
def _stop_on_signals(control: RunControl) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks; a second one interrupts."""

    def handle(number: int, frame: FrameType | None) -> None:
        if control.stop_reason is not None:
            raise KeyboardInterrupt
        control.stop_soon(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

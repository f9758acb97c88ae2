"""The Run screen: one run, live, attached or replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Footer, Static

from ...core.errors import WarpdeckError
from ...sessions.events import Lifecycle
from ...sessions.state import RunState
from ...telemetry.ncu.counters import Counters
from ...telemetry.trace.timeline import Timeline
from .. import evidence, view
from ..evidence import Found, Subject
from ..format import config_flags
from ..sources import Playback, RunSource
from ..widgets.gauges import GaugePanel
from ..widgets.leaderboard import Leaderboard, Row
from ..widgets.log import LogPane
from ..widgets.plot import Plot
from .confirm import ConfirmScreen

INTERVAL_S = 0.25
# Ticks at least between two drawings of the panes that cost most terminal output.
PACE = {"plots": 2, "table": 4}

PANES = ("gauges", "reward", "speedup", "leaderboard", "log")
TOP_PANES = PANES[:3]
LOGGED = ("messages", "records", "baseline", "result")  # parts of the state that the log pane tells


class RunScreen(Screen[None]):
    """A view of a RunSource. `interval` is the seconds between polls; None: only `tick()` polls (tests)."""

    HELP = """\
### Run

One run as its log tells it: gauges of the GPU, reward and speedup per step, the leaderboard, messages.
The console is only a view. Quitting leaves the run alive; `warpdeck attach` comes back to it.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", key_display="space", id="run.pause", tooltip="Pause or resume"),
        Binding("s", "stop", "Stop", id="run.stop", tooltip="Stop the run (asks first)"),
        Binding("left", "step(-1)", "Step", key_display="←→", id="replay.back", tooltip="One step back"),
        Binding("right", "step(1)", "Step on", show=False, id="replay.forward"),
        Binding(
            "less_than_sign", "speed(-1)", "Speed", key_display="<>", id="replay.slower", tooltip="Slower"
        ),
        Binding("greater_than_sign", "speed(1)", "Faster", show=False, id="replay.faster"),
        Binding("z", "zoom", "Zoom", id="run.zoom", tooltip="Maximise the focused pane, or back"),
        Binding(
            "p", "next_plot", "Next plot", show=False, id="run.plot", tooltip="Show the next pane on top"
        ),
        Binding("t", "timeline", "Timeline", id="run.timeline", tooltip="The configuration's trace"),
        Binding("c", "counters", "Counters", id="run.counters", tooltip="The configuration's counters"),
        Binding("y", "copy", "Copy", id="run.copy", tooltip="Copy the marked or the best configuration"),
        Binding("question_mark", "help", "Help", key_display="?", id="run.help"),
        Binding("q", "leave", "Quit", id="run.quit", tooltip="Leave the console; the run goes on"),
        *(
            Binding(
                str(n),
                f"digit({n})",
                f"Focus {PANES[n - 1]}" if n in range(1, len(PANES) + 1) else "Jump",
                show=False,
                id=f"run.{n}",
            )
            for n in range(10)
        ),
    ]

    def __init__(self, source: RunSource, *, interval: float | None = INTERVAL_S) -> None:
        super().__init__()
        self.source = source
        self.state = RunState()
        self._interval = interval
        self._timer: Timer | None = None
        self._trouble = ""
        self._stopping = False
        self._due: set[str] = set()
        self._age = dict(PACE)  # ticks since each was drawn: the first time at once
        self._header = ("", "")
        self._drawn: dict[str, object] = {}
        self.add_class("-replay" if isinstance(source, Playback) else "-live")

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        yield Static("", id="verdict", markup=False)
        with Horizontal(id="top"):
            yield GaugePanel(id="gauges")
            yield Plot("Reward", empty="no steps yet", id="reward")
            yield Plot("Speedup over the baseline", empty="no steps yet", unit="×", id="speedup")
        yield Leaderboard(id="leaderboard")
        yield LogPane(id="log")
        if isinstance(self.source, Playback):
            yield Static("", id="replay", markup=False)
        yield Footer(show_command_palette=False, compact=True)
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.add_class("-top-speedup")
        self.query_one("#leaderboard").focus()
        self.call_after_refresh(self.tick)
        if self._interval is not None:
            self._timer = self.set_interval(self._interval, self.tick)

    def on_unmount(self) -> None:
        self.source.close()

    def on_resize(self) -> None:
        self.query_one("#tiny", Static).update(
            f"warpdeck needs 60×16, this terminal is {self.size.width}×{self.size.height}"
        )
        self._draw_header()

    # What the source says

    async def tick(self) -> None:
        """Poll the source and bring the screen up to date. The only place that does either.

        The poll runs in a thread, so that a locked database can't freeze the keys; it touches no widget.
        """
        state = None
        try:
            state = await asyncio.to_thread(self.source.poll)
        except WarpdeckError as error:
            self._trouble = f"{error}; trying again"
        else:
            self._trouble = ""
        if not self.is_attached:  # closed in the meantime
            return
        if state is not None:
            self._take(state)
        for name, draw in (("plots", self._draw_plots), ("table", self._draw_table)):
            self._age[name] += 1
            if name in self._due and self._age[name] >= PACE[name]:
                self._due.discard(name)
                self._age[name] = 0
                with self.app.batch_update():
                    draw()
        self._draw_header()

    def _take(self, state: RunState) -> None:
        before, self.state = self.state, state
        replay = isinstance(self.source, Playback)
        if any(getattr(state, part) is not getattr(before, part) for part in LOGGED):
            self.query_one(LogPane).show(view.log_lines(state))
        if state.leaderboard is not before.leaderboard or state.result is not before.result:
            self._due.add("table")
        if state.steps is not before.steps:
            self._due.add("plots")
        if bool(state.leaderboard) != bool(before.leaderboard):
            self.refresh_bindings()
        if state.lifecycle is not before.lifecycle:
            self.refresh_bindings()
            self._due.add("table")
            if before.seq and state.lifecycle.final and not replay:
                self.notify(view.verdict_line(state, 40), title="The run has ended", markup=False)

    def _draw_plots(self) -> None:
        self.query_one("#reward", Plot).show(view.reward_series(self.state))
        self.query_one("#speedup", Plot).show(view.speedup_series(self.state))

    def _draw_table(self) -> None:
        self.query_one(Leaderboard).show(view.leaderboard(self.state), self.state.evaluations)

    def _draw_header(self) -> None:
        width = self.size.width - 2
        capabilities = self.source.capabilities
        mode = "REPLAY · " if capabilities.replay else "attached · " if capabilities.attach else ""
        now = self.source.now()
        self._put("#title", view.title_line(self.state, mode, width))
        self._put("#progress", self._trouble or view.progress_line(self.state, now, width))
        self.query_one("#progress").set_class(bool(self._trouble), "-trouble")
        self._put("#verdict", view.verdict_line(self.state, width))
        gauge = view.gauge_view(self.state, capabilities.replay, now)
        self.query_one(GaugePanel).show(gauge.title, gauge.rows, gauge.note, stored=gauge.stored)
        if isinstance(self.source, Playback):
            self._put("#replay", view.replay_line(self.source, self.state, width))

    def _put(self, selector: str, text: str) -> None:
        if self._drawn.get(selector) != text:
            self._drawn[selector] = text
            self.query_one(selector, Static).update(text, layout=False)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what makes sense now is offered, in the footer, the help and the palette."""
        replay = isinstance(self.source, Playback)
        over = self.state.lifecycle.final
        if action in ("step", "speed"):
            return replay
        if action == "stop":
            return not (replay or over or self._stopping)
        if action == "pause":
            return replay or not over
        if action in ("timeline", "counters"):
            return bool(self.state.leaderboard)
        if action == "digit":
            return replay or parameters[0] in range(1, len(PANES) + 1)
        return True

    def describe(self, action: str) -> str:
        """What a binding does here, where its own words don't say it."""
        if action.startswith("digit(") and isinstance(self.source, Playback):
            return f"Jump to {10 * int(action[6:-1])}%"
        return ""

    def action_pause(self) -> None:
        """Play or pause a replay; pause or resume a run between two steps."""
        if isinstance(self.source, Playback):
            self.source.toggle()
            self._draw_header()
            return
        paused = self.state.lifecycle is Lifecycle.PAUSED
        command, doing = ("resume", "resuming") if paused else ("pause", "pausing after this step")
        self.run_worker(self._ask_run(command, doing))

    def action_stop(self) -> None:
        """Ask, then stop the run."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._stop(), group="stop", exclusive=True)

        self.app.push_screen(
            ConfirmScreen(
                "Stop the run?",
                "It ends after this step. What it measured is kept, and warpdeck tune --resume goes on.",
                yes="Stop it",
                no="Let it run",
            ),
            answered,
        )

    async def _stop(self) -> None:
        self._stopping = True
        self.refresh_bindings()
        self.notify("stopping after this step")
        try:
            took = await asyncio.to_thread(self.source.stop, self._say)
        except WarpdeckError as error:
            self.notify(str(error), title="could not stop", severity="error", markup=False)
        else:
            self.notify(f"the run has ended: {took}")
        finally:
            self._stopping = False
            self.refresh_bindings()

    def _say(self, text: str) -> None:
        """From the thread that stops the run."""
        self.app.call_from_thread(self.notify, text, severity="warning")

    async def _ask_run(self, command: str, doing: str) -> None:
        try:
            await asyncio.to_thread(self.source.command, command)
        except WarpdeckError as error:
            self.notify(str(error), title=f"could not {command}", severity="error", markup=False)
        else:
            self.notify(doing)

    def action_step(self, direction: int) -> None:
        """Step a replay."""
        self._play(lambda playback: playback.step(direction))

    def action_speed(self, direction: int) -> None:
        """Change a replay's speed."""
        self._play(lambda playback: playback.change_speed(direction))

    def action_digit(self, digit: int) -> None:
        """In a replay jump to tenths of it; else focus a pane by its number."""
        if isinstance(self.source, Playback):
            self._play(lambda playback: playback.seek(digit / 10))
        else:
            self.focus_pane(PANES[digit - 1])

    def _play(self, act: Callable[[Playback], None]) -> None:
        if isinstance(self.source, Playback):
            act(self.source)
            self._age = dict(PACE)  # a jump shows everything at once
            self.run_worker(self.tick(), group="jump", exclusive=True)

    def focus_pane(self, name: str) -> None:
        """Focus a pane; where the top has room for fewer, bring it there."""
        if self.maximized is not None:
            self.minimize()
        if name in TOP_PANES:
            for other in TOP_PANES:
                self.set_class(other == name, f"-top-{other}")
        self.call_after_refresh(self._reach, name)

    def _reach(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        if not pane.display:  # no room for it beside the others
            self.maximize(pane, container=False)
        pane.focus()

    def action_next_plot(self) -> None:
        """Show the next of gauges, reward and speedup on top (all are visible on a wide terminal)."""
        current = next((i for i, n in enumerate(TOP_PANES) if self.has_class(f"-top-{n}")), 0)
        names = TOP_PANES if self.has_class("-slim") else TOP_PANES[1:]
        later = [n for n in TOP_PANES[current + 1 :] if n in names]
        self.focus_pane(later[0] if later else names[0])

    def action_zoom(self) -> None:
        """Maximise the focused pane, or restore it."""
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused, container=False)

    def _subject_row(self) -> Row | None:
        """The marked configuration; the best, unless the leaderboard has the focus."""
        table = self.query_one(Leaderboard)
        if self.focused is table and table.marked is not None:
            return table.marked
        return next(iter(view.leaderboard(self.state)), None)

    def action_timeline(self) -> None:
        """The Timeline of the marked or the best configuration."""
        self._look(evidence.find_trace, _timeline_screen)

    def action_counters(self) -> None:
        """The Counters of the marked or the best configuration."""
        self._look(evidence.find_counters, _counters_screen)

    def _look(
        self, find: Callable[[Subject], tuple[Found, str]], screen: Callable[[Found], Screen[None]]
    ) -> None:
        row = self._subject_row()
        subject = None if row is None else Subject.of(self.state, row.key, self.source.folder)
        if subject is None:
            self.notify("nothing measured yet", severity="warning")
            return
        self.run_worker(self._open(subject, find, screen), group="look", exclusive=True)

    async def _open(
        self,
        subject: Subject,
        find: Callable[[Subject], tuple[Found, str]],
        screen: Callable[[Found], Screen[None]],
    ) -> None:
        board = self.query_one(Leaderboard)
        board.loading = True
        try:
            found, note = await asyncio.to_thread(find, subject)
        except WarpdeckError as error:
            self.notify(str(error), severity="warning", timeout=20, markup=False)
            return
        finally:
            board.loading = False
        if self.is_current:
            self.app.push_screen(screen(found))
            if note:
                self.app.notify(note, severity="warning", timeout=10, markup=False)

    def action_copy(self) -> None:
        """Copy the marked configuration (the best, unless the leaderboard has the focus) as flags."""
        row = self._subject_row()
        if row is None:
            self.notify("nothing measured yet", severity="warning")
            return
        text = config_flags(row.config)
        self.app.copy_to_clipboard(text)
        self.notify(f"copied: {text}", markup=False)

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .help import HelpScreen  # Markdown costs 60 ms, which first paint shouldn't pay

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Leave; while the run is alive, say first that it goes on."""
        if isinstance(self.source, Playback) or self.state.lifecycle.final:
            self.dismiss()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.dismiss()

        self.app.push_screen(
            ConfirmScreen(
                "Quit the console?",
                f"The run goes on without it. To come back:\nwarpdeck attach {self.source.session}",
                yes="Quit",
                no="Stay",
                keys="q,ctrl+c,ctrl+q",
            ),
            answered,
        )


def _timeline_screen(timeline: Timeline) -> Screen[None]:
    from .timeline import TimelineScreen  # only when it is asked for: first paint shouldn't pay

    return TimelineScreen(timeline)


def _counters_screen(counters: Counters) -> Screen[None]:
    from .counters import CountersScreen

    return CountersScreen(counters)

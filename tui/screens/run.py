"""The Run screen: one run, live, attached or replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from ...sessions.events import Lifecycle
from ...sessions.llm_state import LlmState
from ...sessions.state import RunState
from .. import curves, llm_view, view
from ..braille import Series
from ..sources import Playback, RunSource
from ..widgets.attempts import Attempts, StatusStrip
from ..widgets.effects import EffectsPane
from ..widgets.footer import Footer
from ..widgets.gauges import GaugePanel
from ..widgets.leaderboard import Leaderboard
from ..widgets.log import LogPane
from ..widgets.model import ModelPane
from ..widgets.plot import Plot
from ..widgets.replay_bar import Moment, ReplayBar
from .confirm import ConfirmScreen
from .leaving import gone
from .steering import Steering

INTERVAL_S = 0.25
SLOW_S = 1.0  # a poll takes milliseconds
# Ticks at least between two drawings of the panes that cost most terminal output.
PACE = {"plots": 2, "table": 4}

PANES = ("gauges", "reward", "speedup", "leaderboard", "log", "effects")
LLM_PANES = ("gauges", "latency", "model", "attempts", "log")
TOP = 3  # of them are at the top, and share it where there is no room
LOGGED = ("messages", "records", "baseline", "result")  # parts of the state that the log pane tells


class RunScreen(Steering):
    """A view of a RunSource. `interval` is the seconds between polls; None: only `tick()` polls (tests)."""

    HELP = """\
### Run

One run as its log tells it: gauges of the GPU, reward and speedup per step, the leaderboard, messages; of an
agent that tries sources its attempts, their times and what the model says.
The console is only a view. Quitting leaves the run alive; `warpdeck attach` comes back to it.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", key_display="space", id="run.pause", tooltip="Pause or resume"),
        Binding("x", "stop", "Stop", id="run.stop", tooltip="Stop the run (asks first)"),
        Binding("left", "step(-1)", "Step", key_display="←→", id="replay.back", tooltip="One step back"),
        Binding("right", "step(1)", "Step on", show=False, id="replay.forward"),
        Binding(
            "less_than_sign", "speed(-1)", "Speed", key_display="<>", id="replay.slower", tooltip="Slower"
        ),
        Binding("greater_than_sign", "speed(1)", "Faster", show=False, id="replay.faster"),
        Binding(
            "p", "next_plot", "Next plot", show=False, id="run.plot", tooltip="Show the next pane on top"
        ),
        Binding("t", "timeline", "Timeline", id="run.timeline", tooltip="The configuration's trace"),
        Binding("c", "counters", "Counters", id="run.counters", tooltip="The configuration's counters"),
        Binding("s", "source", "Source", id="run.source", tooltip="What changed in the source"),
        Binding("slash", "filter", "Filter", show=False, id="run.filter", tooltip="Filter the pane"),
        Binding("m", "pick", "Pick", show=False, id="run.pick", tooltip="Pick an attempt to compare with"),
        Binding(
            "y",
            "copy",
            "Copy",
            show=False,
            id="run.copy",
            tooltip="Copy the marked or the best configuration",
        ),
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
        super().__init__(source)
        self._interval = interval
        self._timer: Timer | None = None
        self._trouble = ""
        self._due: set[str] = set()
        self._age = dict(PACE)  # ticks since each was drawn: the first time at once
        self._header = ("", "")
        self._drawn: dict[str, object] = {}
        self._chances = curves.Chance()
        self._chance: Series | None = None
        self._weighed = 0  # steps that the knob effects shown are of: weighed again after 1% more
        self.add_class("-replay" if isinstance(source, Playback) else "-live", "-top-speedup")

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        yield Static("", id="verdict", markup=False)
        yield Static("", id="nodes", markup=False)
        yield Static("", id="usage", markup=False)
        with Horizontal(id="top"):
            yield GaugePanel(id="gauges")
            yield Plot("Reward", empty="no steps yet", id="reward")
            yield Plot("Speedup over the baseline", empty="no steps yet", unit="×", id="speedup")
            yield Plot("Time per attempt", empty="no times yet", x_label="attempt", id="latency")
            yield StatusStrip(id="statuses")
            yield ModelPane(id="model")
        yield Leaderboard(id="leaderboard")
        yield Attempts(id="attempts")
        with Horizontal(id="bottom"):
            yield LogPane(id="log")
            yield EffectsPane(id="effects")
        yield Input(id="find", compact=True)
        if isinstance(self.source, Playback):
            yield ReplayBar(id="replay")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one("#find").display = False
        self.query_one("#leaderboard").focus()
        self.call_after_refresh(self.tick)
        self.tell_trouble()
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
            state = await self._polled()
        except WarpdeckError as error:
            self._trouble = f"{error}; trying again"
        else:
            self._trouble = ""
        if gone(self):  # closed in the meantime
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

    def _poll(self) -> RunState | None:
        state = self.source.poll()
        if state is not None and state.llm is None:
            self._chance = self._chances.of(state)
        return state

    async def _polled(self) -> RunState | None:
        """What a poll returns; while a slow one lasts, the screen says so."""
        polling = asyncio.ensure_future(asyncio.to_thread(self._poll))
        # One that is left when the screen closes may find the log closed: nobody is left to tell.
        polling.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        done, _ = await asyncio.wait({polling}, timeout=SLOW_S)
        if not done and not gone(self):
            self._trouble = "the session can't be read just now (locked by another process?); waiting"
            self._draw_header()
        return await polling

    def _take(self, state: RunState) -> None:
        before, self.state = self.state, state
        if (state.llm is None) != (before.llm is None):
            self._change_kind(state.llm)
        replay = isinstance(self.source, Playback)
        tried = (state.llm and state.llm.attempts) is not (before.llm and before.llm.attempts)
        if tried or any(getattr(state, part) is not getattr(before, part) for part in LOGGED):
            self.query_one(LogPane).show(view.log_lines(state))
        if state.leaderboard is not before.leaderboard or state.result is not before.result or tried:
            self._due.add("table")
        if state.steps is not before.steps or tried or state.baseline is not before.baseline:
            self._due |= {"plots", "table"}
        if state.llm is not before.llm and state.llm is not None:
            self.query_one(ModelPane).show(llm_view.model_sections(state.llm))
        if (bool(state.leaderboard), tried) != (bool(before.leaderboard), False):
            self.refresh_bindings()
        if state.lifecycle is not before.lifecycle:
            self.refresh_bindings()
            self._due.add("table")
            if before.seq and state.lifecycle.final and not replay:
                self.notify(view.verdict_line(state, 60), title="The run has ended", markup=False)

    def _change_kind(self, llm: LlmState | None) -> None:
        """Show the panes of a run that tries sources, or those of one that tries configurations."""
        for name in {*PANES[:TOP], *LLM_PANES[:TOP]}:
            self.remove_class(f"-top-{name}")
        self.set_class(llm is not None, "-llm")
        self.add_class("-top-speedup" if llm is None else "-top-latency")
        focused = self.focused
        if focused is None or focused.id in (*PANES, *LLM_PANES):
            self.call_after_refresh(self.table.focus)

    @property
    def panes(self) -> tuple[str, ...]:
        """The panes of this run, by number."""
        return PANES if self.state.llm is None else LLM_PANES

    def _draw_plots(self) -> None:
        if self.state.llm is not None:
            series, unit, log = llm_view.latency_series(self.state, self.state.llm)
            self.query_one("#latency", Plot).show(series, unit=unit, log=log)
            self.query_one(StatusStrip).show([attempt.status for attempt in self.state.llm.attempts])
            return
        self.query_one("#reward", Plot).show(curves.reward_series(self.state))
        self.query_one("#speedup", Plot).show(curves.speedup_series(self.state, self._chance))

    def _draw_table(self) -> None:
        if self.state.llm is not None:
            rows = llm_view.attempt_rows(self.state, self.state.llm)
            self.query_one(Attempts).show(rows, timed=not llm_view.emulated(self.state))
            return
        rows, failed = view.leaderboard(self.state), view.failed_rows(self.state)
        self.query_one(Leaderboard).show(rows, self.state.evaluations, failed)
        done = len(self.state.steps)
        if self.state.lifecycle.final or not self._weighed <= done < 1.01 * self._weighed:
            self._weighed = done
            self.query_one(EffectsPane).show(
                *curves.knob_effects(self.state), empty=curves.no_effects(self.state)
            )

    def _draw_header(self) -> None:
        width = self.size.width - 2
        capabilities = self.source.capabilities
        mode = "REPLAY · " if capabilities.replay else "attached · " if capabilities.attach else ""
        now = self.source.now()
        self._put("#title", view.title_line(self.state, mode, width))
        self._put("#progress", self._trouble or view.progress_line(self.state, now, width))
        self.query_one("#progress").set_class(bool(self._trouble), "-trouble")
        self._put("#verdict", view.verdict_line(self.state, width))
        if self.state.llm is not None:
            self._draw_agent(self.state.llm, now, width)
        gauge = view.gauge_view(self.state, capabilities.replay, now)
        self.query_one(GaugePanel).show(
            gauge.title, gauge.rows, gauge.note, stored=gauge.stored, samples=self.state.samples
        )
        if isinstance(self.source, Playback):
            moment = Moment.of(self.source, self.state.step, self.state.seq)
            self.query_one(ReplayBar).show(moment)

    def _draw_agent(self, llm: LlmState, now: float, width: int) -> None:
        """The state machine, tokens and money, and what shows only where there are any."""
        self.set_class(llm.asks, "-asks")
        self.set_class(llm_view.emulated(self.state), "-emulated")
        nodes = llm_view.nodes_line(llm, width)
        self.set_class(bool(nodes), "-nodes")
        if self._drawn.get("#nodes") != nodes:
            self._drawn["#nodes"] = nodes
            self.query_one("#nodes", Static).update(nodes, layout=False)
        self._put("#usage", llm_view.usage_line(llm, now, width))

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
        if action == "pick":
            return self.state.llm is not None and bool(self.state.llm.attempts)
        if action == "source":
            return bool(self.state.leaderboard or (self.state.llm and self.state.llm.attempts))
        if action == "digit":
            return replay or parameters[0] in range(1, len(self.panes) + 1)
        if action == "filter":
            return self._filtered() is not None
        return super().check_action(action, parameters)

    def describe(self, action: str) -> str:
        """What a binding does here, where its own words don't say it."""
        if action.startswith("digit(") and isinstance(self.source, Playback):
            return f"Jump to {10 * int(action[6:-1])}%"
        if action.startswith("digit("):
            return f"Focus {self.panes[int(action[6:-1]) - 1]}"
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

    def action_step(self, direction: int) -> None:
        """Step a replay."""
        self.jump(lambda playback: playback.step(direction))

    def action_speed(self, direction: int) -> None:
        """Change a replay's speed."""
        self.jump(lambda playback: playback.change_speed(direction))

    def action_digit(self, digit: int) -> None:
        """In a replay jump to tenths of it; else focus a pane by its number."""
        if isinstance(self.source, Playback):
            self.jump(lambda playback: playback.seek(digit / 10))
        else:
            self.focus_pane(self.panes[digit - 1])

    def jump(self, act: Callable[[Playback], None]) -> None:
        """Do something to the replay, and show at once where it is then."""
        if isinstance(self.source, Playback):
            act(self.source)
            self._age = dict(PACE)  # a jump shows everything at once
            self.run_worker(self.tick(), group="jump", exclusive=True)

    def focus_pane(self, name: str) -> None:
        """Focus a pane; where the top has room for fewer, bring it there."""
        if self.maximized is not None:
            self.minimize()
        top = self.panes[:TOP]
        if name in top:
            for other in top:
                self.set_class(other == name, f"-top-{other}")
        self.call_after_refresh(self._reach, name)

    def _reach(self, name: str) -> None:
        emulated = name == "latency" and self.has_class("-emulated")
        pane = self.query_one("#statuses" if emulated else f"#{name}")
        small = self.has_class("-tiny") or self.has_class("-flat")
        if not pane.display and not small:  # no room for it beside the others
            self.maximize(pane, container=False)
        pane.focus()

    def action_next_plot(self) -> None:
        """Show the next of the top's panes there (all are visible on a wide terminal)."""
        top = self.panes[:TOP]
        current = next((i for i, n in enumerate(top) if self.has_class(f"-top-{n}")), 0)
        names = top if self.has_class("-slim") or self.state.llm is not None else top[1:]
        later = [n for n in top[current + 1 :] if n in names]
        self.focus_pane(later[0] if later else names[0])

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

"""The LLM agent: proposes kernels through a model, the bench judges them, what was learnt goes into the next
prompt. Its state machine is `graph`'s; what an interrupted run needs is in its own events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.model import Candidate, Evaluation, Status
from ..base import Context, NullControl
from . import beam, prompts
from .asking import Asker
from .client import Client, Tool
from .errors import LlmError
from .graph import Machine, Node
from .history import Attempt, History, one_line, past_attempts
from .inspection import Inspector
from .ledger import Ledger, candidate_of, prepare
from .proposal import IDEAS, Proposal, ProposalError, parse
from .settings import LlmSettings
from .tools import Toolbox
from .turns import Draft, Ending, Turns, evaluate_tool

if TYPE_CHECKING:
    from ...core.bench import Bench

__all__ = ["LlmAgent", "prepare"]

REPAIRS = {"linear": 3, "beam": 1}  # of a candidate that doesn't work, one after the other
JOIN_S = 2.0  # for a turn that was told to stop
USELESS = 3  # attempts in a row without anything to evaluate, before the run ends


class LlmAgent:
    """Linear or beam search over kernels that a model writes.

    Args:
        bench: judges them.
        context: where attempts and requests are told, and what an interrupted run told.
        settings: of the model, the strategy and the budgets.

    Raises:
        UsageError: the `llm` extra or the key is missing, or a document can't be read.
    """

    name = "llm"

    def __init__(self, bench: Bench, context: Context, settings: LlmSettings) -> None:
        self._bench = bench
        self._control = Ending(context.control)
        self._context = context = replace(context, control=self._control)
        self._settings = settings
        # Of a beam a whole round: twice, since there may be as many repairs as there are ideas.
        self.lookahead = 2 * settings.parents * settings.ideas if settings.strategy == "beam" else 1
        self.stopped: str | None = None  # why `ask` has nothing more
        self.spent = False  # and whether that is a budget of tokens or money
        self.history = History()
        self._ledger = Ledger(bench, context, self.history)
        self._client = Client(settings, context)
        self._inspector = Inspector(bench, context, settings)
        self._toolbox = Toolbox(bench, settings, self.history, self._inspector)
        tools = self._toolbox.tools()
        evaluate = self._evaluate_tool if settings.drafts else None
        self._asker = Asker(self._client, bench, self.history, tools, context.emit, context.past, evaluate)
        self._turns = Turns(self._control)
        self._curious: dict[int, list[Draft]] = {}  # drafts by attempt, whose turns wait for its outcome
        self._machine = Machine(settings, self._tell_node)
        self._told: dict[str, Evaluation] = {}  # before the first ask
        self._waiting: deque[Attempt] = deque()  # to be handed to the bench
        self._asked: dict[str, Attempt] = {}  # by candidate: the bench has them
        self._slots: list[beam.Slot] = []  # to be proposed
        self._talking: dict[int, beam.Slot] = {}  # by the number of their turn
        self._reserved = 0  # the highest of those numbers
        self._round: int | None = None  # beam: the first attempt of a round that was interrupted
        self._notes = ""  # what the research found
        self._started = False
        self._steps: Mapping[Node, Callable[[], tuple[Node, str]]] = {
            Node.INITIALISE: self._initialise,
            Node.RESEARCH: self._research,
            Node.REFERENCE: self._reference,
            Node.REFINE: self._refine,
            Node.IDEAS: self._ideas,
            Node.PROPOSE: self._propose,
            Node.REPAIR: self._propose,
        }

    # -- ask and tell ------------------------------------------------------------------------------------

    def ask(self) -> Candidate | None:
        """The next candidate; None while a round is being evaluated, and when the loop has ended.

        Raises:
            LlmError: the model can't be asked, and nothing of it was evaluated.
            Stop: the run was stopped while the model was asked.
        """
        if not self._started:
            self._started = True
            self._machine.start()
        while not self._waiting:
            if self._asked or self._machine.node is Node.FINALISE:
                return None
            self._context.control.check()
            self._machine.go(*self._steps[self._machine.node]())
        attempt = self._waiting.popleft()
        candidate = candidate_of(self._bench, attempt)
        self._asked[candidate.id] = attempt
        self._inspector.hold(self._control)
        return candidate

    def tell(self, proposal: Candidate, evaluation: Evaluation, /) -> None:
        """Judge an attempt by its evaluation, and learn from it."""
        attempt = self._asked.pop(evaluation.candidate.id, None)
        if attempt is None:
            self._told[evaluation.candidate.id] = evaluation
            return
        attempt = self._ledger.judged(replace(attempt, evaluation=evaluation))
        if evaluation.status is Status.COMPILE_ERROR:
            attempt = replace(attempt, diagnosis=tuple(self._inspector.errors(attempt)))
        self._ledger.put(attempt)
        if attempt.ok and self._inspector.counters:
            self._machine.go(Node.COUNTERS, f"attempt {attempt.number}")
            attempt = replace(attempt, diagnosis=tuple(self._inspector.diagnose(attempt)))
            self._ledger.put(attempt)
        self._answer(attempt)
        if not self._asked:
            self._inspector.release()
        self._machine.go(Node.REFINE, f"attempt {attempt.number}: {attempt.reason}")
        if self._asked or self._waiting:
            self._machine.go(Node.EVALUATE, "the next of the round")

    # -- nodes -------------------------------------------------------------------------------------------

    def _initialise(self) -> tuple[Node, str]:
        for problem in self._toolbox.problems:
            self._say("warning", f"a document can't be searched: {problem}")
        past = past_attempts(self._context.past, self._context.folder)
        for attempt in past.values():
            attempt = replace(attempt, evaluation=self._told.get(attempt.candidate or ""))
            if attempt.kept is None and attempt.evaluation is not None:  # it died between both
                self._ledger.put(self._ledger.judged(attempt))
                continue
            self.history.put(attempt)
            if attempt.kept is None and attempt.variant:
                self._waiting.append(attempt)
        self._round = max((a.round for a in past.values() if a.round), default=None)
        if past:
            self._say("info", f"going on after {len(past)} attempts")
        return Node.RESEARCH if self._settings.research else Node.REFERENCE, ""

    def _research(self) -> tuple[Node, str]:
        question = prompts.research_question(self._bench.workload, self._bench.device)
        try:
            found = self._client.research(question)
            self._notes = found.text if found else ""
        except LlmError as error:
            self._say("warning", f"no research: {error}")
        return Node.REFERENCE, ""

    def _reference(self) -> tuple[Node, str]:
        self._bench.baseline()
        if len(self.history):
            return Node.REFINE, "resumed"
        attempt = self._ledger.initial()
        if attempt is None:
            return Node.REFINE, "no kernel to start from"
        self._waiting.append(attempt)
        return Node.INITIAL, attempt.variant

    def _refine(self) -> tuple[Node, str]:
        if self._turns.slots:
            repairs = self._settings.strategy == "linear" and self._turns.slots[0].repairs is not None
            return Node.REPAIR if repairs else Node.PROPOSE, "the model goes on"
        if self._round is not None and self._asker.fatal is None:
            return Node.IDEAS, "what is left of the interrupted round"
        if self._waiting:
            return Node.EVALUATE, self._names()
        reason = self._stop_reason()
        if reason is not None:
            self.stopped = reason
            self._say("info" if self._asker.fatal is None else "warning", f"stopped: {reason}")
            return Node.FINALISE, reason
        if self._settings.strategy == "beam":
            return Node.IDEAS, ""
        slot = self._linear_slot()
        failed = self.history.get(slot.repairs)
        if failed is not None:
            return Node.REPAIR, f"attempt {failed.number}: {failed.status}"
        return Node.PROPOSE, f"attempt {slot.number}"

    def _linear_slot(self) -> beam.Slot:
        """What a linear search asks for next: what is left of an interrupted turn, a repair, or an idea."""
        begun = self.history.unanswered()
        if begun is not None and begun.turn is not None:
            return beam.Slot(begun.turn, begun.parent, "", None, begun.repairs)
        failed = self.history.mendable(REPAIRS["linear"])
        if failed:
            return beam.Slot(self._next(), failed[0].parent, failed[0].idea, None, failed[0].number)
        best = self.history.best
        return beam.Slot(self._next(), best.number if best else None)

    def _ideas(self) -> tuple[Node, str]:
        first, resumed = self._round or self._next(), self._round is not None
        self._round = None
        parents = self.history.parents(self._settings.parents, before=first)
        failed = self.history.mendable(REPAIRS["beam"], before=first)
        found = beam.slots(self._ask_ideas, parents, first, self._settings.ideas, failed)
        self._slots = [slot for slot in found if not self.history.answered(slot.number)]
        if self._slots:
            repairs = sum(slot.repairs is not None for slot in self._slots)
            told = [f"{len(self._slots) - repairs} ideas", *([f"{repairs} to repair"] if repairs else [])]
            return Node.PROPOSE, ", ".join(told)
        if not resumed and self._asker.fatal is None:
            attempt = Attempt(first, idea="ideas for the next round", round=first)
            self._ledger.give_up(attempt, "no usable ideas")
        return Node.REFINE, "no usable ideas"

    def _ask_ideas(self, parent: Attempt, number: int) -> Any:
        """The model's ideas for one parent, as JSON; None if it has none. Called from several threads."""

        def build(level: int) -> str:
            count, notes = self._settings.ideas, self._notes
            return prompts.ideas(self._bench, self.history, level, parent=parent, count=count, notes=notes)

        try:
            return self._asker.ask("ideas", number, build, IDEAS).data
        except LlmError:
            return None

    def _propose(self) -> tuple[Node, str]:
        """Let the model's turns go on, until one has a draft evaluated or all have answered."""
        if not self._turns.slots:
            slots = self._slots if self._settings.strategy == "beam" else [self._linear_slot()]
            self._reserved = max(slot.number for slot in slots)
            self._turns.start(slots, self._converse)
            self._slots = []
        while not self._waiting and (draft := self._turns.next()) is not None:
            self._try(draft)
        if not self._waiting:
            for slot, outcome in self._turns.finish():
                self._accept(slot, outcome)
        return self._proposed()

    def _converse(self, slot: beam.Slot) -> Proposal | ProposalError:
        """A turn: the model's proposal for a slot. Runs in a thread."""
        failed, parent = self.history.get(slot.repairs), self.history.get(slot.parent)

        def build(level: int) -> str:
            if failed is not None:
                return prompts.repair(self._bench, self.history, level, failed=failed)
            notes = self._notes
            return prompts.propose(
                self._bench, self.history, level, parent=parent, idea=slot.idea, notes=notes
            )

        self._talking[slot.number] = slot
        try:
            return self._asker.proposal("propose" if failed is None else "repair", slot.number, build)
        except ProposalError as error:
            return error

    def _accept(self, slot: beam.Slot, proposal: Proposal | ProposalError) -> None:
        attempt = self._attempt(slot)
        if isinstance(proposal, Proposal):
            again = self._same(proposal)
            if again is not None and again.draft and again.turn == slot.number:
                self._ledger.put(replace(again, draft=False))  # evaluated already
                return
            accepted = self._ledger.accept(attempt, proposal)
            if accepted is not None:
                self._waiting.append(accepted)
        elif self._asker.fatal is None:  # else it isn't the attempt that failed
            self._ledger.give_up(attempt, f"no usable proposal: {proposal}")

    def _attempt(self, slot: beam.Slot) -> Attempt:
        """An attempt of a slot's turn: of its number, or of the next free one where a draft has that."""
        number = slot.number
        if self.history.get(number) is not None:
            number = max(self._next(), self._reserved + 1)
        turn = None if number == slot.number else slot.number
        return Attempt(number, slot.parent, slot.idea, round=slot.round, repairs=slot.repairs, turn=turn)

    # -- drafts ------------------------------------------------------------------------------------------

    def _evaluate_tool(self, turn: int) -> Tool:
        def run(arguments: Mapping[str, Any]) -> str:
            most = self._settings.drafts
            if self.history.drafts(turn) >= most:
                raise ValueError(f"{most} drafts were evaluated, and there are no more: answer now")
            try:
                proposal = parse(arguments, self._bench.workload, self._bench.cases)
            except ProposalError as error:
                raise ValueError(str(error)) from None
            return prompts.quoted("OUTCOME", self._turns.evaluated(Draft(self._talking[turn], proposal)))

        return evaluate_tool(self._settings.drafts, run)

    def _try(self, draft: Draft) -> None:
        """Have a draft evaluated, or tell what is known of it."""
        again = self._same(draft.proposal)
        if again is not None and (again.kept is not None or not again.variant):
            draft.told.set_result(f"this was evaluated before\n{self._outcome(again)}")
            return
        if again is None:
            attempt = replace(self._attempt(draft.slot), turn=draft.slot.number, draft=True)
            again = self._ledger.accept(attempt, draft.proposal)
            assert again is not None  # nothing is the same
            self._waiting.append(again)
        self._curious.setdefault(again.number, []).append(draft)

    def _answer(self, attempt: Attempt) -> None:
        """Tell the turns that wait for an attempt's outcome."""
        for draft in self._curious.pop(attempt.number, ()):
            draft.told.set_result(self._outcome(attempt))

    def _outcome(self, attempt: Attempt) -> str:
        return f"{one_line(attempt)}\n{prompts.said_of(self._bench, attempt)}"

    def _same(self, proposal: Proposal) -> Attempt | None:
        return self.history.same(proposal.source, proposal.launches, dict(proposal.case_launches))

    # -- helpers -----------------------------------------------------------------------------------------

    def _proposed(self) -> tuple[Node, str]:
        return (Node.EVALUATE, self._names()) if self._waiting else (Node.REFINE, "no usable proposal")

    def _names(self) -> str:
        return ", ".join(f"attempt {attempt.number}" for attempt in self._waiting)

    def _next(self) -> int:
        last = self.history.last
        return 1 if last is None else last.number + 1

    # -- the end -----------------------------------------------------------------------------------------

    def end(self) -> None:
        """The budget of steps or time is spent: no turn spends more, or uses the device any longer."""
        self._control.over = True
        self._inspector.hold(NullControl())
        self._turns.join(JOIN_S)
        if self._machine.node is Node.REFINE:
            self._machine.go(Node.FINALISE, "the run's budget is spent")

    def _stop_reason(self) -> str | None:
        """Why the loop should end now; None if it shouldn't. Raises what made it impossible to begin."""
        fatal = self._asker.fatal
        if fatal is not None:
            if fatal.kind != "budget" and not any(a.evaluation and a.number > 1 for a in self.history):
                raise fatal
            self.spent = fatal.kind == "budget"
            return str(fatal)
        settings, spent, cost = self._settings, self._client.usage.total, self._client.cost
        if self.history.without_proposal() >= USELESS:
            last = self.history.last
            reason = last.reason if last else ""
            return f"{USELESS} attempts in a row brought nothing to evaluate; the last: {reason}"
        if settings.max_tokens is not None and spent >= settings.max_tokens:
            self.spent = True
            return f"{spent:,} tokens are spent, of {settings.max_tokens:,}"
        if settings.max_cost is not None and cost is not None and cost >= settings.max_cost:
            self.spent = True
            return f"{cost:.4f} USD are spent, of {settings.max_cost:g}"
        if settings.stagnation and self.history.since_win() >= settings.stagnation:
            return f"no win in {settings.stagnation} attempts"
        best = self.history.best
        share = prompts.share_of_floor(self._bench, best) if best else None
        if settings.target is not None and share is not None and share >= settings.target:
            return f"the best has {share:.1%} of the floor's speed, {settings.target:.0%} were wanted"
        return None

    def _tell_node(self, node: Node, detail: str) -> None:
        self._context.emit("node", {"node": str(node), "detail": detail})

    def _say(self, level: str, text: str) -> None:
        self._context.emit("message", {"level": level, "text": text})

"""How talking to a model fails: one plain line each, and a kind that the agent's loop can act on."""

from __future__ import annotations

from ...core.errors import WarpdeckError


class LlmError(WarpdeckError):
    """The model can't be asked, or gave nothing usable, and trying again won't help.

    Args:
        message: What failed, one line, without the key.
        remedy: What the user can do; may be empty.
        kind: `key` (401), `forbidden` (403), `model` (unknown), `quota` (nothing left to spend at the
            provider), `budget` (the run's own tokens or money are spent), `refused` (the model declined),
            `context` (see `ContextOverflow`), `length` (the answer was cut), `invalid` (no valid answer
            after all repairs), `tool_loop`, `request` (the server rejects the request), `server` (no answer
            after all retries).
    """

    def __init__(self, message: str, remedy: str = "", kind: str = "server") -> None:
        self.message = message
        self.remedy = remedy
        self.kind = kind
        super().__init__(f"{message}; {remedy}" if remedy else message)


class ContextOverflow(LlmError):
    """The conversation is longer than the model's context: condense it and ask again."""

    def __init__(self, message: str, remedy: str = "", limit: int | None = None) -> None:
        super().__init__(
            message, remedy or "shorten the history or choose a model with more context", "context"
        )
        self.limit = limit
        """The server's limit in tokens, if it said it."""

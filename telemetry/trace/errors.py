"""What traces raise: one plain line that says which file or warp, what is wrong, and what to do."""

from __future__ import annotations


class TraceError(ValueError):
    """A trace, or a file of one, can't be read, decoded or written."""

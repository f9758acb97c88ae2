"""Read only: what changes a run, a session or a file is refused where it is done, not where it is asked."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from textual.dom import DOMNode

Method = TypeVar("Method", bound=Callable[..., Any])


def changes(what: str) -> Callable[[Method], Method]:
    """Mark a method of a screen, a widget or the app that changes something outside of the console.

    `what` completes "this console doesn't …", as in "stop runs". Whoever calls the method, a key, a button
    or the palette, a read-only console says so and does nothing.
    """

    def decorate(method: Method) -> Method:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def slowly(self: DOMNode, *args: Any, **kwargs: Any) -> Any:
                return None if refused(self, what) else await method(self, *args, **kwargs)

            act: Callable[..., Any] = slowly
        else:

            @functools.wraps(method)
            def at_once(self: DOMNode, *args: Any, **kwargs: Any) -> Any:
                return None if refused(self, what) else method(self, *args, **kwargs)

            act = at_once
        setattr(act, _MARK, what)
        return cast("Method", act)

    return decorate


_MARK = "_changes"


def refused(node: DOMNode, what: str) -> bool:
    """Whether this console is read only; then it says that it doesn't do it."""
    app = node.app
    if not getattr(app, "readonly", False):
        return False
    app.notify(f"read only: this console doesn't {what}", severity="warning", markup=False)
    return True


def changed_by_class(owner: type[Any], action: str) -> str | None:
    """What an action of a class changes, as `changes` was told; None for one that only shows something."""
    name = action.partition("(")[0].rpartition(".")[2]
    return getattr(getattr(owner, f"action_{name}", None), _MARK, None)

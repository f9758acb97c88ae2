"""HTML that is safe by construction: every text is escaped unless this module made it.

A session's texts come from models, files and other machines. They become text nodes and attribute values,
never markup; characters that would reorder or hide what is read are shown as what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from .words import NONE, clipped

MOST_TEXT = 4000  # characters of any one text
# Control characters, and those that turn the direction of the text after them around or have no width.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_VOID = frozenset({"meta", "br", "hr", "col"})


class Html(str):
    """Markup that is inserted as it is. Only this package's own functions make it."""

    __slots__ = ()


Child = Any  # Html, a text, a number, None (nothing), or a sequence of these


def plain(text: Any) -> str:
    """A text as it may be shown: what could hide or reorder it is replaced by its code point, and the end of
    one that is too long is left out."""
    return visible(clipped(text, MOST_TEXT).replace("\r\n", "\n"))


def visible(text: str) -> str:
    """With code points in place of characters that would hide or reorder, or that can't be written."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def render(child: Child) -> Html:
    """A child as markup."""
    if isinstance(child, Html):
        return child
    if child is None:
        return Html()
    if isinstance(child, (list, tuple)) or (
        isinstance(child, Iterable) and not isinstance(child, (str, bytes))
    ):
        return Html("".join(render(each) for each in child))
    return Html(escape(plain(child), quote=True))


def tag(name: str, /, *children: Child, **attributes: Any) -> Html:
    """An element. `class_` is `class`, other underscores are dashes; one that is None is left out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{render(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{render(children)}</{name}>")


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    right: Iterable[int] = (),
    classes: Mapping[int, str] | None = None,
    caption: str = "",
) -> Html:
    """A table that scrolls by itself on a narrow page. `right`: columns of numbers; `classes`: of rows."""
    numbers = frozenset(right)

    def cell(name: str, index: int, content: Child) -> Html:
        scope = "col" if name == "th" else None
        return tag(name, content, class_="n" if index in numbers else None, scope=scope)

    body = [
        tag("tr", [cell("td", i, c) for i, c in enumerate(row)], class_=(classes or {}).get(number))
        for number, row in enumerate(rows)
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption) if caption else None,
            tag("thead", tag("tr", [cell("th", i, c) for i, c in enumerate(head)])),
            tag("tbody", body),
        ),
        class_="wide",
        tabindex="0",
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names and values; those without a value are left out."""
    known = [(name, value) for name, value in pairs if value not in (None, "", NONE)]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in known])


def section(title: str, anchor: str, *children: Child, note: str = "") -> Html:
    """A part of the page; nothing if it is empty."""
    content = render(children)
    if not content:
        return Html()
    said = tag("p", note, class_="note") if note else None
    return tag("section", tag("h2", title), said, content, id=anchor)

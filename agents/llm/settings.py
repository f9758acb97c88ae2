"""What a user can set about the LLM agent. The key is no setting: it comes from the environment only."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ...core.errors import UsageError
from ...core.expr import near

KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"
DEFAULT_URL = "https://api.openai.com/v1"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
STRATEGIES = ("linear", "beam")
APIS = ("auto", "chat", "responses")

Price = Mapping[str, float]
"""USD per million tokens: `input`, `output`, `cached` (input that the provider had cached; else as input)."""


@dataclass(frozen=True)
class LlmSettings:
    """The LLM agent's settings; every field may be given as text, as on a command line."""

    model: str = "gpt-5-mini"
    effort: str = "medium"
    """Reasoning effort, sent as is; empty sends none. A server that refuses it isn't asked again."""
    base_url: str | None = None
    """Of an OpenAI-compatible server, up to and with `/v1`. None: `$OPENAI_BASE_URL`, else OpenAI."""
    api: Literal["auto", "chat", "responses"] = "auto"
    """Chat completions, which any server has, or OpenAI's responses, which show reasoning summaries. auto:
    responses at OpenAI itself, and chat where the server hasn't them."""
    strategy: Literal["linear", "beam"] = "linear"
    parents: int = 2
    """Beam: how many kernels are developed further at a time."""
    ideas: int = 2
    """Beam: how many ideas per parent."""
    drafts: int = 2
    """How many drafts the model may have evaluated before each answer; each is an attempt."""
    max_tokens: int | None = None
    """Stop after this many tokens (input and output) in the whole run."""
    max_cost: float | None = None
    """Stop after this many USD; needs the model's price."""
    stagnation: int = 5
    """Stop after this many attempts without a win; 0: never."""
    target: float | None = None
    """Stop when the best kernel reaches this share of the floor, 0 to 1."""
    counters: bool = False
    """Profile each valid candidate with Nsight Compute and show the model its counters."""
    research: bool = False
    """Ask the provider's web search, limited to NVIDIA's documentation, before the first proposal."""
    docs: tuple[str, ...] = ()
    """Files and folders that `search_docs` indexes, beside our own notes."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By model name. A model that isn't here has no cost (null)."""
    answer_tokens: int | None = None
    """Limit of one answer, reasoning included. None: the server's own."""
    request_timeout_s: float = 600.0
    """How long the server may send nothing, in seconds; a whole answer may take four times as long."""
    retries: int = 5
    """How often one request is sent again after 429, 5xx, a timeout or a cut stream."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LlmSettings:
        """Settings from names and values (texts are converted). UsageError names the first bad field."""
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                raise UsageError(f"agent 'llm' has no option '{name}'; {near(name, sorted(known))}")
            values[name] = _CONVERT[name](name, value)
        settings = cls(**values)
        if settings.max_cost is not None and settings.model not in settings.prices:
            raise UsageError(
                f"max_cost: the price of model '{settings.model}' is unknown; add it to `prices` in the"
                " configuration (USD per million tokens: input, cached, output), or limit max_tokens instead"
            )
        return settings

    def to_options(self) -> dict[str, Any]:
        """As a JSON object that `from_options` takes. Fields at their default are left out."""
        plain: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "prices":
                value = {model: dict(price) for model, price in value.items()}
            elif f.name == "docs":
                value = list(value)
            if value not in (f.default, [], {}):
                plain[f.name] = value
        return plain

    def url(self, environ: Mapping[str, str] = os.environ) -> str:
        """The server's base URL."""
        return self.base_url or environ.get(URL_VARIABLE) or DEFAULT_URL

    def uses_responses(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Whether OpenAI's responses API is tried first."""
        at_home = urlsplit(self.url(environ)).hostname == urlsplit(DEFAULT_URL).hostname
        return self.api == "responses" or (self.api == "auto" and at_home)

    def price(self) -> Price | None:
        """The model's price, or None where it is unknown."""
        return self.prices.get(self.model)


def check_ready(settings: LlmSettings, environ: Mapping[str, str] = os.environ) -> None:
    """UsageError unless the `llm` extra is installed, the address is a URL and OpenAI itself gets a key.
    Sends nothing."""
    if importlib.util.find_spec("openai") is None:
        raise UsageError(
            'agent llm needs the llm extra: pip install "warpdeck[llm]" (no module named openai)'
        )
    host = urlsplit(_url(URL_VARIABLE, settings.url(environ)) or "").hostname
    key = environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"agent llm: {KEY_VARIABLE} holds characters that no key has; set it again")
    if host == urlsplit(DEFAULT_URL).hostname and not key:
        raise UsageError(
            f"agent llm: no key for {host}; set {KEY_VARIABLE}, or --base-url (or {URL_VARIABLE}) to a server"
            " of your own, or use --agent ladder, which needs no model"
        )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"agent 'llm': {name} must be a text, not {value!r}")
    return value.strip()


def _effort(name: str, value: Any) -> str:
    return "" if value in ("", None) else _one_of(EFFORTS)(name, value)


def _one_of(choices: Sequence[str]):
    def convert(name: str, value: Any) -> str:
        text = _text(name, value)
        if text not in choices:
            raise UsageError(f"agent 'llm': {name} must be one of {', '.join(choices)}, not '{text}'")
        return text

    return convert


def _url(name: str, value: Any) -> str | None:
    if value in ("", None):
        return None
    text = _text(name, value)
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        raise UsageError(f"agent 'llm': {name} '{text}' is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise UsageError(f"agent 'llm': {name} must begin with http:// or https://, not '{text}'")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"agent 'llm': {name} must hold no password; set {KEY_VARIABLE} instead")
    return text.rstrip("/")


def _number(name: str, value: Any, least: float, most: float = math.inf) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"agent 'llm': {name} must be a number, not {value!r}") from None
    if not least <= number <= most or not math.isfinite(number):
        limits = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        raise UsageError(f"agent 'llm': {name} must be {limits}, not {value}")
    return number


def _whole(least: int):
    def convert(name: str, value: Any) -> int:
        number = _number(name, value, least)
        if number != int(number) or isinstance(value, bool):
            raise UsageError(f"agent 'llm': {name} must be a whole number, not {value}")
        return int(number)

    return convert


def _optional(convert):
    return lambda name, value: None if value in ("", None) else convert(name, value)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise UsageError(f"agent 'llm': {name} must be true or false, not {value!r}")


def _docs(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part for part in value.split(os.pathsep) if part)
    if isinstance(value, Sequence) and all(isinstance(item, (str, os.PathLike)) for item in value):
        return tuple(os.fspath(item) for item in value)
    raise UsageError(f"agent 'llm': {name} must be a list of files and folders, not {value!r}")


def _prices(name: str, value: Any) -> dict[str, Price]:
    if not isinstance(value, Mapping):
        raise UsageError(f"agent 'llm': {name} must map models to prices, not {value!r}")
    prices: dict[str, Price] = {}
    for model, price in value.items():
        if not isinstance(price, Mapping) or not {"input", "output"} <= set(price) <= {
            "input",
            "cached",
            "output",
        }:
            raise UsageError(f"agent 'llm': {name}: '{model}' needs input and output (and may have cached)")
        prices[str(model)] = {
            key: _number(f"{name}: {model}: {key}", amount, 0.0) for key, amount in cast("Any", price).items()
        }
    return prices


_CONVERT = {
    "model": _text,
    "effort": _effort,
    "base_url": _url,
    "api": _one_of(APIS),
    "strategy": _one_of(STRATEGIES),
    "parents": _whole(1),
    "ideas": _whole(1),
    "drafts": _whole(0),
    "max_tokens": _optional(_whole(1)),
    "max_cost": _optional(lambda name, value: _number(name, value, 0.0)),
    "stagnation": _whole(0),
    "target": _optional(lambda name, value: _number(name, value, 0.0, 1.0)),
    "counters": _flag,
    "research": _flag,
    "docs": _docs,
    "prices": _prices,
    "answer_tokens": _optional(_whole(1)),
    "request_timeout_s": lambda name, value: _number(name, value, 0.01),
    "retries": _whole(0),
}

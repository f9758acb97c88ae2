"""Search spaces: knobs with their values, restrictions over them, and the configurations that remain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import Column, OneByOne, Rows, truths
from .configs import Configs
from .errors import UsageError
from .expr import Expr, compile_expr, near
from .model import Config, Value

MAX_PRODUCT = 20_000_000  # knob products; the validity mask takes a byte for each
_AT_ONCE = 1 << 16  # products that a restriction is evaluated over together
_FEW = 64  # are evaluated one by one sooner

Progress = Callable[[int, int], None]  # (evaluations of restrictions done, all)


def value_text(value: Value) -> str:
    """A knob value as people type it and as keys hold it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class SearchSpace:
    """All assignments of `knobs` that satisfy `restrictions`.

    Restrictions may name knobs and case parameters. Where a method takes `params` (one case's
    parameters), None leaves out the restrictions that name a case parameter.
    """

    name: str
    variant: str
    knobs: Mapping[str, tuple[Value, ...]]
    restrictions: tuple[str, ...] = ()
    baseline: Config | None = None  # in its own knobs; None: the first values, or `baseline_space`'s
    baseline_space: str | None = None  # name of the space that holds the baseline, if not this one
    listed: tuple[Config, ...] | None = None  # these alone are valid: an imported space has no restrictions
    _cache: dict[Any, Configs] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _rules(self) -> tuple[tuple[Expr, frozenset[str]], ...]:
        """Each restriction with the case parameters it names."""
        compiled = [compile_expr(text) for text in self.restrictions]
        return tuple((e, frozenset(e.names - self.knobs.keys())) for e in compiled)

    @cached_property
    def _index(self) -> dict[str, dict[Value, int]]:
        return {k: {v: i for i, v in enumerate(values)} for k, values in self.knobs.items()}

    @cached_property
    def _listed_keys(self) -> frozenset[str]:
        return frozenset(self.key(c) for c in self.listed or ())

    @property
    def cardinality(self) -> int:
        """Number of knob products, restrictions left out."""
        return math.prod(len(v) for v in self.knobs.values())

    @property
    def nvec(self) -> tuple[int, ...]:
        """Number of values of each knob, in knob order."""
        return tuple(len(v) for v in self.knobs.values())

    @cached_property
    def first(self) -> Config:
        """The first value of every knob."""
        return {k: v[0] for k, v in self.knobs.items()}

    def configs(self, params: Mapping[str, int] | None = None) -> Configs:
        """All valid configurations in knob-product order (last knob fastest), or as `listed`.

        Raises:
            UsageError: a restriction can't be evaluated, or there are over 20 million products.
        """
        return self.configs_for([params])

    def configs_for(
        self, cases: Sequence[Mapping[str, int] | None], progress: Progress | None = None
    ) -> Configs:
        """The configurations that are valid for every one of `cases` (parameters each), in order.

        `progress` is called now and then; what it raises ends the search.
        """
        key = () if self.listed is not None else tuple(p and tuple(sorted(p.items())) for p in cases)
        if key not in self._cache:
            self._cache[key] = self._enumerated(cases, progress or (lambda done, total: None))
        return self._cache[key]

    def any_valid(self, params: Mapping[str, int] | None = None) -> bool:
        """Whether there is a valid configuration. In a large space the baseline is tried first.

        Raises as `configs`.
        """
        if self.listed is None and self.cardinality > _AT_ONCE:
            self._checked_shape()
            if self.valid(self.baseline if self.baseline is not None else self.first, params):
                return True
        return bool(self.configs(params))

    def _enumerated(self, cases: Sequence[Mapping[str, int] | None], progress: Progress) -> Configs:
        if self.listed is not None:
            shape = (len(self.listed), len(self.knobs))
            rows = np.array([self.encode(c) for c in self.listed], dtype=np.int32).reshape(shape)
            return Configs(self.knobs, rows, ordered=False)
        mask = np.ones(self._checked_shape(), dtype=bool)
        rules = [(rule, params) for params in cases for rule in self._rules_of(params)]
        for number, (rule, params) in enumerate(rules):
            self._restrict(
                mask,
                rule,
                params or {},
                lambda done, number=number: progress(number * mask.size + done, len(rules) * mask.size),
            )
        return Configs.where(self.knobs, mask)

    def _rules_of(self, params: Mapping[str, int] | None) -> list[Expr]:
        return [rule for rule, wanted in self._rules if params is not None or not wanted]

    def _checked_shape(self) -> tuple[int, ...]:
        if self.cardinality > MAX_PRODUCT:
            raise UsageError(
                f"space {self.name!r} has {self.cardinality:,} knob products; at most {MAX_PRODUCT:,}: "
                "remove knobs or values"
            )
        return self.nvec or (1,)

    def _restrict(
        self, mask: NDArray[np.bool_], rule: Expr, params: Mapping[str, int], done: Callable[[int], None]
    ) -> None:
        """Clear the products that break a restriction.

        It is evaluated over the products of the knobs that it names, not over all of them, and only where
        earlier restrictions left something: `b > 0` protects a later `a % b == 0`.
        """
        names = [name for name in self.knobs if name in rule.names]
        others = tuple(axis for axis, name in enumerate(self.knobs) if name not in rule.names)
        alive: NDArray[np.bool_] = np.asarray(mask.any(axis=others, keepdims=True))
        flat, shape = alive.reshape(-1), tuple(len(self.knobs[name]) for name in names)
        knobs = [Column.of(self.knobs[name]) for name in names]
        fixed = {name: Column.of(value) for name, value in params.items() if name not in self.knobs}
        for start in range(0, flat.size, _AT_ONCE):
            found = start + np.flatnonzero(flat[start : start + _AT_ONCE])
            places = np.unravel_index(found, shape) if names else ()
            try:
                if len(found) < _FEW:
                    raise OneByOne
                columns = {name: knob.at(at) for name, knob, at in zip(names, knobs, places, strict=True)}
                holds = truths(rule, Rows({**fixed, **columns}, len(found)))
            except OneByOne:
                holds = np.empty(len(found), dtype=bool)
                env: dict[str, Any] = dict(params)
                for row in range(len(found)):
                    env.update(
                        (name, self.knobs[name][at[row]]) for name, at in zip(names, places, strict=True)
                    )
                    holds[row] = bool(rule.evaluate(env))
            flat[found[~holds]] = False
            done(mask.size * min(start + _AT_ONCE, flat.size) // flat.size)
        mask &= alive

    def why_invalid(self, config: Config, params: Mapping[str, int] | None = None) -> str | None:
        """What forbids this configuration, in one line; None if it is valid."""
        problem = self._misfit(config)
        if problem is not None:
            return problem
        if self.listed is not None and self.key(config) not in self._listed_keys:
            return "not among the recorded configurations"
        env: Mapping[str, Any] = config if not params else {**params, **config}
        for rule, wanted in self._rules:
            if params is None and wanted:
                continue
            if not rule.evaluate(env):
                values = ", ".join(f"{k}={value_text(env[k])}" for k in sorted(rule.names))
                return f"restriction {rule.text!r} fails for {values}"
        return None

    def valid(self, config: Config, params: Mapping[str, int] | None = None) -> bool:
        """Whether every knob has an allowed value and every restriction holds."""
        return self.why_invalid(config, params) is None

    def encode(self, config: Config) -> tuple[int, ...]:
        """Index of each knob's value, in knob order. Raises UsageError for a value that isn't allowed."""
        try:
            return tuple(values[config[name]] for name, values in self._index.items())
        except KeyError:
            raise UsageError(f"space {self.name!r}: {self._misfit(config)}") from None

    def _misfit(self, config: Config) -> str | None:
        for name, values in self._index.items():
            if name not in config:
                return f"knob {name!r} has no value"
            if config[name] not in values:
                return f"knob {name}={value_text(config[name])} isn't one of {self._allowed(name)}"
        if len(config) != len(self.knobs):
            extra = next(k for k in config if k not in self.knobs)
            return f"unknown knob {extra!r}; {near(extra, self.knobs)}"
        return None

    def decode(self, indices: Iterable[int]) -> Config:
        """Inverse of `encode`. Raises UsageError for a wrong length or an index out of range."""
        index = [int(i) for i in indices]
        if len(index) != len(self.knobs) or any(
            not 0 <= i < n for i, n in zip(index, self.nvec, strict=False)
        ):
            raise UsageError(f"space {self.name!r}: indices {index} don't fit sizes {list(self.nvec)}")
        return {k: v[i] for (k, v), i in zip(self.knobs.items(), index, strict=True)}

    def parse(self, pairs: Mapping[str, str]) -> Config:
        """A configuration from texts, as `--knob k=v` gives them.

        Knobs that aren't named take the baseline's value, or their first one. Restrictions are not
        checked. Raises UsageError for an unknown knob or a value that isn't allowed.
        """
        chosen: dict[str, Value] = {}
        for name, text in pairs.items():
            if name not in self.knobs:
                raise UsageError(f"space {self.name!r}: unknown knob {name!r}; {near(name, self.knobs)}")
            found = [v for v in self.knobs[name] if _same(v, text.strip())]
            if not found:
                raise UsageError(
                    f"space {self.name!r}: {name}={text} isn't allowed; values: {self._allowed(name)}"
                )
            chosen[name] = found[0]
        start = self.baseline if self.baseline is not None else self.first
        return {k: chosen.get(k, start[k]) for k in self.knobs}

    def _allowed(self, name: str) -> str:
        return ", ".join(value_text(v) for v in self.knobs[name])

    def key(self, config: Config) -> str:
        """Canonical text: the values in knob order, joined by commas."""
        return ",".join(value_text(config[k]) for k in self.knobs)

    def sample(self, rng: np.random.Generator, params: Mapping[str, int] | None = None) -> Config:
        """A valid configuration, uniformly drawn. Raises UsageError if none is valid."""
        configs = self.configs(params)
        if not configs:
            raise UsageError(f"space {self.name!r} has no valid configuration; loosen its restrictions")
        return configs[int(rng.integers(len(configs)))]


def _same(value: Value, text: str) -> bool:
    if value_text(value) == text:
        return True
    if isinstance(value, bool):
        return text.lower() in (("1", "true", "yes", "on") if value else ("0", "false", "no", "off"))
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return False

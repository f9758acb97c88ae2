"""Search spaces against brute force."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError
from warpdeck.core.space import SearchSpace

RULES = ["x * y <= 40", "x != 3 or z", "y % x == 0", "x <= n", "not z or n > 5", "x < y", "n % 2 == 0"]


def brute(space, params):
    names = list(space.knobs)
    rows = (dict(zip(names, v, strict=True)) for v in itertools.product(*space.knobs.values()))
    return [c for c in rows if space.valid(c, params)]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from(RULES), max_size=3),
    st.none() | st.integers(1, 10),
)
def test_configs_are_exactly_the_valid_products(xs, ys, rules, n):
    space = SearchSpace("s", "v", {"x": tuple(xs), "z": (False, True), "y": tuple(ys)}, tuple(rules))
    params = None if n is None else {"n": n}
    assert space.configs(params) == brute(space, params)
    assert space.cardinality == len(xs) * 2 * len(ys)
    for config in space.configs(params):
        assert space.decode(space.encode(config)) == config
        assert space.parse({k: str(v) for k, v in config.items()}) == config


def space():
    return SearchSpace(
        "full",
        "tiled",
        {"block": (64, 128, 256), "unroll": (1, 2, 4), "mode": ("fast", "safe"), "vec": (False, True)},
        ("block * unroll <= n", "mode == 'fast' or not vec"),
        baseline={"block": 256, "unroll": 1, "mode": "safe", "vec": False},
    )


def test_restrictions_on_case_parameters_bind_only_with_params():
    s = space()
    assert len(s.configs()) == 27
    assert len(s.configs({"n": 128})) == 9
    assert s.configs_for([{"n": 128}, {"n": 4096}]) == s.configs({"n": 128})
    assert s.configs_for([{"n": 1}]) == []
    assert s.configs({"n": 128}) is s.configs({"n": 128})


def test_why_invalid_says_what():
    s = space()
    good = dict(s.baseline or {})
    assert s.why_invalid(good, {"n": 4096}) is None
    assert "'block * unroll <= n' fails for block=256, n=100, unroll=1" in str(
        s.why_invalid(good, {"n": 100})
    )
    assert "vec=true" in str(s.why_invalid({**good, "vec": True}))
    assert "block=7 isn't one of 64, 128, 256" in str(s.why_invalid({**good, "block": 7}))
    assert "'vec' has no value" in str(s.why_invalid({"block": 64, "unroll": 1, "mode": "fast"}))
    assert "unknown knob 'blok'; did you mean 'block'" in str(s.why_invalid({**good, "blok": 1}))


def test_parse_fills_from_the_baseline_and_explains():
    s = space()
    assert s.parse({"unroll": "4"}) == {"block": 256, "unroll": 4, "mode": "safe", "vec": False}
    assert s.parse({"vec": "yes", "mode": " fast"})["vec"] is True
    assert s.key(s.parse({})) == "256,1,safe,false"
    with pytest.raises(UsageError, match="unknown knob 'unrol'; did you mean 'unroll'"):
        s.parse({"unrol": "4"})
    with pytest.raises(UsageError, match="block=96 isn't allowed; values: 64, 128, 256"):
        s.parse({"block": "96"})


def test_encode_decode_refuse_what_does_not_fit():
    s = space()
    assert s.nvec == (3, 3, 2, 2)
    with pytest.raises(UsageError, match="isn't one of"):
        s.encode({**(s.baseline or {}), "block": 5})
    for bad in ([0, 0, 0], [0, 0, 0, 2], [-1, 0, 0, 0]):
        with pytest.raises(UsageError, match="don't fit"):
            s.decode(bad)


def test_progress_is_told_and_may_end_it():
    knobs = {f"k{i}": tuple(range(1, 9)) for i in range(6)}
    s = SearchSpace("big", "v", knobs, ("k0 <= 4", " + ".join(knobs) + " <= 20"))
    told: list[tuple[int, int]] = []
    s.configs_for([None], lambda done, total: told.append((done, total)))
    assert len(told) > 2 and told == sorted(told) and told[-1] == (2 * 8**6, 2 * 8**6)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        s.configs_for([{"n": 1}], stop)
    assert len(s.configs({"n": 1})) == len(s.configs())


def test_configurations_are_a_sequence_that_finds_what_it_holds():
    s = space()
    enumerated = s.configs({"n": 256})
    listed = SearchSpace("full", "tiled", s.knobs, listed=tuple(enumerated[::-1])).configs()
    for configs in (enumerated, listed, enumerated[2:9], enumerated[::-2], enumerated.pick([3, 1])):
        assert [configs.position(c) for c in configs] == list(range(len(configs)))
        assert list(configs) == [configs[i] for i in range(len(configs))] == configs
        left_out = [c for c in s.configs() if all(c != known for known in configs)]
        assert left_out and not any(c in configs for c in left_out)
    assert {**enumerated[0], "block": 7} not in enumerated
    assert {"block": 64} not in enumerated and None not in enumerated
    assert enumerated[1:1] == [] and not enumerated[1:1]


def test_sample_is_seeded_valid_and_reaches_everything():
    s = space()
    draws = [s.key(s.sample(np.random.default_rng(i), {"n": 128})) for i in range(300)]
    assert draws[5] == s.key(s.sample(np.random.default_rng(5), {"n": 128}))
    assert set(draws) == {s.key(c) for c in s.configs({"n": 128})}
    with pytest.raises(UsageError, match="no valid configuration"):
        s.sample(np.random.default_rng(0), {"n": 1})


def test_space_without_knobs_has_one_configuration():
    s = SearchSpace("full", "kernel", {}, ("n > 3",))
    assert s.configs() == [{}] and s.configs({"n": 4}) == [{}] and s.configs({"n": 3}) == []
    assert s.encode({}) == () and s.decode([]) == {} and s.key({}) == ""


def test_earlier_restrictions_protect_later_ones():
    s = SearchSpace("s", "v", {"a": (0, 1, 2), "b": (4,)}, ("a > 0", "b % a == 0"))
    assert [c["a"] for c in s.configs()] == [1, 2]
    with pytest.raises(UsageError, match="zero"):
        SearchSpace("s", "v", {"a": (0, 1), "b": (4,)}, ("b % a == 0",)).configs()


def test_millions_of_products_enumerate_quickly():
    knobs = {f"k{i}": tuple(range(1, 9)) for i in range(7)}
    rule = " + ".join(knobs)
    s = SearchSpace("big", "v", knobs, ("k0 * k1 <= 8", f"{rule} <= 14 and k2 % k3 == 0"))
    start = time.process_time()
    configs = s.configs()
    assert len(configs) == sum(1 for c in configs if s.valid(c)) > 1000
    assert time.process_time() - start < 2
    huge = SearchSpace("huge", "v", {f"k{i}": tuple(range(10)) for i in range(8)})
    for refused in (huge.configs, huge.any_valid):
        with pytest.raises(UsageError, match="100,000,000 knob products"):
            refused()


def test_whether_any_is_valid_takes_no_search_where_the_baseline_is():
    knobs = {f"k{i}": tuple(range(1, 9)) for i in range(6)}
    rule = "8 ** 30 * k0 * k1 * k2 * k3 * k4 * k5 > n * 8 ** 30"  # one by one: it takes a second
    s = SearchSpace("big", "v", knobs, (rule,))
    start = time.process_time()
    assert s.any_valid({"n": 0})
    assert time.process_time() - start < 0.1
    assert SearchSpace("s", "v", {"a": (1, 2)}, ("a > n",)).any_valid({"n": 1})
    assert not SearchSpace("s", "v", {"a": (1, 2)}, ("a > n",)).any_valid({"n": 2})

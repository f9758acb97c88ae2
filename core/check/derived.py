"""Cases and configurations that `check` adds to a workload's own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..configs import Configs
from ..errors import UsageError
from ..model import Case, Role
from ..space import SearchSpace
from ..workload import Workload

BASES = (192, 256, 512, 1024, 2048)  # sizes to vary from; the first that suits the workload
VARIED = (1, 97, 193, 509, 160, 224, 320, 384, 640, 768, 1152)  # odd ones first, then multiples of 32 to 128
PER_PARAMETER = 4
ALL_UP_TO = 64  # configurations; more are covered by values


def derived_cases(workload: Workload, space: SearchSpace) -> list[Case]:
    """Correctness cases in which one shape parameter at a time leaves a common size: odd, 1, rectangular.

    Only parameters that some configuration of the space is valid for. They are named "derived m=97".
    """
    base = next((b for b in _bases(workload) if _possible(workload, space, b)), None)
    if base is None:
        return []
    cases = []
    for name in workload.shape_params:
        found = 0
        for value in VARIED:
            params = {**base, name: value}
            if found < PER_PARAMETER and params != base and _possible(workload, space, params):
                cases.append(Case(f"derived {name}={value}", Role.CORRECTNESS, params))
                found += 1
    return cases


def _bases(workload: Workload) -> list[Mapping[str, int]]:
    bases = []
    for size in (*BASES, workload.default_size):
        try:
            bases.append(workload.size_case(size).params)
        except UsageError:  # this workload can't have this size
            continue
    return bases + [c.params for c in workload.correctness_cases()]


def _possible(workload: Workload, space: SearchSpace, params: Mapping[str, int]) -> bool:
    try:
        workload.shape_case(params)
    except UsageError:
        return False
    return bool(space.configs(params))


def covering_configs(configs: Configs, up_to: int = ALL_UP_TO) -> Configs:
    """What `check` runs: all configurations up to `up_to`, else few in which every knob value occurs.

    Greedy: each next one brings the most values that haven't occurred yet; in `configs`' order among equals.
    """
    if len(configs) <= up_to:
        return configs
    columns = configs.rows.T
    wanted = [np.bincount(column) > 0 for column in columns]  # by knob, by value
    chosen = []
    while any(values.any() for values in wanted):
        brings = sum(values[column].astype(np.int64) for values, column in zip(wanted, columns, strict=True))
        chosen.append(int(np.argmax(brings)))
        for values, index in zip(wanted, configs.rows[chosen[-1]], strict=True):
            values[index] = False
    return configs.pick(chosen)

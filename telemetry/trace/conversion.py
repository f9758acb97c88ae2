"""Warps' cycles to nanoseconds, once a clock is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .timeline import Clock

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Conversion:
    """`start + scale * cycles since its clock_begin` is a warp's time in ns. [rows] each.

    The first warp starts at 0. With `knots` (ascending, all SMs' behind each other), that is not a time but a
    place among them, and `times` at the knots are the times.
    """

    clock: Clock
    scale: Floats
    start: Floats
    knots: Floats | None = None
    times: Floats | None = None
    late: int = 0  # readings left out, as the timer was read too late

    def ns(self, row: Any, cycle: Any) -> Floats:
        """Times of cycles since their rows' clock_begin. `row` and `cycle`: scalars or [n]."""
        one = self.scale.size and self.scale[0] == self.scale[-1] and (self.scale == self.scale[0]).all()
        place = cycle * (self.scale[0] if one else self.scale[row])
        place = place + self.start[row]
        if self.knots is None or self.times is None:
            return place
        return np.interp(place, self.knots, self.times)

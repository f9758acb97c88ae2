"""Per-step numbers of a run: an append-only table that successive states share.

Appending is O(1) amortised although every state is immutable: all states of one line of history see a
prefix of the same buffer, and a state that is not the newest copies before it appends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("step", "reward", "speedup", "best", "config")
NUMBERS = 4  # of them that a `steps` event has
BLOCK = 1024  # rows that are stored together, once, however many snapshots refer to them


class _Buffer:
    __slots__ = ("filled", "rows")

    def __init__(self, capacity: int) -> None:
        self.rows = np.empty((len(COLUMNS), capacity), dtype=np.float64)
        self.filled = 0


class Series:
    """Columns `step`, `reward`, `speedup`, `best` (best speedup so far) and `config` (the configuration as
    `entries.RunInfo.code` numbers it), float64, NaN where unknown.

    Columns are read-only views of shape `(len(self),)`.
    """

    __slots__ = ("_buffer", "_length")

    def __init__(self) -> None:
        self._buffer = _Buffer(256)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        return np.array_equal(self.rows, other.rows, equal_nan=True)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Series({self._length} steps)"

    @property
    def rows(self) -> NDArray[np.float64]:
        """All columns, shape `(5, len(self))`, read-only."""
        view = self._buffer.rows[:, : self._length]
        view.flags.writeable = False
        return view

    @property
    def step(self) -> NDArray[np.float64]:
        """Step numbers."""
        return self.rows[0]

    @property
    def reward(self) -> NDArray[np.float64]:
        """Rewards."""
        return self.rows[1]

    @property
    def speedup(self) -> NDArray[np.float64]:
        """Speedup over the baseline; NaN for a failure."""
        return self.rows[2]

    @property
    def best(self) -> NDArray[np.float64]:
        """Best speedup so far."""
        return self.rows[3]

    @property
    def config(self) -> NDArray[np.float64]:
        """The configurations' numbers; NaN where a step's isn't of the run's space, or isn't logged."""
        return self.rows[4]

    def append(
        self,
        step: float | None,
        reward: float | None,
        speedup: float | None,
        best: float | None,
        config: int | None = None,
    ) -> Series:
        """A series with one more row."""
        buffer = self._room(1)
        length = self._length
        rows = buffer.rows
        rows[0, length] = np.nan if step is None else step
        rows[1, length] = np.nan if reward is None else reward
        rows[2, length] = np.nan if speedup is None else speedup
        rows[3, length] = np.nan if best is None else best
        rows[4, length] = np.nan if config is None else config
        return self._grown(buffer, length + 1)

    def extend(self, columns: Sequence[Sequence[float | None]]) -> Series:
        """A series with more rows, given as the first four columns, of one length. Raises ValueError
        otherwise."""
        table = np.array(columns, dtype=np.float64)  # None becomes NaN
        if table.ndim != 2 or table.shape[0] != NUMBERS:
            raise ValueError(f"{NUMBERS} columns of one length are needed")
        count = table.shape[1]
        buffer = self._room(count)
        buffer.rows[:NUMBERS, self._length : self._length + count] = table
        buffer.rows[NUMBERS:, self._length : self._length + count] = np.nan
        return self._grown(buffer, self._length + count)

    def block(self, index: int) -> bytes:
        """Rows `index*BLOCK` to `(index+1)*BLOCK` (fewer at the end), column by column, little-endian."""
        rows = self._buffer.rows[:, index * BLOCK : min((index + 1) * BLOCK, self._length)]
        return np.ascontiguousarray(rows, dtype="<f8").tobytes()

    @classmethod
    def from_blocks(cls, blocks: Sequence[bytes]) -> Series:
        """Inverse of `block` over all indices. Raises ValueError for a damaged block."""
        tables = [np.frombuffer(block, dtype="<f8").reshape(len(COLUMNS), -1) for block in blocks]
        if any(table.shape[1] != BLOCK for table in tables[:-1]):
            raise ValueError("a block of the step series is incomplete")
        series = cls()
        if tables:
            length = sum(table.shape[1] for table in tables)
            series._buffer = _Buffer(max(256, length + length // 4))
            np.concatenate(tables, axis=1, out=series._buffer.rows[:, :length])
            series._buffer.filled = series._length = length
        return series

    def _room(self, count: int) -> _Buffer:
        """The buffer to write after this series' last row: its own if nobody wrote there yet."""
        buffer = self._buffer
        needed = self._length + count
        if buffer.filled == self._length and needed <= buffer.rows.shape[1]:
            return buffer
        larger = _Buffer(max(2 * self._length, needed, 256))
        larger.rows[:, : self._length] = buffer.rows[:, : self._length]
        return larger

    @classmethod
    def _grown(cls, buffer: _Buffer, length: int) -> Series:
        buffer.filled = length
        series = object.__new__(cls)
        series._buffer = buffer
        series._length = length
        return series

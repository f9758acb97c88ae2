"""The bytes that a traced kernel writes: one row a warp, a header and then its records.

The same numbers stand in `include/warpdeck/trace.cuh` (CUDA C++) and `numba_device.py`; a test compares them.
All fields are little-endian. A row is `HEADER_BYTES + RECORD_BYTES * capacity` bytes.

A record is {u32 clock, u32 word}: the SM's cycle counter (low half) and kind:2 | name:10 | payload:20 from
the top bit down. Begin and mark carry the caller's payload (a loop index, say). An end carries a reading of
the timer, taken just after the clock's: bits TIME_SHIFT to TIME_SHIFT + TIME_BITS - 1 of %globaltimer_lo. The
fourth kind, `EXTENDED`, has a sub-kind in its payload's top three bits and 17 bits of argument: values,
tokens, async stages. A value is two records: its header, and a `RAW` one (name 0) whose clock field is the
value's bits.
"""

from __future__ import annotations

import numpy as np

MAGIC_OPEN = 0x57445400  # "WDT", version 0: the warp began
MAGIC_CLOSED = 0x57445401  # and ended
HEADER_BYTES = 64
RECORD_BYTES = 8

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("sm", "<u4"),
        ("cta", "<u4"),  # linear: x + gridDim.x * (y + gridDim.y * z)
        ("warp", "<u4"),  # within the CTA
        ("time_begin", "<u8"),  # globaltimer, ns, between two reads of the clock
        ("clock_begin", "<u8"),  # clock64 just before it
        ("time_end", "<u8"),
        ("clock_end", "<u8"),
        ("count", "<u4"),  # records attempted; those beyond the capacity were dropped
        ("gap_begin", "<u4"),  # cycles from clock_begin to the clock read just after time_begin
        ("gap_end", "<u4"),
        ("warps", "<u4"),  # warps of the CTA
    ]
)
RECORD = np.dtype([("clock", "<u4"), ("word", "<u4")])

# The kernel's last parameter, by value (Numba: four uint64 of the same bytes). All 0: nothing is recorded.
DESCRIPTOR = np.dtype(
    [
        ("rows", "<u8"),  # address of the first row, 16-byte aligned
        ("capacity", "<u4"),  # records a row
        ("row_bytes", "<u4"),  # a multiple of 16
        ("cta_first", "<u4"),  # a CTA is traced if it is cta_first + i * stride with i < cta_count;
        ("cta_inverse", "<u4"),  # `stride_inverse` of the stride, an odd number;
        ("cta_count", "<u4"),  # its warp w if bit w of warp_mask is set; the row is
        ("warp_mask", "<u4"),  # i * popcount(warp_mask) + number of set bits below w
    ]
)

KIND_BEGIN, KIND_END, KIND_MARK, KIND_EXTENDED = range(4)
NAME_BITS, PAYLOAD_BITS = 10, 20
MAX_NAMES = (1 << NAME_BITS) - 1  # name ids 1 to 1023; 0 is none
TIME_SHIFT, TIME_BITS = 5, PAYLOAD_BITS  # of an end record's reading; 32 ns, repeating after 33.5 ms
PAYLOAD_MASK = (1 << PAYLOAD_BITS) - 1
SUB_SHIFT = 17  # of the sub-kind within the payload
ARGUMENT_MASK = (1 << SUB_SHIFT) - 1
SUB_VALUE_U32, SUB_VALUE_I32, SUB_VALUE_F32, SUB_RAW, SUB_START, SUB_STOP, SUB_ISSUE, SUB_DONE = range(8)

# One reading of both clocks by the calibration kernel.
ANCHOR = np.dtype([("time", "<u8"), ("clock", "<u8"), ("sm", "<u4"), ("gap", "<u4")])

assert HEADER.itemsize == HEADER_BYTES and RECORD.itemsize == RECORD_BYTES
assert DESCRIPTOR.itemsize == 32 and ANCHOR.itemsize == 24


def word(kind: int, name: int, payload: int = 0) -> int:
    """A record's second word."""
    return (kind << 30) | (name << PAYLOAD_BITS) | (payload & PAYLOAD_MASK)


def stride_inverse(stride: int) -> int:
    """The inverse modulo 2^32 of an odd stride between CTAs, which spares every CTA a division.

    (cta - first) * inverse modulo 2^32 is i for cta = first + i * stride, and more than that for all others.
    Raises ValueError for an even stride.
    """
    return pow(stride, -1, 1 << 32)

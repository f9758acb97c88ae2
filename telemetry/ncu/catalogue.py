"""The quantities that warpdeck shows, and how each is had from Nsight Compute's counters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .quantity import (
    Quantity,
    Way,
    in_time,
    nonzero,
    of_a_sector,
    per_second,
    percent,
    quotient,
    scaled,
    share_of_first_two,
    total,
    weighted,
)

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_TIME = "gpu__time_duration.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_"
_NO_BLACKWELL = (10, 11, 12)


def _q(
    name: str, label: str, unit: str, meaning: str, *ways: str | Way, undefined: str = ""
) -> tuple[str, Quantity]:
    made = tuple(Way((w,)) if isinstance(w, str) else w for w in ways)
    return name, Quantity(name, label, unit, meaning, made, undefined)


def _flops(kind: str, letter: str, width: int) -> tuple[str, Quantity]:
    """Operations of one precision: an addition or product is 1 a lane, a fused one 2; half precision has 2
    lanes in an instruction."""
    moves = "; moves by HFMA2 count, too" if kind == "fp16" else ""
    ops = [f"smsp__sass_thread_inst_executed_op_{letter}{op}_pred_on.sum" for op in ("add", "mul", "fma")]
    weights = (width, width, 2 * width)
    return _q(
        f"flops_{kind}",
        f"{kind.upper()} operations",
        "flop",
        f"Floating-point operations of type {kind} that the launch executed, tensor cores left out{moves}.",
        Way(tuple(ops), weighted(weights)),
        Way(
            (*(f"{op}.per_cycle_elapsed" for op in ops), "smsp__cycles_elapsed.avg"),
            weighted(weights, times_last=True),
        ),
    )


def _peak_flops(kind: str, letter: str, width: int) -> tuple[str, Quantity]:
    return _q(
        f"peak_flops_{kind}",
        f"{kind.upper()} peak",
        "flop/s",
        f"What the GPU could do in {kind} at the clock it ran at, were every instruction a fused one.",
        Way(
            (
                f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained",
                "sm__cycles_elapsed.avg.per_second",
            ),
            scaled(2.0 * width),
        ),
    )


def _stall(
    reason: str, *, only_on: tuple[int, ...] = (), not_on: tuple[int, ...] = ()
) -> tuple[str, Quantity]:
    words = reason.replace("_", " ")
    return _q(
        f"stall_{reason}",
        f"Stall: {words}" if reason != "selected" else "Issuing",
        "cycle/inst",
        f"Cycles that a warp spends in the state “{words}” for each instruction that it issues.",
        Way(
            (f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",),
            only_on=only_on,
            not_on=not_on,
        ),
    )


def _limit(name: str, of: str, words: str) -> tuple[str, Quantity]:
    return _q(
        f"limit_{name}",
        f"Blocks by {words}",
        "block",
        f"Blocks that one SM could hold if {words} were the only limit.",
        f"launch__occupancy_limit_{of}",
    )


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    dict(
        (
            _q(
                "duration_ns",
                "Duration",
                "ns",
                "Time of the launch under the profiler; some 0.8 µs longer than in free running.",
                _TIME,
            ),
            _q(
                "achieved_occupancy",
                "Achieved occupancy",
                "%",
                "Warps that were active on an SM, on average while it was busy, of the most it can hold.",
                f"sm__warps_active{_ACTIVE}",
            ),
            _q(
                "l2_hit_rate",
                "L2 hit rate",
                "%",
                "Sectors asked of the L2 cache that it had; the rest went to memory.",
                "lts__t_sector_hit_rate.pct",
            ),
            _q(
                "dram_bw_pct",
                "DRAM bandwidth",
                "%",
                "Use of the device memory's bandwidth, of its peak.",
                f"dram__throughput{_ELAPSED}",
                f"gpu__dram_throughput{_ELAPSED}",
            ),
            _q(
                "sm_active_pct",
                "SM active",
                "%",
                "Cycles in which an SM had at least one warp, averaged over all SMs.",
                f"sm__cycles_active{_ELAPSED}",
                Way(("sm__cycles_active.avg", "sm__cycles_elapsed.avg"), percent),
            ),
            _q(
                "sm_throughput_pct",
                "Compute throughput",
                "%",
                "The busiest part of the SM's pipelines and issue, of its peak: speed of light of computing.",
                f"sm__throughput{_ELAPSED}",
            ),
            _q(
                "memory_throughput_pct",
                "Memory throughput",
                "%",
                "The busiest part of L1, L2 and DRAM, of its peak: speed of light of memory.",
                f"gpu__compute_memory_throughput{_ELAPSED}",
            ),
            _q(
                "l2_throughput_pct",
                "L2 throughput",
                "%",
                "The busiest part of the L2 cache, of its peak.",
                f"lts__throughput{_ELAPSED}",
            ),
            _q(
                "l1_throughput_pct",
                "L1 throughput",
                "%",
                "The busiest part of the L1 cache and shared memory, of its peak while active.",
                f"l1tex__throughput{_ACTIVE}",
                f"l1tex__throughput{_ELAPSED}",
            ),
            _q(
                "l1_hit_rate",
                "L1 hit rate",
                "%",
                "Sectors asked of the L1 cache that it had.",
                "l1tex__t_sector_hit_rate.pct",
            ),
            _q(
                "dram_bytes",
                "DRAM traffic",
                "byte",
                "Bytes moved between the L2 cache and device memory.",
                "dram__bytes.sum",
                Way(("dram__bytes_read.sum", "dram__bytes_write.sum"), total, not_on=(12,)),
                Way(("dram__bytes.sum.per_second", _TIME), in_time),
            ),
            _q(
                "dram_bytes_per_s",
                "DRAM rate",
                "byte/s",
                "Bytes moved between the L2 cache and device memory in a second.",
                "dram__bytes.sum.per_second",
                Way(("dram__bytes.sum", _TIME), per_second),
            ),
            _q(
                "dram_read_bytes",
                "DRAM read",
                "byte",
                "Bytes read from device memory.",
                Way(("dram__bytes_read.sum",), not_on=(12,)),
            ),
            _q(
                "dram_write_bytes",
                "DRAM written",
                "byte",
                "Bytes written to device memory; what stays dirty in the L2 cache is not counted.",
                Way(("dram__bytes_write.sum",), not_on=(12,)),
            ),
            _q(
                "peak_dram_bytes_per_s",
                "DRAM peak",
                "byte/s",
                "What device memory could move in a second at the clock it ran at.",
                Way(("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"), scaled(1.0)),
            ),
            _flops("fp32", "f", 1),
            _flops("fp64", "d", 1),
            _flops("fp16", "h", 2),
            _peak_flops("fp32", "f", 1),
            _peak_flops("fp64", "d", 1),
            _peak_flops("fp16", "h", 2),
            _q(
                "tensor_inst_pct",
                "Tensor instructions",
                "%",
                "Rate at which tensor-core instructions were issued, of its peak.",
                f"sm__inst_executed_pipe_tensor{_ACTIVE}",
            ),
            _q(
                "tensor_active_pct",
                "Tensor cores active",
                "%",
                "Cycles in which the tensor cores worked; half-precision moves count a little.",
                f"sm__pipe_tensor_cycles_active{_ACTIVE}",
            ),
            _q(
                "issue_active_pct",
                "Issue slots used",
                "%",
                "Cycles in which a scheduler issued an instruction.",
                f"smsp__issue_active{_ACTIVE}",
            ),
            _q(
                "eligible_warps",
                "Eligible warps",
                "warp",
                "Warps by scheduler that could have issued, on average by cycle; under 1 means idle cycles.",
                "smsp__warps_eligible.avg.per_cycle_active",
            ),
            _q(
                "active_threads_per_inst",
                "Threads by instruction",
                "thread",
                "Threads of a warp that take part in an instruction, on average of 32; fewer is divergence.",
                "smsp__thread_inst_executed_per_inst_executed.ratio",
            ),
            _q(
                "shared_bank_conflicts",
                "Bank conflicts",
                "wavefront",
                "Extra passes through shared memory because threads of a warp met in one bank.",
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
            ),
            _q(
                "shared_wavefronts",
                "Shared-memory passes",
                "wavefront",
                "All passes through shared memory.",
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
            ),
            _q(
                "bank_conflict_pct",
                "Bank conflict share",
                "%",
                "Passes through shared memory that only bank conflicts made necessary.",
                Way(
                    (
                        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
                        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
                    ),
                    percent,
                ),
                undefined="the launch did not use shared memory",
            ),
            _q(
                "local_load_sectors",
                "Local loads",
                "sector",
                "32-byte sectors read from local memory: spilled registers and indexed arrays.",
                f"{_SECTORS}local_op_ld.sum",
            ),
            _q(
                "local_store_sectors",
                "Local stores",
                "sector",
                "32-byte sectors written to local memory: spilled registers and indexed arrays.",
                f"{_SECTORS}local_op_st.sum",
            ),
            _q(
                "local_sector_pct",
                "Local share",
                "%",
                "Sectors of local memory among those of local and global memory.",
                Way(
                    tuple(f"{_SECTORS}{m}_op_{op}.sum" for m in ("local", "global") for op in ("ld", "st")),
                    share_of_first_two,
                ),
                undefined="the launch touched neither global nor local memory",
            ),
            _q(
                "global_load_efficiency",
                "Load efficiency",
                "%",
                "Bytes that global loads use of each 32-byte sector that they fetch; low is uncoalesced.",
                Way(("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",), nonzero),
                Way(("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",), of_a_sector),
                undefined="the launch has no global loads",
            ),
            _q(
                "global_store_efficiency",
                "Store efficiency",
                "%",
                "Bytes that global stores use of each 32-byte sector that they touch; low is uncoalesced.",
                Way(("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",), nonzero),
                Way(("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",), of_a_sector),
                undefined="the launch has no global stores",
            ),
            *(
                _q(
                    f"global_{words}_sectors_per_request",
                    f"Sectors by {words}",
                    "sector/request",
                    f"32-byte sectors that one warp's {words} touches: 4 for 32 adjacent floats, up to 32.",
                    Way(
                        (f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{op}.ratio",), nonzero
                    ),
                    Way(
                        (
                            f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum",
                            f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum",
                        ),
                        quotient,
                    ),
                    undefined=f"the launch has no global {words}s",
                )
                for words, op in (("load", "ld"), ("store", "st"))
            ),
            *(
                _stall(reason)
                for reason in (
                    *("barrier", "branch_resolving", "dispatch_stall", "drain", "lg_throttle"),
                    *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc"),
                    *("no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping"),
                    *("tex_throttle", "wait"),
                )
            ),
            _stall("gmma", only_on=(9,)),
            _stall("imc_miss", not_on=_NO_BLACKWELL),
            _q(
                "theoretical_occupancy",
                "Theoretical occupancy",
                "%",
                "Warps that an SM can hold of this kernel, of the most it can hold of any.",
                "sm__maximum_warps_per_active_cycle_pct",
            ),
            _q(
                "registers",
                "Registers",
                "register/thread",
                "Registers of a thread.",
                "launch__registers_per_thread",
            ),
            _q(
                "shared_bytes",
                "Shared memory",
                "byte/block",
                "Shared memory of a block, static, dynamic and the driver's own.",
                "launch__shared_mem_per_block",
            ),
            _q("grid_size", "Blocks", "block", "Blocks of the launch.", "launch__grid_size"),
            _q("block_size", "Threads", "thread/block", "Threads of a block.", "launch__block_size"),
            _q(
                "sm_count",
                "SMs",
                "SM",
                "Multiprocessors of the GPU.",
                "launch__sm_count",
                "device__attribute_multiprocessor_count",
            ),
            _q(
                "waves",
                "Waves",
                "wave",
                "How often all SMs are filled with blocks; a part of a wave leaves SMs idle at the end.",
                "launch__waves_per_multiprocessor",
            ),
            _limit("blocks", "blocks", "the number of blocks"),
            _limit("registers", "registers", "registers"),
            _limit("shared", "shared_mem", "shared memory"),
            _limit("warps", "warps", "warps"),
            _limit("barriers", "barriers", "barriers"),
            _q(
                "passes",
                "Passes",
                "pass",
                "How often the profiler ran the kernel to read everything.",
                "profiler__replayer_passes",
            ),
        )
    )
)

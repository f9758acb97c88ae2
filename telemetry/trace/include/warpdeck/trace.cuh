// Stage markers for CUDA kernels: when each warp loads, waits, computes, stores. One file, no includes;
// NVRTC, nvcc and clang, C++17, sm_70 and newer.
//
// Without -DWARPDECK_TRACE every macro is empty and this file declares nothing: the machine code is that of
// the kernel without markers, byte for byte. With it, a kernel takes one more parameter, a descriptor of 32
// bytes by value (rows = 0: record nothing), and each warp writes its events into its own row in global memory.
//
//   #include <warpdeck/trace.cuh>
//
//   WD_STAGES(load, wait, compute, store)             // once, at file scope: names, C++ identifiers
//
//   extern "C" __global__ void gemm(const float* a, float* c, int n WD_TRACE_PARAM) {
//       WD_TRACE_BEGIN();                             // first, by all threads of the block
//       for (int t = 0; t < n; ++t) {
//           WD_PUSH(load, t);                         // a range; its payload, here the loop index, is free
//           float x = a[t];
//           WD_POP(load);
//           WD_PUSH(compute, t);
//           WD_PIN(x);                                // the arithmetic that follows starts here …
//           x = x * x + 1;
//           WD_PIN(x);                                // … and is done here
//           WD_POP(compute);
//       }
//       WD_TRACE_END();                               // last, and before every other return
//   }
//
// Markers
//   WD_PUSH(name[, payload]) WD_POP(name)   a range; ranges of a warp nest. Payload: 20 bits. A WD_POP's record
//                                           has bits 5 to 24 of globaltimer in its payload's place, from which
//                                           the reader learns how fast the clock ran
//   WD_RANGE(name[, payload])               the same for the rest of the scope. Don't return out of it
//   WD_MARK(name[, payload])                an instant
//   WD_VALUE(name, x)                       an instant with a value: int, unsigned or float
//   WD_START(name, token) WD_STOP(name, token)   a range that may overlap others and cross iterations;
//                                                tokens below 2^17 pair the two
//   WD_ISSUE(name, flow) WD_DONE(name, flow)     an asynchronous stage: where a copy or an MMA is issued,
//                                                and where it is known to be complete, perhaps in another
//                                                warp of the block; flows below 2^17 pair the two
//   WD_PIN(x, ...)                          see below
//
// Only lane 0 of a warp records, so mark code that lane 0 runs, and that all lanes run together: of divergent
// branches only lane 0's shows. Payloads and values are evaluated only when tracing is on. A macro's argument
// with a comma outside parentheses needs parentheses.
//
// WD_PIN. The compiler keeps markers in order among each other and among memory accesses and barriers, but
// moves plain arithmetic across them freely: without a pin, a range around arithmetic may come out empty, and
// its neighbour twice as long. No fence helps. WD_PIN(x) costs no instruction: arithmetic that x depends on
// stays before it, arithmetic that uses x after it. Pin what goes into a timed computation after its WD_PUSH
// and what comes out before its WD_POP: numbers of 16 (half, __nv_bfloat16 and integers), 32 and 64 bits, pointers,
// vectors and structs of 4 bytes or a multiple of that (half2, uint2, int4, a fragment of an MMA), and arrays of
// these, all in registers. What isn't kept as whole words there (char4, a struct with padding) or is computed in
// more bits (short) costs instructions. Of arithmetic on single halves the assembler makes pairs, wherever a pin
// is: there take half2.
//
// Barriers. A clock read right behind a barrier comes before the wait. With tracing on, __syncthreads() is followed
// by __syncwarp(), which cures that; behind a barrier by other means (inline assembly) write that yourself.
//
// Asynchronous work. A WD_POP after cp.async, TMA or wgmma ends their issue. Use WD_ISSUE and WD_DONE, or put
// the WD_POP after the wait.
//
// Device functions get the state by reference, and must be inlined, else it lives in memory:
//   __device__ __forceinline__ void tile(float* x WD_STATE_PARAM) { WD_PUSH(load); … WD_POP(load); }
//   tile(x WD_STATE_ARG);
// Lambdas that capture by reference just work.
//
// Warp-specialised kernels: call WD_TRACE_BEGIN before the roles part, WD_TRACE_END at the end of each role.
// A warp that returns earlier shows up as never finished.
//
// Launching by hand: `gemm<<<grid, block>>>(a, c, n WD_TRACE_PASS(descriptor))`, with a wd_detail::Descriptor,
// and rows of zeros. Rows and records are as in layout.py.
//
// Cost. An event is a comparison and, under its predicate, a read of the clock, the record's word and one 8-byte
// store: 3 to 5 instructions, a WD_POP 7, and 3 more for all events between two branches. No fence, no atomic, no
// barrier. Threads that don't record read no clock, and blocks that aren't traced leave WD_TRACE_BEGIN after one
// comparison. The state is 3 registers. No store leaves a warp's row: events beyond its capacity are counted, not
// stored (exact up to 2^31 - 1 events a warp).

#ifndef WARPDECK_TRACE_CUH
#define WARPDECK_TRACE_CUH

#ifndef WARPDECK_TRACE

#define WD_STAGES(...)
#define WD_TRACE_PARAM
#define WD_TRACE_PASS(...)
#define WD_STATE_PARAM
#define WD_STATE_ARG
#define WD_TRACE_BEGIN()
#define WD_TRACE_END()
#define WD_PUSH(...)
#define WD_POP(...)
#define WD_RANGE(...)
#define WD_MARK(...)
#define WD_VALUE(...)
#define WD_START(...)
#define WD_STOP(...)
#define WD_ISSUE(...)
#define WD_DONE(...)
#define WD_PIN(...)

#else  // WARPDECK_TRACE

// Names become the enumerators of a struct, so that they collide with nothing, and a text in the cubin. Static:
// two files of one program have one each.
#define WD_STAGES(...)                                                       \
    struct wd_stages {                                                       \
        enum Id : unsigned { wd_none, __VA_ARGS__, wd_end };                 \
    };                                                                       \
    static_assert(wd_stages::wd_end <= 1024, "at most 1023 stages a file");  \
    static __device__ __attribute__((used)) const char wd_stage_names[] = #__VA_ARGS__;

#define WD_TRACE_PARAM , const wd_detail::Descriptor wd_trace
#define WD_TRACE_PASS(...) , __VA_ARGS__
#define WD_STATE_PARAM , wd_detail::State &wd_state
#define WD_STATE_ARG , wd_state

#define WD_TRACE_BEGIN()        \
    wd_detail::State wd_state;  \
    wd_state.open(wd_trace)
#define WD_TRACE_END() wd_state.close(wd_trace)

#define WD_PUSH(...) WD_EVENT_(KIND_BEGIN, __VA_ARGS__, 0, )
#define WD_POP(name) wd_state.finish(wd_stages::name)
#define WD_MARK(...) WD_EVENT_(KIND_MARK, __VA_ARGS__, 0, )
#define WD_EVENT_(kind, name, payload, ...) \
    wd_state.record(wd_detail::word(wd_detail::kind, wd_stages::name, unsigned(payload)))

#define WD_RANGE(...) WD_RANGE_(__LINE__, __VA_ARGS__, 0, )
#define WD_RANGE_(line, ...) WD_RANGE_2_(line, __VA_ARGS__)
#define WD_RANGE_2_(line, name, payload, ...) \
    const wd_detail::Range wd_range_##line(wd_state, wd_stages::name, unsigned(payload))

#define WD_VALUE(name, x) wd_state.value(wd_stages::name, x)
#define WD_START(name, token) WD_EXTENDED_(SUB_START, name, token)
#define WD_STOP(name, token) WD_EXTENDED_(SUB_STOP, name, token)
#define WD_ISSUE(name, flow) WD_EXTENDED_(SUB_ISSUE, name, flow)
#define WD_DONE(name, flow) WD_EXTENDED_(SUB_DONE, name, flow)
#define WD_EXTENDED_(sub, name, argument) \
    wd_state.record(wd_detail::extended(wd_stages::name, wd_detail::sub, unsigned(argument)))

#define WD_PIN(...) wd_detail::pin(__VA_ARGS__)

// A barrier lets a warp run on for some cycles before it holds it, and a marker behind it would read the clock
// too early (on an H200: 9 cycles after a barrier that took 5000). This waits; it costs no more than a NOP.
#define __syncthreads() (__syncthreads(), __syncwarp())

namespace wd_detail {

enum : unsigned {
    MAGIC_OPEN = 0x57445400,
    MAGIC_CLOSED = 0x57445401,
    HEADER_BYTES = 64,
    RECORD_BYTES = 8,
    KIND_BEGIN = 0,
    KIND_END = 1,
    KIND_MARK = 2,
    KIND_EXTENDED = 3,
    KIND_SHIFT = 30,
    PAYLOAD_BITS = 20,
    PAYLOAD_MASK = (1u << PAYLOAD_BITS) - 1,
    SUB_SHIFT = 17,
    ARGUMENT_MASK = (1u << SUB_SHIFT) - 1,
    TIME_SHIFT = 5,  // of globaltimer's bits in the payload of an end
    SUB_VALUE_U32 = 0,
    SUB_VALUE_I32 = 1,
    SUB_VALUE_F32 = 2,
    SUB_RAW = 3,
    SUB_START = 4,
    SUB_STOP = 5,
    SUB_ISSUE = 6,
    SUB_DONE = 7,
};

// The kernel's last parameter.
struct Descriptor {
    unsigned long long rows;  // address of the first row, a multiple of 16; 0: record nothing
    unsigned capacity;        // records a row, below 2^31
    unsigned row_bytes;       // HEADER_BYTES + RECORD_BYTES * capacity or more, a multiple of 16
    unsigned cta_first;       // traced are the CTAs cta_first + i * stride with i < cta_count
    unsigned cta_inverse;     // stride * cta_inverse = 1 modulo 2^32; the stride is odd
    unsigned cta_count;
    unsigned warp_mask;  // and of these CTAs the warps whose bit is set
};

// A row's head. A record is {unsigned clock, unsigned word}.
struct Header {
    unsigned magic;
    unsigned sm;
    unsigned cta;  // x + gridDim.x * (y + gridDim.y * z)
    unsigned warp;
    unsigned long long time_begin;  // globaltimer, ns
    unsigned long long clock_begin;
    unsigned long long time_end;
    unsigned long long clock_end;
    unsigned count;  // attempted records
    unsigned gap_begin;
    unsigned gap_end;
    unsigned warps;
};

static_assert(sizeof(Descriptor) == 32 && sizeof(Header) == HEADER_BYTES, "as in layout.py");

// The second half of a record: kind, name, payload.
__device__ __forceinline__ constexpr unsigned word(unsigned kind, unsigned name, unsigned payload) {
    return kind << KIND_SHIFT | name << PAYLOAD_BITS | (payload & PAYLOAD_MASK);
}

__device__ __forceinline__ constexpr unsigned extended(unsigned name, unsigned sub, unsigned argument) {
    return word(KIND_EXTENDED, name, sub << SUB_SHIFT | (argument & ARGUMENT_MASK));
}

// Both clocks of this multiprocessor: globaltimer in ns, read between two reads of the cycle counter.
struct Anchor {
    unsigned long long clock, time, after;
    __device__ __forceinline__ Anchor() {
        asm volatile(
            "mov.u64 %0, %%clock64;\n\tmov.u64 %1, %%globaltimer;\n\tmov.u64 %2, %%clock64;"
            : "=l"(clock), "=l"(time), "=l"(after)::"memory");
    }
    // In cycles. All 64 bits of both reads are used: for the low half alone the compiler takes a slower read.
    __device__ __forceinline__ unsigned gap() const {
        const unsigned long long cycles = after - clock;
        return cycles >> 32 ? 0xffffffffu : unsigned(cycles);
    }
};

// What a thread keeps in registers: where the next record goes, and how many more there is room for. Both are
// 0 at first in all lanes but a traced warp's lane 0. `next + 8 * left` never changes: it is the end of the
// row, or 0, so that close() needs nothing else.
struct State {
    unsigned long long next;
    int left;

    __device__ __forceinline__ void open(const Descriptor &d) {
        next = 0;
        left = 0;
        const unsigned cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        // Division without one: the product is i, and for the CTAs between the traced ones larger than any i.
        const unsigned index = (cta - d.cta_first) * d.cta_inverse;
        if (index >= d.cta_count) return;  // most blocks, so before anything else
        const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
        const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        const unsigned warp = thread / 32;
        if (thread % 32 != 0 || (d.warp_mask >> warp & 1) == 0 || d.rows == 0) return;
        unsigned sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        const unsigned row = index * __popc(d.warp_mask) + __popc(d.warp_mask & ((1u << warp) - 1));
        const unsigned long long start = d.rows + (unsigned long long)row * d.row_bytes;
        left = int(d.capacity);
        next = start + HEADER_BYTES;
        Header &header = *reinterpret_cast<Header *>(start);
        put(&header.magic, MAGIC_OPEN, sm, cta, warp);
        const Anchor anchor;
        put(&header.time_begin, anchor.time, anchor.clock);
        put(&header.count, 0, anchor.gap(), 0, (threads + 31) / 32);
    }

    __device__ __forceinline__ void close(const Descriptor &d) {
        const unsigned long long end = next + (long long)left * RECORD_BYTES;
        if (end != 0) {
            const Anchor anchor;
            const unsigned long long start = end - (unsigned long long)d.capacity * RECORD_BYTES - HEADER_BYTES;
            Header &header = *reinterpret_cast<Header *>(start);
            put(&header.time_end, anchor.time, anchor.clock);
            put(&header.count, d.capacity - unsigned(left));
            put(&header.gap_end, anchor.gap());
            put(&header.magic, MAGIC_CLOSED);
        }
        next = 0;  // what follows, a range's destructor say, records nothing
        left = 0;
    }

    // One event. One statement, so that nothing comes between the clock's reading and its store; the branch
    // over it becomes a predicate. The comparison is C++, so that a few events in a row subtract only once. The
    // clock is read under the predicate: read without it, events in a row take 31 cycles each on an H200, not 22,
    // since the wait for the last store's registers and that for the predicate then follow each other.
    __device__ __forceinline__ void record(unsigned word) {
        asm volatile(
            "{\n\t.reg .pred room;\n\t.reg .b32 now;\n\t"
            "setp.ne.u32 room, %0, 0;\n\t"
            "@!room bra done;\n\t"
            "mov.u32 now, %%clock;\n\t"
            "st.global.cs.v2.u32 [%1], {now, %2};\n\t"
            "done:\n\t}" ::"r"(unsigned(left > 0)),
            "l"(next), "r"(word)
            : "memory");
        next += RECORD_BYTES;
        left -= 1;
    }

    // The end of a range: with the timer, read right behind the clock.
    __device__ __forceinline__ void finish(unsigned name) {
        asm volatile(
            "{\n\t.reg .pred room;\n\t.reg .b32 now, time;\n\t"
            "setp.ne.u32 room, %0, 0;\n\t"
            "@!room bra done;\n\t"
            "mov.u32 now, %%clock;\n\t"
            "mov.u32 time, %%globaltimer_lo;\n\t"
            "shr.u32 time, time, %3;\n\t"
            "lop3.b32 time, time, %4, %2, 0xea;\n\t"  // time & mask | word
            "st.global.cs.v2.u32 [%1], {now, time};\n\t"
            "done:\n\t}" ::"r"(unsigned(left > 0)),
            "l"(next), "r"(word(KIND_END, name, 0)), "n"(int(TIME_SHIFT)), "n"(int(PAYLOAD_MASK))
            : "memory");
        next += RECORD_BYTES;
        left -= 1;
    }

    __device__ __forceinline__ void value(unsigned name, unsigned x) { value(name, SUB_VALUE_U32, x); }
    __device__ __forceinline__ void value(unsigned name, int x) { value(name, SUB_VALUE_I32, unsigned(x)); }
    __device__ __forceinline__ void value(unsigned name, float x) {
        value(name, SUB_VALUE_F32, __float_as_uint(x));
    }

   private:
    // The value's record, and one whose clock is the value.
    __device__ __forceinline__ void value(unsigned name, unsigned sub, unsigned bits) {
        record(extended(name, sub, 0));
        asm volatile(
            "{\n\t.reg .pred room;\n\t"
            "setp.ne.u32 room, %0, 0;\n\t"
            "@room st.global.cs.v2.u32 [%1], {%2, %3};\n\t}" ::"r"(unsigned(left > 0)),
            "l"(next), "r"(bits), "r"(extended(0, SUB_RAW, 0))
            : "memory");
        next += RECORD_BYTES;
        left -= 1;
    }

    // Fields of a header. Statements of their own, so that they stay in order with the clocks' readings.
    static __device__ __forceinline__ void put(unsigned *to, unsigned x) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
    }
    static __device__ __forceinline__ void put(unsigned *to, unsigned x, unsigned y, unsigned z, unsigned w) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x), "r"(y), "r"(z), "r"(w)
                     : "memory");
    }
    static __device__ __forceinline__ void put(unsigned long long *to, unsigned long long x,
                                               unsigned long long y) {
        asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y) : "memory");
    }
};

// A nested range over a scope.
struct Range {
    State &state;
    unsigned name;
    __device__ __forceinline__ Range(State &state_, unsigned name_, unsigned payload)
        : state(state_), name(name_) {
        state.record(word(KIND_BEGIN, name, payload));
    }
    __device__ __forceinline__ ~Range() { state.finish(name); }
};

#define WD_PIN_(type, letter) \
    __device__ __forceinline__ void pin(type &x) { asm volatile("" : "+" letter(x)::"memory"); }
WD_PIN_(float, "f")
WD_PIN_(double, "d")
WD_PIN_(int, "r")
WD_PIN_(unsigned, "r")
WD_PIN_(long, "l")
WD_PIN_(unsigned long, "l")
WD_PIN_(long long, "l")
WD_PIN_(unsigned long long, "l")
#undef WD_PIN_

template <class T>
__device__ __forceinline__ void pin(T *&x) {
    asm volatile("" : "+l"(x)::"memory");
}

__device__ __forceinline__ void pin(float2 &x) {
    pin(x.x);
    pin(x.y);
}

__device__ __forceinline__ void pin(double2 &x) {
    pin(x.x);
    pin(x.y);
}

__device__ __forceinline__ void pin(float4 &x) {
    pin(x.x);
    pin(x.y);
    pin(x.z);
    pin(x.w);
}

// All else: half, half2, int4, a struct …
template <class T>
__device__ __forceinline__ void pin(T &x) {
    static_assert(sizeof(T) == 2 || sizeof(T) % 4 == 0, "WD_PIN takes values of 2 bytes, of 4 or a multiple of 4");
    if constexpr (sizeof(T) == 2) {
        unsigned short bits;
        memcpy(&bits, &x, 2);
        asm volatile("" : "+h"(bits)::"memory");
        memcpy(&x, &bits, 2);
    } else {
        unsigned words[(sizeof(T) + 3) / 4];
        memcpy(words, &x, sizeof(T));
#pragma unroll
        for (unsigned &word : words) pin(word);
        memcpy(&x, words, sizeof(T));
    }
}

template <class T, unsigned N>
__device__ __forceinline__ void pin(T (&x)[N]) {
#pragma unroll
    for (unsigned i = 0; i < N; ++i) pin(x[i]);
}

template <class First, class Second, class... Rest>
__device__ __forceinline__ void pin(First &first, Second &second, Rest &...rest) {
    pin(first);
    pin(second, rest...);
}

}  // namespace wd_detail

#endif  // WARPDECK_TRACE
#endif  // WARPDECK_TRACE_CUH

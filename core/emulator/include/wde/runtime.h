// What the compiled kernel and the runtime (../runtime) have in common.
#pragma once

struct uint3;
struct dim3;

struct wde_uint3 {
    unsigned x, y, z;
};

// One thread of a block.
struct wde_fiber {
    void *sp;        // where it goes on
    wde_uint3 tid;   // threadIdx
    int index;       // threadIdx, linear
    int line;        // of its last barrier or warp operation
    unsigned char state;
    unsigned spins;  // atomics and fences so far: now and then they let others run
    void *stack;
    size_t stack_bytes;
    void *context;   // where switching needs more than a stack pointer
};

struct wde_key {  // where a __shared__ variable lies in the block with this number
    void *place;
    unsigned block;
};

extern "C" {
extern wde_fiber *wde_current;
extern wde_uint3 wde_block_index, wde_block_size, wde_grid_size;
extern unsigned wde_block_number;
extern unsigned char wde_arena[];

// Waits for all threads of the block; the number of them whose `vote` is true. `kind` tells the barriers apart.
int wde_barrier(int vote, int kind, int line);
// Waits for the lanes of `mask`; `*values` are what the lanes gave, `*lanes` which of them took part.
void wde_warp(unsigned mask, unsigned long long value, int kind, int line, const unsigned long long **values,
              unsigned *lanes);
unsigned wde_active_lanes();
void wde_yield();
void wde_spin();
void *wde_shared_slow(wde_key *key, size_t size, size_t align, const char *name, int line);
void *wde_shared_fixed(size_t size, size_t align, const char *name, int line);
[[noreturn]] void wde_fail(const char *kind, const char *message, int line);
void wde_atomic_access(const void *p, int size);
void wde_copy_begin(void *to, const void *from, int size, int zeros, int line);
void wde_copy_commit();
void wde_copy_wait(int newest);
int printf(const char *, ...);
void *malloc(size_t);
void free(void *);
}

#define WDE_DYNAMIC (wde_arena + 1024)  // a constant address: right for declarations at file scope, too
#define WDE_LINE int wde_line = __builtin_LINE()

// A __shared__ variable of a function: this block's, which is laid out where the first thread meets it.
template <class T>
inline T &wde_shared(wde_key &key, size_t align, const char *name, int line) {
    constexpr size_t own = alignof(std::remove_all_extents_t<T>);
    if (key.block != wde_block_number)
        return *static_cast<T *>(wde_shared_slow(&key, sizeof(T), align > own ? align : own, name, line));
    return *static_cast<T *>(key.place);
}

// A __shared__ variable at file scope: always at the same place.
template <class T>
inline T &wde_shared_at_file_scope(size_t align, const char *name, int line) {
    constexpr size_t own = alignof(std::remove_all_extents_t<T>);
    return *static_cast<T *>(wde_shared_fixed(sizeof(T), align > own ? align : own, name, line));
}

template <class T>
struct wde_same {
    typedef T type;
};
template <class T>
using wde_same_t = typename wde_same<T>::type;

template <class To, class From>
inline To wde_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

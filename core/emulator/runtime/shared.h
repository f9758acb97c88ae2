// Shared memory: an arena with poisoned gaps, filled with a pattern at each block that no sum survives.
#pragma once

static size_t arena_used, arena_declared;
static size_t fixed_used = FIXED;
static Variable fixed_variables[64];  // plain data: it is filled before constructors here have run
static int fixed_count;

static WDE_RAW void fill(unsigned char *p, size_t bytes) {  // NaN as float, huge as int
    auto *q = (volatile unsigned *)p;
    for (size_t i = 0; i < (bytes + 3) / 4; i++) q[i] = 0x7fc0dead;
}

static void offer(const Variable &v) {
    fill((unsigned char *)v.place, v.bytes);
#if WDE_ASAN
    __asan_unpoison_memory_region(v.place, v.bytes);
#endif
    variables.push_back(v);
}

static void begin_shared_memory() {
    wde_block_number++;
    variables.clear();
#if WDE_ASAN
    __asan_poison_memory_region(wde_arena, ARENA);
#endif
    if (dynamic_bytes) offer({"dynamic memory", (char *)WDE_DYNAMIC, dynamic_bytes, 0});
    for (int i = 0; i < fixed_count; i++) offer(fixed_variables[i]);
    arena_used = 1024 + ((dynamic_bytes + 15) & ~size_t(15)) + GAP;
    arena_declared = 0;
    forget_accesses();
}

static size_t aligned(size_t at, size_t align) { return (at + align - 1) / align * align; }

extern "C" WDE_RAW void *wde_shared_slow(wde_key *key, size_t size, size_t align, const char *name, int line) {
    const size_t at = aligned(arena_used, std::max(align, size_t(16)));
    arena_declared += size;
    if (arena_declared > STATIC_LIMIT) fail("shared_size", "more than 48 KB of declared shared memory", line);
    if (arena_declared + dynamic_bytes > SHARED_LIMIT || at + size + GAP > FIXED)
        fail("shared_size", "more than 227 KB of shared memory", line);
    arena_used = at + ((size + 15) & ~size_t(15)) + GAP;
    offer({name, (char *)wde_arena + at, size, line});
    key->place = wde_arena + at;
    key->block = wde_block_number;
    return key->place;
}

// Runs before main. What doesn't fit is told when a job comes.
static const char *fixed_problem;

extern "C" void *wde_shared_fixed(size_t size, size_t align, const char *name, int line) {
    const size_t at = aligned(fixed_used, std::max(align, size_t(16)));
    if (at + size + GAP > ARENA || fixed_count == 64) {
        fixed_problem = "unsupported: more than 100 KB or 64 variables of shared memory at file scope";
        return wde_arena + FIXED;
    }
    fixed_used = at + ((size + 15) & ~size_t(15)) + GAP;
    fixed_variables[fixed_count++] = {name, (char *)wde_arena + at, size, line};
    return wde_arena + at;
}

// Fibres, and what makes them wait: barriers of a block, operations of a warp, asynchronous copies.
#pragma once

#if defined(__x86_64__)

extern "C" void wde_switch(void **save, void *to);
asm(R"(.text
.globl wde_switch
.type wde_switch,@function
wde_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size wde_switch,.-wde_switch
)");
static void prepare_stack(wde_fiber *f, void (*start)()) {
    void **top = (void **)(uintptr_t((char *)f->stack + f->stack_bytes) & ~uintptr_t(15));
    *--top = nullptr;
    *--top = (void *)start;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->sp = top;
}
static inline void switch_stack(wde_fiber *from, wde_fiber *to) { wde_switch(&from->sp, to->sp); }

#else  // 25 times slower: swapcontext makes system calls

static void prepare_stack(wde_fiber *f, void (*start)()) {
    auto *u = new ucontext_t;
    getcontext(u);
    u->uc_stack.ss_sp = f->stack;
    u->uc_stack.ss_size = f->stack_bytes;
    u->uc_link = nullptr;
    makecontext(u, start, 0);
    f->context = u;
}
static void switch_stack(wde_fiber *from, wde_fiber *to) {
    if (!from->context) from->context = new ucontext_t;
    swapcontext((ucontext_t *)from->context, (ucontext_t *)to->context);
}

#endif

static const char *const OPERATIONS[] = {"?", "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                         "__shfl_xor_sync", "a vote", "__match", "__reduce"};

static const wde_entry *kernel;
static void *const *kernel_arguments;
static const void *outer_stack;
static size_t outer_stack_bytes;

static int arrived, barrier_line, barrier_kind, barrier_first, barrier_turn, barrier_votes[2];
static bool anyone_done;

static inline WDE_RAW void go_to(wde_fiber *to) {
    wde_fiber *from = wde_current;
    if (from == to) return;
    settle();
    wde_current = to;
#if WDE_ASAN
    void *fake;
    const bool out = to == &outside;
    __sanitizer_start_switch_fiber(&fake, out ? outer_stack : to->stack, out ? outer_stack_bytes : to->stack_bytes);
#endif
    switch_stack(from, to);
#if WDE_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

static std::string count_of(int n, const char *what) {
    return std::to_string(n) + (n == 1 ? " thread " : " threads ") + what;
}

[[noreturn]] static void deadlock() {
    int waiting = 0, meeting = 0, gone = 0, at_barrier = -1, in_warp = -1, done = -1;
    for (int i = 0; i < threads; i++) {
        const unsigned char state = fibers[i].state;
        int &first = state == AT_BARRIER ? at_barrier : state == IN_WARP ? in_warp : done;
        (state == AT_BARRIER ? waiting : state == IN_WARP ? meeting : gone)++;
        if (first < 0) first = i;
    }
    std::string m;
    if (meeting) {
        std::string what = "a warp operation";
        for (const Meeting &w : warps[in_warp / 32].meetings)
            if (w.arrived >> (in_warp & 31) & 1) {
                char b[80];
                snprintf(b, sizeof b, "%s with mask 0x%08x", OPERATIONS[w.kind], w.mask);
                what = b;
            }
        m += count_of(meeting, "wait in ") + what + " at @" + std::to_string(fibers[in_warp].line) + ", e.g. " +
             thread_name(in_warp) + "; ";
    }
    if (waiting)
        m += count_of(waiting, "wait at the barrier of @") + std::to_string(fibers[at_barrier].line) + ", e.g. " +
             thread_name(at_barrier) + "; ";
    if (gone) m += count_of(gone, "returned, e.g. ") + thread_name(done) + "; ";
    wde_current = &fibers[in_warp >= 0 ? in_warp : at_barrier];
    fail("deadlock", "deadlock: " + m + "nobody can go on", wde_current->line);
}

// Goes on with the next thread that can run.
static inline void pick() {
    const bool out = wde_current == &outside;
    int i = following[out ? threads : wde_current->index];
    for (int tries = 0; tries <= threads; tries++, i = following[i])
        if (fibers[i].state == READY) return go_to(&fibers[i]);
    if (alive == 0) return go_to(&outside);
    deadlock();
}

static void release_barrier() {
    if (anyone_done) {
        int gone = -1, waits = -1;
        for (int i = threads - 1; i >= 0; i--) (fibers[i].state == DONE ? gone : waits) = i;
        wde_current = &fibers[waits];
        fail("divergent_barrier",
             "a barrier reached by " + std::to_string(alive) + " of the block's " + std::to_string(threads) +
                 " threads: thread " + thread_name(gone) + " has returned already",
             fibers[waits].line);
    }
    for (wde_fiber &f : fibers)
        if (f.state == AT_BARRIER) f.state = READY;
    arrived = 0;
    barrier_turn ^= 1;
    barrier_votes[barrier_turn] = 0;
    barrier_epoch++;
}

extern "C" int wde_barrier(int vote, int kind, int line) {
    settle();
    wde_fiber *f = wde_current;
    f->line = line;
    if (arrived == 0) {
        barrier_line = line;
        barrier_kind = kind;
        barrier_first = f->index;
    } else if (barrier_line != line || barrier_kind != kind) {
        fail("divergent_barrier",
             "this thread is at a barrier, but thread " + thread_name(barrier_first) + " waits at the one of @" +
                 std::to_string(barrier_line),
             line);
    }
    const int turn = barrier_turn;
    barrier_votes[turn] += vote != 0;
    f->state = AT_BARRIER;
    if (++arrived == alive)
        release_barrier();
    else
        pick();
    return barrier_votes[turn];
}

static void complete(Warp &w, Meeting &m, int first) {
    if (!m.arrived) return;
    const unsigned needed = m.mask & ~w.done;
    if ((m.arrived & needed) != needed) return;
    m.lanes[m.turn] = m.arrived;
    for (int i = 0; i < 32; i++)
        if (m.arrived >> i & 1) fibers[first + i].state = READY;
    m.arrived = 0;
    m.turn ^= 1;
    w.syncs++;
}

static unsigned lanes_of(int warp) {
    const int n = threads - warp * 32;
    return n >= 32 ? ~0u : (1u << n) - 1;
}

extern "C" void wde_warp(unsigned mask, unsigned long long value, int kind, int line,
                         const unsigned long long **values, unsigned *lanes) {
    settle();
    wde_fiber *f = wde_current;
    const int lane = f->index & 31, number = f->index / 32;
    Warp &w = warps[number];
    f->line = line;
    if (!(mask >> lane & 1)) fail("warp_mask", std::string(OPERATIONS[kind]) + ": the calling lane isn't in the mask", line);
    const unsigned there = lanes_of(number);
    if (mask != ~0u && (mask & ~there))
        fail("warp_mask", std::string(OPERATIONS[kind]) + ": the mask names lanes that the block doesn't have", line);
    Meeting *m = nullptr;
    for (Meeting &known : w.meetings)
        if (known.mask == mask) m = &known;
    if (!m) {
        w.meetings.reserve(64);  // pointers into it stay valid
        if (w.meetings.size() == 64) fail("warp_mask", "unsupported: over 64 different masks in one warp", line);
        w.meetings.emplace_back();
        m = &w.meetings.back();
        m->mask = mask;
    }
    if (m->arrived && m->kind != kind)
        fail("warp_mismatch",
             std::string("lanes of one mask are in different operations: ") + OPERATIONS[kind] + " here, " +
                 OPERATIONS[m->kind] + " at @" + std::to_string(m->line),
             line);
    const int turn = m->turn;
    m->kind = kind;
    m->line = line;
    m->values[turn][lane] = value;
    m->arrived |= 1u << lane;
    f->state = IN_WARP;
    *values = m->values[turn];
    complete(w, *m, number * 32);
    if (f->state != READY) pick();
    *lanes = m->lanes[turn];
}

extern "C" unsigned wde_active_lanes() {
    const int number = wde_current->index / 32;
    return lanes_of(number) & ~warps[number].done;
}
extern "C" void wde_yield() { pick(); }
extern "C" void wde_spin() {
    if (++wde_current->spins % 64 == 0) pick();
}

// -- asynchronous copies -------------------------------------------------------------------------------------

struct Copy {
    void *to;
    int bytes, batch, line;
    unsigned char data[16];
};
struct Copies {
    std::vector<Copy> open;
    int batch = 0;
};
static std::vector<Copies> copies;  // by thread

extern "C" void wde_copy_begin(void *to, const void *data, int bytes, int, int line) {
    Copies &mine = copies[size_t(wde_current->index)];
    Copy c{to, bytes, mine.batch, line, {}};
    memcpy(c.data, data, size_t(bytes));
    wde_current->line = line;
    access(to, bytes, true, true, (void **)__builtin_frame_address(0));
    mine.open.push_back(c);
}
extern "C" void wde_copy_commit() { copies[size_t(wde_current->index)].batch++; }
extern "C" void wde_copy_wait(int newest) {
    Copies &mine = copies[size_t(wde_current->index)];
    size_t kept = 0;
    for (const Copy &c : mine.open) {
        if (c.batch >= mine.batch - newest) {
            mine.open[kept++] = c;
            continue;
        }
        access(c.to, c.bytes, true, true, (void **)__builtin_frame_address(0));
        memcpy(c.to, c.data, size_t(c.bytes));
    }
    mine.open.resize(kept);
}

// -- threads -------------------------------------------------------------------------------------------------

static void run_thread() {
#if WDE_ASAN
    const void *bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!outer_stack) outer_stack = bottom, outer_stack_bytes = bytes;
#endif
    for (;;) {
        wde_fiber *f = wde_current;
        kernel->call(kernel_arguments);
        settle();
        wde_copy_commit();
        wde_copy_wait(0);
        f->state = DONE;
        alive--;
        anyone_done = true;
        Warp &w = warps[f->index / 32];
        w.done |= 1u << (f->index & 31);
        for (Meeting &m : w.meetings) complete(w, m, f->index / 32 * 32);
        if (alive && arrived == alive) release_barrier();
        pick();
    }
}

// Stacks are made once, as many as were ever needed, and kept.
static void make_threads(const wde_uint3 &size) {
    static char *stacks;
    const size_t wanted = size_t(size.x) * size.y * size.z, each = STACK + 4096;
    if (!stacks) {
        fibers.reserve(1024);  // pointers into it stay valid
        stacks = (char *)mmap(nullptr, each * 1024, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) fail("out_of_memory", "no room for the stacks of a block's threads", 0);
    }
    while (fibers.size() < wanted) {
        const size_t i = fibers.size();
        fibers.emplace_back();
        wde_fiber &f = fibers.back();
        mprotect(stacks + each * i, 4096, PROT_NONE);
        f.stack = stacks + each * i + 4096;
        f.stack_bytes = STACK;
        f.index = int(i);
        prepare_stack(&f, run_thread);
    }
    for (size_t i = 0; i < fibers.size(); i++) {
        fibers[i].tid = {unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / size.x / size.y)};
        fibers[i].state = DONE;
    }
    threads = int(wanted);
    warps.assign((wanted + 31) / 32, {});
    copies.assign(wanted, {});
    following.assign(wanted + 1, 0);
}

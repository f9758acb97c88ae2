// The second build: -fsanitize=thread calls these at every access, and no race runtime is linked but this one.
// A shadow of shared memory holds, for each byte, who wrote it last and which two threads read it, and when: at
// which barrier of the block and after how many synchronisations of the warp.
#pragma once

#ifdef WDE_RACES

struct Shadow {
    unsigned write_epoch, write_syncs, read_epoch[2], read_syncs[2];
    short writer, reader[2];
    bool written, atomic;
};
static Shadow *shadow;
static size_t shadow_used;  // bytes of the arena whose shadow isn't clean

// A write that conflicts is harmless if it stores what is there already: known only when it is done.
struct Pending {
    const void *place = nullptr;
    int bytes = 0, other = -1;
    unsigned char before[16];
    const char *how;
    std::vector<void *> code;
} static pending;

static std::vector<std::pair<void *, char>> told;  // code and kind

WDE_RAW static void report_access(const char *kind, const void *p, const char *how, int other,
                                  const std::vector<void *> &code) {
    for (const auto &known : told)
        if (known.first == code[0] && known.second == kind[0]) return;
    if (told.size() >= 20) return;
    told.push_back({code[0], kind[0]});
    std::string message = how;
    if (other >= 0) message += " by thread " + thread_name(other) + " without a barrier between";
    tell(kind, message + ": " + describe((const char *)p), 0, code);
}

WDE_RAW static void settle() {
    if (!pending.place) return;
    const void *p = pending.place;
    pending.place = nullptr;
    const auto *now = (const volatile unsigned char *)p;
    for (int i = 0; i < pending.bytes; i++)
        if (now[i] != pending.before[i]) {
            report_access("race", p, pending.how, pending.other, pending.code);
            return;
        }
}

WDE_RAW static void forget_accesses() {
    settle();
    if (!shadow)
        shadow = (Shadow *)mmap(nullptr, sizeof(Shadow) * ARENA, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memset((void *)shadow, 0, sizeof(Shadow) * shadow_used);
    shadow_used = 0;
}

WDE_RAW static bool ordered(int other, unsigned epoch, unsigned syncs, int me) {
    return other == me || epoch != barrier_epoch ||
           (other / 32 == me / 32 && syncs != warps[me / 32].syncs);
}

WDE_RAW static void access(const void *p, int bytes, bool write, bool atomic, void **frame) {
    settle();
    const size_t at = size_t((unsigned char *)p - wde_arena);
    if (at >= ARENA || !wde_current || wde_current == &outside) return;
    shadow_used = std::max(shadow_used, std::min(at + bytes, ARENA));
    const int me = wde_current->index;
    const unsigned syncs = warps[me / 32].syncs;
    const auto code = [&] {
        std::vector<void *> found;
        walk(found, frame);
        return found;
    };
    for (int i = 0; i < bytes && at + i < ARENA; i++) {
        Shadow &s = shadow[at + i];
        int other = -1;
        const char *how = "";
        if (s.written && !ordered(s.writer, s.write_epoch, s.write_syncs, me) && !(atomic && s.atomic)) {
            other = s.writer;
            how = write ? "write after a write" : "read after a write";
        }
        for (int r = 0; r < 2 && write && other < 0; r++)
            if (s.read_epoch[r] && !ordered(s.reader[r], s.read_epoch[r], s.read_syncs[r], me)) {
                other = s.reader[r];
                how = "write after a read";
            }
        if (other >= 0) {
            if (!write || atomic || bytes > 16) {
                report_access("race", p, how, other, code());
            } else if (!pending.place) {
                pending = {p, bytes, other, {}, how, code()};
                memcpy(pending.before, p, size_t(bytes));
            }
        }
        if (write) {
            s.write_epoch = barrier_epoch;
            s.write_syncs = syncs;
            s.writer = short(me);
            s.written = true;
            s.atomic = atomic;
            continue;
        }
        if (!s.written)
            report_access("uninitialised", p, "read of shared memory that this block hasn't written", -1, code());
        if (s.reader[0] != me) {
            s.reader[1] = s.reader[0];
            s.read_epoch[1] = s.read_epoch[0];
            s.read_syncs[1] = s.read_syncs[0];
        }
        s.reader[0] = short(me);
        s.read_epoch[0] = barrier_epoch;
        s.read_syncs[0] = syncs;
    }
}

#define WDE_FRAME ((void **)__builtin_frame_address(0))
#define WDE_HOOKS(name, bytes, write) \
    WDE_RAW void __tsan_##name##bytes(void *p) { access(p, bytes, write, false, WDE_FRAME); }
#define WDE_SIZES(name, write) \
    WDE_HOOKS(name, 1, write) WDE_HOOKS(name, 2, write) WDE_HOOKS(name, 4, write) \
    WDE_HOOKS(name, 8, write) WDE_HOOKS(name, 16, write)
extern "C" {
WDE_SIZES(read, false)
WDE_SIZES(write, true)
WDE_SIZES(unaligned_read, false)
WDE_SIZES(unaligned_write, true)
WDE_SIZES(volatile_read, false)
WDE_SIZES(volatile_write, true)
WDE_SIZES(unaligned_volatile_read, false)
WDE_SIZES(unaligned_volatile_write, true)
WDE_RAW void __tsan_read_range(void *p, size_t n) { access(p, int(n), false, false, WDE_FRAME); }
WDE_RAW void __tsan_write_range(void *p, size_t n) { access(p, int(n), true, false, WDE_FRAME); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void *) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
WDE_RAW void wde_atomic_access(const void *p, int bytes) { access(p, bytes, true, true, WDE_FRAME); }
}

#else

static void settle() {}
static void forget_accesses() {}
static void access(const void *, int, bool, bool, void **) {}
extern "C" void wde_atomic_access(const void *, int) {}

#endif

// Answers, one JSON object a line, and what becomes of a fault: told with block, thread and addresses of the
// code, then the process ends.
#pragma once

static int answers = 1;  // file descriptor

static std::string quoted(const char *text) {
    std::string out = "\"";
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') out += '\\';
        out += (unsigned char)*text < 32 ? ' ' : *text;
    }
    return out + "\"";
}

static std::string triple(const wde_uint3 &v) {
    char b[64];
    snprintf(b, sizeof b, "[%u,%u,%u]", v.x, v.y, v.z);
    return b;
}

static std::string thread_name(int index) {
    const wde_uint3 &t = fibers[index].tid;
    char b[64];
    snprintf(b, sizeof b, "(%u,%u,%u)", t.x, t.y, t.z);
    return b;
}

static void send(const std::string &line) {
    const std::string all = line + "\n";
    for (size_t at = 0; at < all.size();) {
        const ssize_t n = write(answers, all.data() + at, all.size() - at);
        if (n <= 0) _exit(9);
        at += size_t(n);
    }
}

// Return addresses from a frame on, up the stack of the thread.
static WDE_RAW void walk(std::vector<void *> &found, void **frame) {
    const char *low = wde_current ? (char *)wde_current->stack : nullptr;
    const char *high = wde_current ? low + wde_current->stack_bytes : nullptr;
    while (found.size() < 12 && (char *)frame >= low && (char *)(frame + 2) <= high) {
        found.push_back((char *)frame[1] - 1);
        if ((void **)frame[0] <= frame) break;
        frame = (void **)frame[0];
    }
}

static std::string place(const std::vector<void *> &code) {
    std::string out = "\"block\": " + triple(wde_block_index) + ", \"thread\": ";
    out += wde_current && wde_current != &outside ? triple(wde_current->tid) : std::string("null");
    out += ", \"code\": [";
    for (size_t i = 0; i < code.size(); i++) {
        char b[32];
        snprintf(b, sizeof b, "%s\"%p\"", i ? "," : "", code[i]);
        out += b;
    }
    return out + "]";
}

static void tell(const char *kind, const std::string &message, int line, const std::vector<void *> &code = {}) {
    send(std::string("{\"kind\": \"") + kind + "\", \"line\": " + std::to_string(line) + ", " + place(code) +
         ", \"message\": " + quoted(message.c_str()) + "}");
}

[[noreturn]] static void fail(const char *kind, const std::string &message, int line,
                              const std::vector<void *> &code = {}) {
    tell(kind, message, line, code);
    _exit(3);
}

extern "C" void wde_fail(const char *kind, const char *message, int line) { fail(kind, message, line); }

// Where an address lies, for people.
static std::string describe(const char *p) {
    char b[300];
    if (wde_current && p < (char *)wde_current->stack && p >= (char *)wde_current->stack - 64 * STACK) {
        snprintf(b, sizeof b, "the stack of a thread, over its %zu KB", STACK / 1024);
        return b;
    }
    for (const Variable &v : variables)
        if (p >= v.place - GAP && p < v.place + v.bytes + GAP) {
            snprintf(b, sizeof b, "byte %ld of %zu of shared %s", long(p - v.place), v.bytes, v.name);
            return b;
        }
    for (const Buffer *buffer : buffers) {
        const Buffer &g = *buffer;
        if (p >= g.place - FAR && p < g.place + g.bytes + FAR) {
            snprintf(b, sizeof b, "byte %ld of %zu of argument %s", long(p - g.place), g.bytes, g.name.c_str());
            return b;
        }
    }
    if ((unsigned char *)p >= wde_arena && (unsigned char *)p < wde_arena + ARENA)
        return "shared memory outside every variable";
    for (const wde_fiber &f : fibers)
        if (p >= (char *)f.stack && p < (char *)f.stack + f.stack_bytes) return "a local variable of a thread";
    snprintf(b, sizeof b, "address %p, which is in no buffer", (const void *)p);
    return b;
}

// The code that a signal interrupted.
static std::vector<void *> interrupted(void *context) {
    std::vector<void *> code;
#if defined(__x86_64__)
    const auto &registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    code.push_back((void *)registers[REG_RIP]);
    walk(code, (void **)registers[REG_RBP]);
#endif
    return code;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    char *address = (char *)info->si_addr;
    if (number == SIGSEGV)
        for (Buffer *buffer : buffers) {
            Buffer &g = *buffer;
            if (g.constant && !g.open && address >= g.place && address < g.place + g.bytes) {
                // A write to an input: let it happen, and compare when the kernel is done.
                g.open = true;
                g.first_write = interrupted(context);
                g.writer = place(g.first_write);
                mprotect(g.place, (g.bytes + 4095) & ~size_t(4095), PROT_READ | PROT_WRITE);
                return;
            }
        }
    if (number == SIGFPE) fail("division", "integer division by zero", 0, interrupted(context));
    fail("memory", "access to " + describe(address), 0, interrupted(context));
}

static void on_time(int, siginfo_t *, void *context) {
    char b[100];
    snprintf(b, sizeof b, "still running after %g s", limit_s);
    fail("timeout", b, wde_current ? wde_current->line : 0, interrupted(context));
}

#if WDE_ASAN
extern "C" void __asan_on_error() {
    std::vector<void *> code{(char *)__asan_get_report_pc() - 1};
    walk(code, (void **)__asan_get_report_bp());
    char b[64];
    snprintf(b, sizeof b, "%s of %zu bytes at ", __asan_get_report_access_type() ? "write" : "read",
             __asan_get_report_access_size());
    fail("memory", b + describe((char *)__asan_get_report_address()), 0, code);
}

extern "C" void __ubsan_get_current_report_data(const char **, const char **, const char **, unsigned *,
                                                unsigned *, char **) __attribute__((weak));
// Called before the sanitizer decides whether to go on.
extern "C" void __ubsan_on_report() {
    if (!__ubsan_get_current_report_data) return;
    const char *kind = "", *message = "", *file = "";
    unsigned line = 0, column = 0;
    char *address = nullptr;
    __ubsan_get_current_report_data(&kind, &message, &file, &line, &column, &address);
    const std::string k = kind;
    std::string told = message;  // "Index 4 out of bounds …"
    if (!told.empty() && told[0] >= 'A' && told[0] <= 'Z') told[0] = char(told[0] - 'A' + 'a');
    const bool harmless = k.find("overflow") != std::string::npos && k.find("pointer") == std::string::npos;
    if (harmless || k.find("shift") != std::string::npos) return tell("warning", told, int(line));
    fail("undefined", told, int(line));
}
#endif

// Jobs. A line of standard input names a file of commands, one a line:
//   limit SECONDS            processor time of each kernel
//   schedule N               order of threads and blocks: 0 forward, 1 backward, others random
//   buffer CASE NAME in|out|inout|workspace BYTES FROM TO      files to read and to write, "-" for none
//   value NAME BYTES HEX     a scalar
//   launch ENTRY GRID BLOCK SHARED      ENTRY is a number, the next two are three numbers each
// Buffers and values are the arguments of every launch, in order. A buffer of one case stays where it is.
#pragma once

struct Argument {
    std::string name;
    bool pointer;
    std::vector<unsigned char> value;
};
struct Output {
    Buffer *buffer;
    std::string path;
};
struct Input {
    Buffer *buffer;
    std::vector<unsigned char> contents;  // of a constant one
};

static void read_file(const std::string &path, void *to, size_t bytes) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = file < 0 ? -1 : read(file, (char *)to + at, bytes - at);
        if (n <= 0) fail("files", "can't read " + path, 0);
        at += size_t(n);
    }
    close(file);
}

static void write_file(const std::string &path, const void *from, size_t bytes) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = file < 0 ? -1 : write(file, (const char *)from + at, bytes - at);
        if (n <= 0) fail("files", "can't write " + path, 0);
        at += size_t(n);
    }
    close(file);
}

// Between two inaccessible gaps, so that an index a little or very wrong never meets another buffer; the rest
// of its last page is poisoned.
static Buffer &find_buffer(const std::string &key, const std::string &name, size_t bytes) {
    const auto known = std::find_if(buffers.begin(), buffers.end(), [&](Buffer *b) { return b->key == key; });
    const bool found = known != buffers.end();
    if (!found) buffers.push_back(new Buffer);
    Buffer &g = found ? **known : *buffers.back();
    const size_t pages = (bytes + 4095) & ~size_t(4095);
    if (!g.place) {
        char *all = (char *)mmap(nullptr, 2 * FAR + pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED || mmap(all + FAR, pages, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            fail("out_of_memory", "no room for argument " + name, 0);
        g.key = key;
        g.name = name;
        g.place = all + FAR;
        g.bytes = bytes;
#if WDE_ASAN
        __asan_poison_memory_region(g.place + bytes, pages - bytes);
#endif
    }
    mprotect(g.place, pages, PROT_READ | PROT_WRITE);
    g.open = true;
    g.first_write.clear();
    return g;
}

static int schedule;
static unsigned long long random_state;

static unsigned random_below(unsigned n) {  // Knuth's linear congruential generator
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return unsigned((random_state >> 33) % n);
}

static void order_threads() {
    std::vector<int> order(size_t(threads), 0);
    for (int i = 0; i < threads; i++) order[size_t(i)] = i;
    if (schedule == 1) std::reverse(order.begin(), order.end());
    for (int i = threads - 1; i > 0 && schedule > 1; i--)
        std::swap(order[size_t(i)], order[random_below(unsigned(i) + 1)]);
    for (size_t i = 0; i < order.size(); i++) following[size_t(order[i])] = order[(i + 1) % order.size()];
    following[size_t(threads)] = order[0];
}

static void run_block(unsigned x, unsigned y, unsigned z) {
    wde_block_index = {x, y, z};
    alive = threads;
    arrived = 0;
    anyone_done = false;
    barrier_votes[0] = barrier_votes[1] = 0;
    barrier_turn = 0;
    barrier_epoch = 1;
    for (int i = 0; i < threads; i++) {
        fibers[size_t(i)].state = READY;
        fibers[size_t(i)].line = 0;
        copies[size_t(i)].batch = 0;
    }
    for (size_t i = 0; i < warps.size(); i++) {
        warps[i].meetings.clear();
        warps[i].done = ~lanes_of(int(i));
        warps[i].syncs = 1;
    }
    begin_shared_memory();
    if (schedule > 1) order_threads();
    wde_current = &outside;
    pick();
}

static void set_limit(double seconds) {
    itimerval timer{};
    timer.it_value.tv_sec = long(seconds);
    timer.it_value.tv_usec = long((seconds - double(long(seconds))) * 1e6);
    setitimer(ITIMER_PROF, &timer, nullptr);
}

static void launch(const wde_entry &entry, const std::vector<Argument> &arguments, const wde_uint3 &grid,
                   const wde_uint3 &block, size_t shared) {
    const std::string name = entry.name;
    if (int(arguments.size()) != entry.count)
        fail("launch", "kernel " + name + " takes " + std::to_string(entry.count) + " parameters; the workload has " +
                           std::to_string(arguments.size()) + " arguments", 0);
    std::vector<void *> addresses;
    for (int i = 0; i < entry.count; i++) {
        const Argument &a = arguments[size_t(i)];
        const wde_parameter &p = entry.parameters[i];
        const std::string where = "kernel " + name + ", parameter " + std::to_string(i + 1) + " (" + a.name + ") ";
        if (p.pointer != a.pointer)
            fail("launch", where + (p.pointer ? "is a pointer; the argument is a scalar" : "is no pointer; the argument is an array"), 0);
        if (!p.pointer && p.size != a.value.size())
            fail("launch", where + "has " + std::to_string(p.size) + " bytes; the argument has " +
                               std::to_string(a.value.size()), 0);
        addresses.push_back((void *)a.value.data());
    }
    if (size_t(block.x) * block.y * block.z > 1024) fail("launch", "a block has at most 1024 threads", 0);
    if (fixed_problem) fail("shared_size", fixed_problem, 0);
    kernel = &entry;
    kernel_arguments = addresses.data();
    wde_grid_size = grid;
    wde_block_size = block;
    dynamic_bytes = shared;
    make_threads(block);
    order_threads();
    const size_t blocks = size_t(grid.x) * grid.y * grid.z;
    set_limit(limit_s);
    for (size_t i = 0; i < blocks; i++) {
        const size_t j = schedule % 2 ? blocks - 1 - i : i;
        run_block(unsigned(j % grid.x), unsigned(j / grid.x % grid.y), unsigned(j / grid.x / grid.y));
    }
    set_limit(0);
    settle();
}

static void run_job(const std::string &path) {
    FILE *file = fopen(path.c_str(), "r");
    if (!file) fail("files", "can't read " + path, 0);
    std::vector<Argument> arguments;
    std::vector<Output> outputs;
    std::vector<Input> inputs;
    char word[16], key[300], name[300], kind[16], from[300], to[300];
    char hex[64];
    schedule = 0;
    while (fscanf(file, "%15s", word) == 1) {
        const std::string w = word;
        int fields = 0, wanted = 1;
        if (w == "limit") {
            fields = fscanf(file, "%lf", &limit_s);
        } else if (w == "schedule") {
            fields = fscanf(file, "%d", &schedule);
            random_state = (unsigned long long)schedule;
        } else if (w == "buffer") {
            size_t bytes;
            wanted = 6;
            fields = fscanf(file, "%299s %299s %15s %zu %299s %299s", key, name, kind, &bytes, from, to);
            if (fields != wanted) break;
            Buffer &g = find_buffer(std::string(key) + " " + name, name, bytes);
            g.constant = !strcmp(kind, "in");
            if (strcmp(from, "-"))
                read_file(from, g.place, bytes);
            else
                memset(g.place, strcmp(kind, "out") ? 0 : 0xff, bytes);
            if (strcmp(to, "-")) outputs.push_back({&g, to});
            if (g.constant) {
                inputs.push_back({&g, {(unsigned char *)g.place, (unsigned char *)g.place + bytes}});
                mprotect(g.place, (bytes + 4095) & ~size_t(4095), PROT_READ);
                g.open = false;
            }
            Argument a{name, true, std::vector<unsigned char>(sizeof(void *))};
            memcpy(a.value.data(), &g.place, sizeof(void *));
            arguments.push_back(a);
        } else if (w == "value") {
            size_t bytes;
            wanted = 3;
            fields = fscanf(file, "%299s %zu %63s", name, &bytes, hex);
            if (fields != wanted) break;
            Argument a{name, false, {}};
            for (size_t i = 0; i < bytes && i < 16; i++)
                a.value.push_back((unsigned char)std::stoi(std::string(hex + 2 * i, 2), nullptr, 16));
            arguments.push_back(a);
        } else if (w == "launch") {
            int entry;
            wde_uint3 g, b;
            size_t shared;
            wanted = 8;
            fields = fscanf(file, "%d %u %u %u %u %u %u %zu", &entry, &g.x, &g.y, &g.z, &b.x, &b.y, &b.z, &shared);
            if (fields != wanted || entry < 0 || entry >= wde_entry_count) break;
            launch(wde_entries[entry], arguments, g, b, shared);
        }
        if (fields != wanted) fail("files", "a job's line is wrong: " + w, 0);
    }
    fclose(file);
    wde_current = nullptr;
    for (const Input &in : inputs) {
        const auto wrong = std::mismatch(in.contents.begin(), in.contents.end(), (unsigned char *)in.buffer->place);
        if (wrong.first == in.contents.end()) continue;
        send("{\"kind\": \"input\", \"line\": 0, " + in.buffer->writer + ", \"message\": " +
             quoted(("the kernel changed its input " + in.buffer->name + ", first at byte " +
                     std::to_string(wrong.first - in.contents.begin())).c_str()) + "}");
        _exit(3);
    }
    for (const Output &out : outputs) write_file(out.path, out.buffer->place, out.buffer->bytes);
    send("{\"kind\": \"done\"}");
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO | SA_NODEFER;
    sigaction(number, &action, nullptr);
}

static int serve() {
    answers = dup(1);  // what a kernel prints isn't an answer
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    stack_t alternate{};
    alternate.ss_size = 1 << 18;
    alternate.ss_sp = malloc(alternate.ss_size);
    sigaltstack(&alternate, nullptr);
    for (int number : {SIGSEGV, SIGBUS, SIGFPE}) handle(number, on_fault);
    handle(SIGPROF, on_time);
    send("{\"kind\": \"ready\"}");
    char line[600];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        run_job(line);
    }
    _exit(0);
}

// What the runtime's parts share.
#pragma once

enum State : unsigned char { READY, AT_BARRIER, IN_WARP, DONE };

static const size_t SHARED_LIMIT = 227 * 1024;  // of a block, on the H200
static const size_t STATIC_LIMIT = 48 * 1024;   // of declared variables
static const size_t ARENA = 512 * 1024;         // with room for gaps
static const size_t FIXED = 400 * 1024;         // where variables at file scope begin
static const size_t GAP = 64;                   // poisoned bytes between variables
static const size_t FAR = size_t(1) << 30;      // inaccessible bytes before and after a buffer
static const size_t STACK = 256 * 1024;         // of a thread

extern "C" {
wde_fiber *wde_current;
wde_uint3 wde_block_index, wde_block_size, wde_grid_size;
unsigned wde_block_number;
alignas(1024) unsigned char wde_arena[ARENA];
}

// Lanes of one mask that meet in one operation; two sets of values, since the first may begin the next
// operation before the last has read.
struct Meeting {
    unsigned mask = 0, arrived = 0, lanes[2] = {};
    int turn = 0, kind = 0, line = 0;
    unsigned long long values[2][32];
};
struct Warp {
    std::vector<Meeting> meetings;
    unsigned done = 0, syncs = 0;
};
struct Variable {  // in shared memory
    const char *name;
    char *place;
    size_t bytes;
    int line;
};
struct Buffer {  // a kernel's argument
    std::string key, name;  // by case and name; as told to people
    char *place = nullptr;
    size_t bytes = 0;
    bool constant = false;
    bool open = true;                // not write-protected
    std::vector<void *> first_write;  // where the kernel was when it first wrote to a constant one
    std::string writer;
};

static std::vector<wde_fiber> fibers;
static std::vector<int> following;  // the fibre to try after this one; at the end, the first
static std::vector<Warp> warps;
static std::vector<Variable> variables;
static std::vector<Buffer *> buffers;  // never freed: they stay where they are
static wde_fiber outside;                      // the one that isn't a thread of a block
static int threads, alive;
static unsigned barrier_epoch;  // barriers that this block has passed
static size_t dynamic_bytes;
static double limit_s = 10;

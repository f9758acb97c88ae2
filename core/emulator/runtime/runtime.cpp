// Runs the kernels that are linked with it: fibres for threads, one block after another. One process serves
// one candidate: it reads jobs from standard input, a line each, and answers in lines of JSON.
//
// One translation unit, so that the fibre switch can be inlined.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include <algorithm>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "../include/wde/runtime.h"
#include "../include/wde/entry.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define WDE_ASAN 1
#else
#define WDE_ASAN 0
#endif
#define WDE_RAW __attribute__((no_sanitize("address"), no_sanitize("thread"), noinline))

#include "state.h"
#include "report.h"
#include "races.h"
#include "shared.h"
#include "fibers.h"
#include "job.h"

int main() { return serve(); }

// The host's side of trace.cuh, for programs that launch their own kernels (nvcc or clang, the CUDA runtime,
// C++17): memory for the rows, the kernel's last argument, and a file for `warpdeck trace`.
//
//   #include <warpdeck/trace_host.h>                       // brings trace.cuh
//
//   WD_TRACE_OPEN(trace, grid, block);                     // 16 CTAs of that launch, 4096 records a warp
//   kernel<<<grid, block, shared, stream>>>(x, n WD_TRACE_PASS(trace));
//   WD_TRACE_SAVE(trace, "kernel.wdtrace");                // waits for the GPU
//
// Without -DWARPDECK_TRACE these macros are empty, too. WD_TRACE_OPEN takes two more arguments, the records a
// warp has room for (what is beyond is counted) and how many CTAs record: WD_TRACE_OPEN(t, grid, block, 65536, 4).
// One object is for one launch. Both macros read the clocks of all SMs, by which the reader compares SMs: open right
// before the launch, save right after it. On an H200 opening took 1 to 4 ms and saving 19 (4 MB of rows). `trace` is
// a wd_host::Trace; it throws std::runtime_error.

#ifndef WARPDECK_TRACE_HOST_H
#define WARPDECK_TRACE_HOST_H

#include "trace.cuh"

#ifndef WARPDECK_TRACE

#define WD_TRACE_OPEN(...)
#define WD_TRACE_SAVE(...)

#else  // WARPDECK_TRACE

#include <cuda_runtime.h>

#include "clock_steps.cuh"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#define WD_TRACE_OPEN(trace, ...) wd_host::Trace trace(__VA_ARGS__)
#define WD_TRACE_SAVE(trace, path) (trace).save(path, wd_stage_names)

namespace wd_host {

inline void check(cudaError_t error, const char *doing) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(error));
}

constexpr unsigned EDGES = 32;  // steps of globaltimer that each SM reads before the launch, and again after it

static __global__ void read_clocks(wd_steps::Reading *out) {
    wd_steps::read_steps(out, EDGES, 2000);  // every SM's block must start before the first one ends
}

class Trace {
   public:
    Trace(dim3 grid, dim3 block, unsigned capacity = 4096, unsigned ctas = 16) : grid_(grid), block_(block) {
        const unsigned long long total = 1ull * grid.x * grid.y * grid.z;
        const unsigned warps = (block.x * block.y * block.z + 31) / 32;
        if (total == 0 || total >> 32 || warps == 0 || warps > 32 || ctas == 0 || capacity >> 26)
            throw std::runtime_error("trace: a launch or a size that can't be traced");
        descriptor_.capacity = capacity;
        descriptor_.row_bytes = (wd_detail::HEADER_BYTES + wd_detail::RECORD_BYTES * capacity + 15) / 16 * 16;
        descriptor_.cta_count = unsigned(std::min<unsigned long long>(ctas, total));
        unsigned stride = unsigned(total / descriptor_.cta_count);
        stride -= stride % 2 == 0;  // an even one has no inverse
        unsigned inverse = stride;  // right for 3 bits, and for twice as many after each step
        for (int bits = 3; bits < 32; bits *= 2) inverse *= 2 - stride * inverse;
        descriptor_.cta_inverse = inverse;
        descriptor_.warp_mask = warps == 32 ? ~0u : (1u << warps) - 1;
        int device = 0;
        check(cudaGetDevice(&device), "trace: the device");
        cudaDeviceProp about;
        check(cudaGetDeviceProperties(&about, device), "trace: the device");
        name_ = about.name;
        total_ = unsigned(total);
        check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device), "trace: the device");
        check(cudaDeviceGetAttribute(&khz_, cudaDevAttrClockRate, device), "trace: the device");
        check(cudaDeviceGetAttribute(&shared_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "trace: the device");
        rows_ = size_t(descriptor_.cta_count) * warps;
        const size_t bytes = rows_ * descriptor_.row_bytes;
        void *memory = nullptr;
        check(cudaMalloc(&memory, bytes + 2 * readings() * sizeof(wd_steps::Reading)), "trace: memory for the rows");
        descriptor_.rows = reinterpret_cast<unsigned long long>(memory);
        check(cudaMemset(memory, 0, bytes), "trace: memory for the rows");
        calibrate(0);
    }
    ~Trace() { cudaFree(reinterpret_cast<void *>(descriptor_.rows)); }
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // What the kernel takes last.
    operator wd_detail::Descriptor() const { return descriptor_; }

    // Wait for the launch and write it. `stages`: wd_stage_names.
    template <size_t N>
    void save(const std::string &path, const char (&stages)[N]) const {
        check(cudaDeviceSynchronize(), "trace: the launch");
        calibrate(1);
        std::string names(N, '\0');
        check(cudaMemcpyFromSymbol(&names[0], stages, N), "trace: the stages' names");
        std::vector<char> body(rows_ * descriptor_.row_bytes + 2 * readings() * sizeof(wd_steps::Reading));
        const void *memory = reinterpret_cast<const void *>(descriptor_.rows);
        check(cudaMemcpy(body.data(), memory, body.size(), cudaMemcpyDeviceToHost), "trace: the rows");
        write(path, names.c_str(), body);
    }

   private:
    size_t readings() const { return 2 * size_t(EDGES) * sms_; }

    // Before the launch (0) or after it (1).
    void calibrate(unsigned when) const {
        char *memory = reinterpret_cast<char *>(descriptor_.rows) + rows_ * descriptor_.row_bytes;
        check(cudaFuncSetAttribute(read_clocks, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_), "trace: clocks");
        read_clocks<<<sms_, 1, shared_>>>(reinterpret_cast<wd_steps::Reading *>(memory) + when * readings());
        check(cudaDeviceSynchronize(), "trace: clocks");
    }

    static std::string list(dim3 of) {
        return "[" + std::to_string(of.x) + "," + std::to_string(of.y) + "," + std::to_string(of.z) + "]";
    }

    // Format version 2, as in store.py. Stages are C++ identifiers, so that nothing in the JSON needs escapes.
    void write(const std::string &path, std::string names, const std::vector<char> &body) const {
        names.erase(std::remove(names.begin(), names.end(), ' '), names.end());
        for (size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 3) names.replace(at, 1, "\",\"");
        const std::string json = "{\"rows\":" + std::to_string(rows_) +
                                 ",\"row_bytes\":" + std::to_string(descriptor_.row_bytes) +
                                 ",\"capacity\":" + std::to_string(descriptor_.capacity) +
                                 ",\"anchors\":" + std::to_string(2 * readings()) +
                                 ",\"stages\":[\"" + names + "\"],\"meta\":{\"grid\":" + list(grid_) +
                                 ",\"block\":" + list(block_) +
                                 ",\"capacity\":" + std::to_string(descriptor_.capacity) +
                                 ",\"ctas\":{\"traced\":" + std::to_string(descriptor_.cta_count) +
                                 ",\"of\":" + std::to_string(total_) + "},\"device\":{\"name\":\"" + name_ +
                                 "\",\"spec\":\"\",\"sm_clock_max_mhz\":" + std::to_string(khz_ / 1000) + "}}}";
        const unsigned head[3] = {2, crc(crc(0, json.data(), json.size()), body.data(), body.size()),
                                  unsigned(json.size())};
        std::FILE *file = std::fopen(path.c_str(), "wb");
        if (!file) throw std::runtime_error(path + ": can't be written");
        bool fine = std::fwrite("\x89WDTRACE", 1, 8, file) == 8 && std::fwrite(head, 1, 12, file) == 12;
        fine = fine && std::fwrite(json.data(), 1, json.size(), file) == json.size();
        fine = fine && std::fwrite(body.data(), 1, body.size(), file) == body.size();
        fine = std::fclose(file) == 0 && fine;
        if (!fine) throw std::runtime_error(path + ": can't be written");
    }

    static unsigned crc(unsigned before, const char *data, size_t size) {
        unsigned table[256], sum = ~before;
        for (unsigned i = 0; i < 256; ++i) {
            table[i] = i;
            for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0u);
        }
        for (size_t i = 0; i < size; ++i) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(data[i])) & 255];
        return ~sum;
    }

    dim3 grid_, block_;
    wd_detail::Descriptor descriptor_{};
    size_t rows_ = 0;
    int sms_ = 0, shared_ = 0, khz_ = 0;
    unsigned total_ = 0;
    std::string name_;
};

}  // namespace wd_host

#endif  // WARPDECK_TRACE
#endif  // WARPDECK_TRACE_HOST_H

// cuda_pipeline_primitives.h: asynchronous copies to shared memory. A copy's data is read where it is issued;
// the target is poisoned then, and gets the data only at the wait, as late as a GPU may deliver it.
#pragma once

inline void __pipeline_memcpy_async(void *to, const void *from, size_t size, size_t zeros = 0, WDE_LINE) {
    if (size != 4 && size != 8 && size != 16)
        wde_fail("copy", "__pipeline_memcpy_async copies 4, 8 or 16 bytes", wde_line);
    if (zeros > size) wde_fail("copy", "__pipeline_memcpy_async: more zeros than bytes", wde_line);
    if ((uintptr_t(to) | uintptr_t(from)) & (size - 1))
        wde_fail("alignment", "__pipeline_memcpy_async: both addresses must be multiples of the size", wde_line);
    unsigned char data[16] = {};
    memcpy(data, from, size - zeros);  // seen by the sanitizer, with this line
    wde_copy_begin(to, data, int(size), int(zeros), wde_line);
    static const unsigned char poison[16] = {0xad, 0xde, 0xc0, 0x7f, 0xad, 0xde, 0xc0, 0x7f,
                                             0xad, 0xde, 0xc0, 0x7f, 0xad, 0xde, 0xc0, 0x7f};
    memcpy(to, poison, size);
}
inline void __pipeline_commit() { wde_copy_commit(); }
inline void __pipeline_wait_prior(size_t newest) { wde_copy_wait(int(newest)); }

template <class T>
inline size_t __cvta_generic_to_shared(T *p) { return size_t(p); }
template <class T>
inline size_t __cvta_generic_to_global(T *p) { return size_t(p); }
inline unsigned __isShared(const void *p) {
    return p >= (const void *)wde_arena && p < (const void *)(wde_arena + 512 * 1024);
}
inline unsigned __isGlobal(const void *p) { return !__isShared(p); }

// Kernels as the runtime calls them: their parameters' types come from the kernels themselves.
#pragma once

struct wde_parameter {
    size_t size;
    bool pointer;
};
struct wde_entry {
    const char *name;
    void (*call)(void *const *arguments);  // one address of a value for each parameter
    const wde_parameter *parameters;
    int count;
};

template <class F>
struct wde_kernel;
template <class... A>
struct wde_kernel<void (*)(A...)> {
    static inline const wde_parameter parameters[sizeof...(A) + 1] = {
        {sizeof(A), std::is_pointer_v<std::remove_cv_t<A>>}..., {0, false}};
    static constexpr int count = sizeof...(A);

    template <void (*K)(A...), size_t... I>
    static void spread(void *const *arguments, std::index_sequence<I...>) {
        K((*static_cast<std::remove_reference_t<A> *>(arguments[I]))...);
    }
    template <void (*K)(A...)>
    static void call(void *const *arguments) {
        spread<K>(arguments, std::index_sequence_for<A...>());
    }
};

template <auto K>
constexpr wde_entry wde_entry_of(const char *name) {
    using Kernel = wde_kernel<decltype(K)>;
    return wde_entry{name, &Kernel::template call<K>, Kernel::parameters, Kernel::count};
}

extern "C" {
extern const wde_entry wde_entries[];
extern const int wde_entry_count;
}

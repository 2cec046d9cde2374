// Messages: the launcher prints them. On a GPU they are discarded.
#pragma once
#if __METAL_VERSION__ >= 320
namespace mpsref {

#if defined(MPSREF_STRICT) || defined(MPSREF_CUDA)
template <class... A> inline void say(uint, A...) {}
#else
} // namespace mpsref
#include "abi.h"
namespace mpsref {

struct message {
    mpsref_item items[MPSREF_MAX_ITEMS];
    uint32_t count;
    void add(mpsref_item item) {
        if (count < MPSREF_MAX_ITEMS) items[count++] = item;
    }
    template <class T> void add(T x) {
        if constexpr (is_floating<T>)
            add(mpsref_item{.number = (double)float(x), .kind = 'f'});
        else if constexpr (__is_integral(T))
            add(mpsref_item{.integer = (int64_t)x, .kind = 'd'});
        else
            add(mpsref_item{.text = (const char *)x, .kind = 's'});
    }
    template <class T, int N> void add(metal::vec<T, N> x) {
        for (int i = 0; i < N; i++) add(x[i]);
    }
};
template <class F, class... A> inline void say(uint level, F format, A... values) {
    message m;
    m.count = 0;
    (m.add(values), ...);
    mpsref_log(level, (const char *)format, m.items, m.count);
}
#endif

} // namespace mpsref

namespace metal {

struct os_log {
    template <class... A> constexpr os_log(A...) MPSREF_OF_CONSTANT {}
#define MPSREF_LOG(NAME, LEVEL) \
    template <class... A> void NAME(A... values) const MPSREF_OF_CONSTANT { mpsref::say(LEVEL, values...); }
    MPSREF_LOG(log, 0) MPSREF_LOG(log_debug, 1) MPSREF_LOG(log_info, 2) MPSREF_LOG(log_error, 3) MPSREF_LOG(log_fault, 4)
#undef MPSREF_LOG
};
constexpr constant os_log os_log_default{};

} // namespace metal
#endif

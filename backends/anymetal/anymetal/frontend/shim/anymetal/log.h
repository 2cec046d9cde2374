// Messages: the launcher prints them. On a GPU they are discarded.
#pragma once
#if __METAL_VERSION__ >= 320
namespace anymetal {

#if defined(ANYMETAL_STRICT) || defined(ANYMETAL_CUDA)
template <class... A> inline void say(uint, A...) {}
#else
} // namespace anymetal
#include "abi.h"
namespace anymetal {

struct message {
    anymetal_item items[ANYMETAL_MAX_ITEMS];
    uint32_t count;
    void add(anymetal_item item) {
        if (count < ANYMETAL_MAX_ITEMS) items[count++] = item;
    }
    template <class T> void add(T x) {
        if constexpr (is_floating<T>)
            add(anymetal_item{.number = (double)float(x), .kind = 'f'});
        else if constexpr (__is_integral(T))
            add(anymetal_item{.integer = (int64_t)x, .kind = 'd'});
        else
            add(anymetal_item{.text = (const char *)x, .kind = 's'});
    }
    template <class T, int N> void add(metal::vec<T, N> x) {
        for (int i = 0; i < N; i++) add(x[i]);
    }
};
template <class F, class... A> inline void say(uint level, F format, A... values) {
    message m;
    m.count = 0;
    (m.add(values), ...);
    anymetal_log(level, (const char *)format, m.items, m.count);
}
#endif

} // namespace anymetal

namespace metal {

struct os_log {
    template <class... A> constexpr os_log(A...) ANYMETAL_OF_CONSTANT {}
#define ANYMETAL_LOG(NAME, LEVEL) \
    template <class... A> void NAME(A... values) const ANYMETAL_OF_CONSTANT { anymetal::say(LEVEL, values...); }
    ANYMETAL_LOG(log, 0) ANYMETAL_LOG(log_debug, 1) ANYMETAL_LOG(log_info, 2) ANYMETAL_LOG(log_error, 3) ANYMETAL_LOG(log_fault, 4)
#undef ANYMETAL_LOG
};
constexpr constant os_log os_log_default{};

} // namespace metal
#endif

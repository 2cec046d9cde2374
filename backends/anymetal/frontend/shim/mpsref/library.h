// What stands in front of a source, as one header that clang parses once. This is the standard library of
// MSL 2.3, as far as compute kernels over buffers use it.
#pragma once
#include "prelude.h"
#include "types.h"
#include "macros.h"
#include "limits.h"
#include "math.h"
#include "atomic.h"
#include "synchronize.h"

template <class To, class From> inline To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs two types of the same size");
    return __builtin_bit_cast(To, value);
}

namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
using ::as_type;
} // namespace metal

#ifndef MPSREF_STRICT
#include "glue.h"
#endif

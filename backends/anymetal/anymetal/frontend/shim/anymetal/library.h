// The standard library of MSL as far as compute kernels over buffers use it: one header, which clang parses once, in
// the order of the specification.
#pragma once
#include "prelude.h"
#ifdef ANYMETAL_CHECKED // arithmetic of these functions is not that of the kernel
#pragma clang attribute push( \
    __attribute__((no_sanitize("signed-integer-overflow", "shift", "implicit-conversion", "float-cast-overflow"))), \
    apply_to = function)
#endif
#include "types.h"
#include "macros.h"
#include "limits.h"
#include "lanes.h"
#include "integer.h"
#include "relational.h"
#include "math.h"
#include "geometric.h"
#include "matrix.h"
#include "pack.h"
#include "atomic.h"
#include "synchronize.h"
#include "log.h"
#include "simdgroup_matrix.h"
#include "builtins.h"
#ifdef ANYMETAL_IMAGES
#include "texture.h"
#endif
#ifndef ANYMETAL_STRICT
#include "entry.h"
#endif
#ifdef ANYMETAL_CHECKED
#pragma clang attribute pop
#endif

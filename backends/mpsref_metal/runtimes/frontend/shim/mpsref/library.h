// What precedes a source, as one header that clang precompiles: see `parsed_headers` in toolchain.py.
#pragma once
#include "prelude.h"
#include "../metal/metal_stdlib"
#ifndef MPSREF_STRICT
#include "glue.h"
#endif

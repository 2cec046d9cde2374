// What stands in front of a source, as one header that clang parses once: see headers.py.
#pragma once
#include "prelude.h"
#include "../metal/metal_stdlib"
#ifndef MPSREF_STRICT
#include "glue.h"
#endif

// <MetalPerformancePrimitives/MetalPerformancePrimitives.h>: part of a source that includes it, as a file of its own.
#pragma once
#include <metal_tensor>
#include "../../anymetal/matmul.h"

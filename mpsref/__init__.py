"""An executable reference for the CNN training kernels of Apple's Metal Performance Shaders.

>>> import numpy as np, mpsref
>>> pool = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 2), offset=(1, 1))
>>> pool.forward(np.ones((1, 4, 4, 3), np.float32)).shape
(1, 2, 2, 3)
"""

from mpsref import geometry, padding
from mpsref.errors import (
    GraphError,
    NoGradientError,
    NotSynchronizedError,
    OrderError,
    ShapeError,
    UnsupportedError,
)
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.registry import Backend, Operation, backends, register, set_backend, use_backend

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "GraphError",
    "NoGradientError",
    "NotSynchronizedError",
    "Operation",
    "OrderError",
    "PoolingAverage",
    "PoolingL2Norm",
    "PoolingMax",
    "ShapeError",
    "UnsupportedError",
    "__version__",
    "backends",
    "geometry",
    "padding",
    "register",
    "set_backend",
    "use_backend",
]

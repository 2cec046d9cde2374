"""An executable reference for the CNN training kernels of Apple's Metal Performance Shaders.

>>> import numpy as np, mpsref
>>> pool = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 2), offset=(1, 1))
>>> pool.forward(np.ones((1, 4, 4, 3), np.float32)).shape
(1, 2, 2, 3)
"""

from anymetal.fork_safe import lazy
from mpsref.arguments.text import hinting_at_names
from mpsref.kernels import reference as _reference  # noqa: F401  # registers the reference backends

__version__ = "0.1.0"

_get, __dir__, __all__ = lazy(__name__, __file__)
__getattr__ = hinting_at_names(_get, __name__, f"{__name__}.mps")

"""An executable reference for the CNN training kernels of Apple's Metal Performance Shaders.

>>> import numpy as np, mpsref
>>> pool = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 2), offset=(1, 1))
>>> pool.forward(np.ones((1, 4, 4, 3), np.float32)).shape
(1, 2, 2, 3)
"""

from typing import Any

from anymetal.fork_safe import lazy
from mpsref.arguments.text import no_such_name
from mpsref.kernels import reference as _reference  # noqa: F401  # registers the reference backends

__version__ = "0.1.0"

_get, __dir__, __all__ = lazy(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except AttributeError:
        if name in __all__:
            raise
        raise no_such_name(__name__, name, f"{__name__}.mps") from None

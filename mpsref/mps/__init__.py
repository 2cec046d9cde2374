"""The classes of Metal Performance Shaders: kernels, states, images, data sources, optimizers and graphs.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(kernel_width=3, kernel_height=3, stride_in_pixels_x=2, stride_in_pixels_y=2)
>>> y, state = pool.encode(np.ones((1, 8, 8, 4), np.float32), return_state=True)
>>> y.shape, state.source_height
((1, 4, 4, 4), 8)

Names are those of MPS in snake_case. There is no device; ``backend`` selects where a kernel runs. Images are arrays
(N, H, W, C) or :class:`MPSImage` objects, and results have the type of the source. Kernels call the functional forms of
``mpsref`` through the registry.
"""

from anymetal.fork_safe import lazy
from mpsref.arguments.text import hinting_at_names

_get, __dir__, __all__ = lazy(__name__, __file__)
__getattr__ = hinting_at_names(_get, __name__, f"{__name__}.graph")

"""The kernels under Apple's names, for people who know Metal Performance Shaders.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(kernel_width=3, kernel_height=3, stride_in_pixels_x=2, stride_in_pixels_y=2)
>>> y, state = pool.encode(np.ones((1, 8, 8, 4), np.float32), return_state=True)
>>> y.shape, state.source_height
((1, 4, 4, 4), 8)

Names are Apple's in snake_case; there is no device, and ``backend=`` says what to compute on. Images are arrays
(N, H, W, C) or :class:`MPSImage` objects; what goes in comes out. Everything computes through the registry alone, with
the functional forms in ``mpsref``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

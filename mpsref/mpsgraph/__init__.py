"""MPSGraph's operations for training CNNs, by their names: functions of arrays, and a :class:`Graph` of them.

>>> import numpy as np
>>> from mpsref import mpsgraph
>>> source = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
>>> pool = mpsgraph.Pooling2DOpDescriptor(kernel_width=2, kernel_height=2, stride_in_x=2, stride_in_y=2,
...                                       padding_style="TF_SAME", data_layout="NHWC")
>>> mpsgraph.max_pooling_2d(source, pool, backend="reference").ravel().tolist()
[5.0, 7.0, 13.0, 15.0]

Names are Apple's in snake_case, without the words for types: ``maxPooling2DWithSourceTensor:descriptor:name:`` is
``max_pooling_2d(source, descriptor)``. Tensors are arrays of any layout that the operation has; ``backend`` selects
where the kernels of ``mpsref`` compute. All tensors of a call have one type, float32 or float16, which is rounded once,
at the end; the reference takes float64, too.
"""

from anymetal.fork_safe import lazy
from mpsref.arguments.text import hinting_at_names

_get, __dir__, __all__ = lazy(__name__, __file__)
__getattr__ = hinting_at_names(_get, __name__, "mpsref.mps", "MPSGraph")

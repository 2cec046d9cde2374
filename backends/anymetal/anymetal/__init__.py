"""Runtimes for Metal Shading Language (MSL) source, with the interface of ``metalcompute.Device``.

- ``metalcompute`` runs MSL on an Apple GPU.
- ``clang`` compiles MSL for the CPU, with checks for memory errors, races and divergent barriers.
- ``cuda`` compiles MSL for an NVIDIA GPU.
- ``frontend`` is the compiler front end of ``clang`` and ``cuda``.

Example::

    device = Device()
    function = device.kernel(source).function("name")  # raises CompileError
    out = device.buffer(nbytes)                        # zeroed; supports the buffer protocol
    handle = function(count, array, out)               # buffers 0, 1, ...; only a Buffer is used in place
    del handle                                         # waits for the results

:func:`compile` is a shorter way to run kernels on NumPy arrays, with more checks of the arguments.
"""

from .fork_safe import lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy(__name__, __file__)

"""Apple's kernels as a backend: the classes of Metal Performance Shaders, called through PyObjC.

It has never run on a Mac so far. What can be tested without one is tested over a fake of the Objective-C runtime,
:mod:`mpsref_apple.fake`, which refuses every selector, argument and enumeration that Apple's headers do not have.

A function is called as ``(runtime, problem, *inputs, out)``; ``runtime`` is a :class:`mpsref_apple.runtime.Runtime`.
"""

from anymetal.fork_safe import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)

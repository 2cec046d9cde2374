"""The kernels: one file a family, with parameters, formulas in NumPy and error bounds.

A family is imported when one of its names is first used; importing all of them takes longer than NumPy.
"""

from anymetal.fork_safe import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)

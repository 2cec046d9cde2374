"""The conformance suite: cases, data, bounds, guards, properties, mutants, reports.

A backend is tested with three lines in a file that pytest collects::

    from mpsref.conformance import conformance_test
    from my_package import backend
    test_my_backend = conformance_test(backend)

Importing this package imports none of its modules: the pytest plug-in is part of it and must start quickly.
"""

from anymetal.fork_safe import lazy

__getattr__, __dir__, _names = lazy(__name__, __file__)

__all__ = ["CASES", *_names]

CASES = 60
"""Default number of random cases for each operation on each backend; mutants are detected with a margin."""

"""Which modules of the backends are collected for their doctests: not those whose framework is not installed."""

from importlib.util import find_spec

NEEDS = {"mpsref_jax/*": "jax", "mpsref_torch/*": "torch"}

collect_ignore_glob = [files for files, framework in NEEDS.items() if find_spec(framework) is None]

"""Which modules are collected for their doctests: not those whose framework is not installed."""

from importlib.util import find_spec

NEEDS = {"anymetal/torch.py": "torch", "anymetal/mlx.py": "mlx"}

collect_ignore = [file for file, framework in NEEDS.items() if find_spec(framework) is None]

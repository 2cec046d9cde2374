"""JAX itself has no optimizers."""

from __future__ import annotations

from typing import Any

from mpsref import Adam, RMSProp, StochasticGradientDescent
from mpsref.errors import UnsupportedError
from mpsref_jax.run import Function


def step(problem: Any) -> Function:
    raise UnsupportedError("JAX has no optimizers; those of Optax are another package")


IMPLEMENTATIONS = {(kind, "step"): step for kind in (StochasticGradientDescent, RMSProp, Adam)}

"""JAX as a backend: its public functions, compiled by ``jax.jit``, and their gradients by ``jax.vjp``."""

from __future__ import annotations

from typing import Any

from mpsref.frameworks import chains
from mpsref_jax.operations import IMPLEMENTATIONS, jax
from mpsref_jax.programs import steps

__all__ = ["audit", "backend"]

DISTINCT = 4
"""Problems of an operation that are compiled in a check: each takes tenths of a second."""

RULES = (
    "slope at a kink",
    "slope from the result",
    "softsign by a quotient",
    "slope of a loss at a kink",
    "gradient at logits",
    "rounded means",
    "plain means",
    "plain sums",
    "rounded positions",
    "NaN by another formula",  # the CPU compiler takes maxima without a test for NaN
    "NaN is the extremum",
)

backend = jax.backend(
    "jax",
    {**IMPLEMENTATIONS, **jax.keeping(chains.table(jax, lambda: steps(jax)))},
    distinct_problems=DISTINCT,
    rules=RULES,
)


def __getattr__(name: str) -> Any:
    """Import what needs JAX at its first use."""
    if name != "audit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mpsref_jax.auditing import audit

    return audit

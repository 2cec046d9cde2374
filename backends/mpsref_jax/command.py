"""What ``mpsref audit --jax`` runs: a function by its name in a module, with its arguments by their name."""

from __future__ import annotations

from mpsref.conformance.audit import Audit, Options, named
from mpsref_jax import audit, backend

OF_MODELS = "shape", "loss", "device", "channels_last", "compiles", "evaluates", "autocast"
"""Options of audits of PyTorch models."""


def run(options: Options) -> Audit:
    """Audit a function of arrays; the batch is a tuple of its arguments.

    Raises
    ------
    ValueError
        If an option or a name cannot be used, the arguments are missing, or JAX is not installed.
    """
    given = [name for name in OF_MODELS if getattr(options, name) != getattr(Options, name)]
    if given:
        flag = {"shape": "input", "compiles": "compile", "evaluates": "eval"}.get(given[0], given[0].replace("_", "-"))
        raise ValueError(f"--{flag} concerns models of PyTorch; leave it out with --jax")
    function, arguments = options.model, options.batch
    if arguments is None:
        raise ValueError("--jax needs --batch package.module:name, a tuple of the arguments of the function")
    if (reason := backend.unavailable()) is not None:
        raise ValueError(reason)
    called, values = named(function), named(arguments)
    if not callable(called):
        raise ValueError(f"{function} gives {type(called).__name__}; it must be a function of arrays")
    values = values() if callable(values) else values
    every = values if isinstance(values, tuple) else (values,)
    try:
        found: Audit = audit(called, *every, seed=options.seed, as_is=options.as_is)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{function} failed with the arguments {arguments}: {error}") from error
    return found

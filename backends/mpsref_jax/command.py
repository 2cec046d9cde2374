"""What ``mpsref audit --jax`` runs: a function by its name in a module, with its arguments by their name."""

from __future__ import annotations

from mpsref.conformance.audit import Audit, named
from mpsref_jax import audit, backend


def run(
    function: str,
    shape: str | None,
    arguments: str | None,
    loss: str | None,
    device: str,
    *,
    channels_last: bool,
    compiles: bool,
    evaluates: bool,
    seed: int,
    as_is: bool,
    autocast: str | None,
) -> Audit:
    """Audit a function; the arguments are those of ``mpsref audit``.

    Parameters
    ----------
    function, arguments : str
        ``package.module:name``: a function of arrays; a tuple of its arguments, or a function that returns one.
    shape, loss, device, channels_last, compiles, evaluates, autocast
        Of audits of PyTorch models, and none of them may be given.
    seed : int
        Of the audit.
    as_is : bool
        Whether arrays that are 0 stay so.

    Raises
    ------
    ValueError
        If an option or a name cannot be used, the arguments are missing, or JAX is not installed.
    """
    of_models = {"--input": shape, "--loss": loss, "--device": device != "cpu", "--channels-last": channels_last}
    of_models |= {"--compile": compiles, "--eval": evaluates, "--autocast": autocast}
    given = [name for name, value in of_models.items() if value]
    if given:
        raise ValueError(f"{given[0]} concerns models of PyTorch; leave it out with --jax")
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
        found: Audit = audit(called, *every, seed=seed, as_is=as_is)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{function} failed with the arguments {arguments}: {error}") from error
    return found

"""The steps of chains in JAX, see :mod:`mpsref.frameworks.chains`."""

from __future__ import annotations

from mpsref.frameworks.adapter import Function, Tensor
from mpsref.frameworks.chains import APART, BORDERS, WINDOWS, Borders
from mpsref_jax.run import Jax


def steps(jax: Jax) -> dict[str, Function]:
    """Return the functions of tensors (N, H, W, C)."""

    def windows(step: str) -> Function:
        one, largest = WINDOWS[step], step.startswith("max")
        start, combine = (-jax.numpy.inf, jax.lax.max) if largest else (0.0, jax.lax.add)
        words = {} if largest else {"base_dilation": (1, *one.dilation, 1)}
        pads = ((0, 0), *one.pads, (0, 0))

        def reduced(v: Tensor) -> Tensor:
            return jax.lax.reduce_window(v, start, combine, (1, *one.kernel, 1), (1, *one.strides, 1), pads, **words)

        return reduced

    def bordered(pads: Borders, between: int = 0) -> Function:
        rows, columns = pads
        ends = ((0, 0, 0), (*rows, between), (*columns, 0), (0, 0, 0))
        return lambda v: jax.lax.pad(v, jax.numpy.zeros((), v.dtype), ends)

    return {
        "conv3": lambda v, weights: jax.lax.conv_general_dilated(
            v, weights, (1, 1), WINDOWS["conv3"].pads, dimension_numbers=("NHWC", "OHWI", "NHWC")
        ),
        **{step: windows(step) for step in WINDOWS if step != "conv3"},
        "relu": jax.nn.relu,
        "abs": jax.numpy.abs,
        "gate": lambda mask, v: jax.numpy.where(mask, v, 0.0),
        "where": jax.numpy.where,
        "rows": lambda v: v + v.sum(2, keepdims=True),
        "modulate": lambda v, table: (v + jax.nn.relu(v).sum(3, keepdims=True)) * (1 + table[0, 0]) + table[0, 1],
        **{step: bordered(pads) for step, pads in BORDERS.items()},
        "apart": bordered(APART, 1),
        "up2": lambda v: v.repeat(2, 1).repeat(2, 2),
    }

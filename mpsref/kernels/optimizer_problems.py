"""One step of an optimizer without its numbers: which arrays there are, all of one shape and dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mpsref import codecs, operations
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag, integer
from mpsref.errors import ShapeError
from mpsref.kernels.posing import following

if TYPE_CHECKING:
    from mpsref.kernels.optimizers import Adam, Optimizer, RMSProp, StochasticGradientDescent


class Step(operations.Problem):
    """A step on arrays of ``shape``, of any rank: gradient, values, and the moments that the optimizer keeps."""

    method: ClassVar[str] = "step"
    spec: Optimizer
    shape: Shape = field(metadata={"codec": codecs.dims("v")})

    squares: ClassVar[tuple[str, ...]] = ()
    """The moments that are means of squares, never negative."""

    def __post_init__(self) -> None:
        """Check the shape."""
        shape = tuple(self.shape)
        for length in shape:
            if type(length) is not int or length < 0:  # not the shape of an array; names for errors cost time
                shape = tuple(integer(f"shape[{axis}]", n, low=0) for axis, n in enumerate(shape))
                break
        object.__setattr__(self, "shape", shape)

    @property
    def moments(self) -> tuple[str, ...]:
        """What the optimizer keeps from step to step."""
        raise NotImplementedError

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """All arrays."""
        return dict.fromkeys(("gradient", "value", *self.moments), self.shape)

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """The new values and moments."""
        return (self.shape,) * (1 + len(self.moments))

    def input_dtypes(self, image: np.dtype[Any]) -> Mapping[str, np.dtype[Any]]:
        """Parameters are float32 also where images are float16."""
        parameter = np.dtype(np.float64 if image == np.float64 else np.float32)
        return dict.fromkeys(self.input_shapes, parameter)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make squares of what holds squares, and let no penalty cancel the gradient where that has no bound."""
        from mpsref.kernels.optimizers import cancelled, regularized

        gradient, value = (drawn[name].astype(np.float64) for name in ("gradient", "value"))
        flipped = cancelled(regularized(self.spec, gradient, value))
        squares = {name: np.abs(drawn[name]) for name in self.squares if name in drawn}
        return drawn | {"value": np.where(flipped, -drawn["value"], drawn["value"])} | squares

    def where(self, index: tuple[int, ...]) -> str:
        """Nothing but the index."""
        return "a parameter"


class SGDStep(Step):
    """A step of stochastic gradient descent."""

    spec: StochasticGradientDescent
    momentum: bool = field(default=False, metadata={"codec": codecs.flag("moving", "still")})

    def __post_init__(self) -> None:
        """Check shape and flag."""
        super().__post_init__()
        object.__setattr__(self, "momentum", flag("momentum", self.momentum))

    @property
    def moments(self) -> tuple[str, ...]:
        """The momentum, or nothing."""
        return ("m",) if self.momentum else ()


class RMSPropStep(Step):
    """A step of RMSProp."""

    spec: RMSProp
    squares: ClassVar[tuple[str, ...]] = ("s",)

    @property
    def moments(self) -> tuple[str, ...]:
        """The mean of squares."""
        return ("s",)


class AdamStep(Step):
    """A step of Adam: the ``time_step``-th, counted from 1."""

    spec: Adam
    maximum: bool = field(default=False, metadata={"codec": codecs.flag("amsgrad", "adam")})
    time_step: int = field(default=1, metadata={"codec": codecs.integer("t")})
    squares: ClassVar[tuple[str, ...]] = ("u", "umax")

    def __post_init__(self) -> None:
        """Check shape, flag and time step."""
        super().__post_init__()
        object.__setattr__(self, "maximum", flag("maximum", self.maximum))
        object.__setattr__(self, "time_step", integer("time_step", self.time_step, low=1))

    @property
    def moments(self) -> tuple[str, ...]:
        """Momentum and velocity, and the largest velocity."""
        return ("m", "u", "umax") if self.maximum else ("m", "u")

    def at(self, time_step: Any) -> AdamStep:
        """Return the problem of another time step; what is known of this one is known of it."""
        return following(self, time_step=integer("time_step", time_step, low=1))


def as_vectors(required: tuple[str, ...], **given: Any) -> tuple[Shape, list[Array]]:
    """Return the shape of all arrays, and those that are not ``None``.

    Raises ``TypeError`` for another dtype than float32 and float64, for different ones and for a ``required`` one that
    is ``None``, ``ShapeError`` for different shapes.
    """
    given_arrays: dict[str, Array] = {}
    for name, value in given.items():
        if value is None:
            if name in ("gradient", "value", *required):
                raise TypeError(f"{name} is None; it must be an array (moments: of zeros before the first step)")
            continue
        array = arrays.as_array(name, value)
        if array.dtype.type not in (np.float32, np.float64):
            raise TypeError(f"{name} has dtype {array.dtype}; it must be float32 (float64: reference only)")
        given_arrays[name] = array
    like = given_arrays["value"]
    for name, array in given_arrays.items():
        if array.shape != like.shape:
            raise ShapeError(f"{name} has shape {array.shape} and value has shape {like.shape}; they must be equal")
        if array.dtype.type is not like.dtype.type:
            raise TypeError(f"{name} has dtype {array.dtype} and value has dtype {like.dtype}; they must be equal")
    return like.shape, list(given_arrays.values())

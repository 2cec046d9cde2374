"""The functions of MPS for a batch, which is a list of images or of states.

>>> from mpsref import mps
>>> image = mps.MPSTemporaryImage(mps.MPSImageDescriptor("float32", width=2, height=2, feature_channels=1))
>>> mps.MPSImageBatchIncrementReadCount([image, image], 2), image.read_count
(1, 3)

Source: ``MPSImage.h``, ``MPSState.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from mpsref.arguments.parameters import integer
from mpsref.errors import OrderError
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.image import MPSImage
from mpsref.mps.core.properties import hinting
from mpsref.mps.core.state import MPSState

Member = TypeVar("Member", MPSImage, MPSState)
Batch: TypeAlias = Sequence[Member] | Member


@hinting
def MPSImageBatchSynchronize(batch: Batch[MPSImage], command_buffer: MPSCommandBuffer | None = None) -> None:
    """Call :meth:`mpsref.mps.MPSImage.synchronize` for each image of a batch."""
    _synchronize(MPSImage, batch, command_buffer)


@hinting
def MPSStateBatchSynchronize(batch: Batch[MPSState], command_buffer: MPSCommandBuffer | None = None) -> None:
    """Call ``synchronize`` for each state of a batch."""
    _synchronize(MPSState, batch, command_buffer)


@hinting
def MPSImageBatchIncrementReadCount(batch: Batch[MPSImage], amount: int) -> int:
    """Add ``amount`` to the ``read_count`` of the temporary images of a batch.

    Parameters
    ----------
    batch : sequence of MPSImage
        The images; one that occurs several times counts once.
    amount : int
        May be negative; no ``read_count`` may become negative.

    Returns
    -------
    int
        The number of different images.

    Raises
    ------
    ValueError, TypeError
        If an argument is not legal, or the contents of an image are gone; then no image changes.
    """
    return _increment(MPSImage, batch, amount)


@hinting
def MPSStateBatchIncrementReadCount(batch: Batch[MPSState], amount: int) -> int:
    """Add ``amount`` to the ``read_count`` of temporary states, as :func:`MPSImageBatchIncrementReadCount`."""
    return _increment(MPSState, batch, amount)


def _members(kind: type[Member], batch: Batch[Member]) -> list[Member]:
    """Return the different objects of a batch."""
    found = [batch] if isinstance(batch, kind) else batch
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, kind) for one in found):
        raise TypeError(
            f"batch is of type {type(batch).__name__}; it must be a list of {kind.__name__}: put one object into a list"
        )
    return list({id(one): one for one in found}.values())


def _synchronize(kind: type[Member], batch: Batch[Member], command_buffer: MPSCommandBuffer | None) -> None:
    for one in _members(kind, batch):
        one.synchronize(command_buffer)


def _increment(kind: type[Member], batch: Batch[Member], amount: int) -> int:
    members, change = _members(kind, batch), integer("amount", amount)
    counted = [one for one in members if one.is_temporary]
    for one in counted:
        if one.read_count == 0 or one.read_count + change < 0:
            raise OrderError(
                f"amount is {change}, and a temporary {one.kind} has a read_count of {one.read_count}; it must be > 0 "
                "before and >= 0 after: change the count before the last read"
            )
    for one in counted:
        one.read_count += change
    return len(members)

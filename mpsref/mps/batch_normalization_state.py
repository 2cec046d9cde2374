"""The state of batch normalization: the statistics of a batch, and the sums that its gradient needs.

One state serves a whole batch and all of its parts. Kernels add to it in the order in which they are encoded; the host
reads it after a synchronization. It has no copy of gamma, beta and epsilon: these are read through its kernel, so it
stays right when a kernel is reloaded.

Statistics that were used, by a normalization or a gradient kernel, belong to a finished batch: the next statistics
kernel starts another one. The same holds for the sums after a gradient kernel [choice: Apple says that ``reset``
exists, and not when it must be called].

Source: ``MPSCNNBatchNormalizationState`` in ``MPSCNNBatchNormalization.h`` [doc].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError
from mpsref.kernels.batch_normalization import BatchGradientSums, BatchStatistics
from mpsref.mps.core.command_buffer import MPSCommandBuffer, SynchronizedState, check_encodable
from mpsref.mps.core.state import ForwardRecord, MPSNNGradientState

if TYPE_CHECKING:
    from mpsref.mps.batch_normalization import MPSCNNBatchNormalization

__all__ = ["BatchNormalizationBuffers", "MPSCNNBatchNormalizationState", "closed"]


class BatchNormalizationBuffers(NamedTuple):
    """What a kernel that is encoded now reads of a state: read-only vectors (C,), ``None`` where there is none."""

    gamma: Array
    beta: Array
    gradient_for_gamma: Array | None
    gradient_for_beta: Array | None
    mean: Array | None
    variance: Array | None


class MPSCNNBatchNormalizationState(MPSNNGradientState, SynchronizedState):
    """Statistics and gradient sums of one batch. Made by ``MPSCNNBatchNormalization.result_state_for_source_image``.

    What kernels write is read after :meth:`synchronize`; before the first of them, and after :meth:`reset`, there is
    nothing to wait for, and everything can be read [choice].
    """

    __eq__ = object.__eq__  # two states of one kernel hold different sums
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, kernel: MPSCNNBatchNormalization, record: ForwardRecord) -> None:
        """Make an empty state of ``kernel``."""
        super().__init__(record)
        self._kernel = kernel
        self.reset()

    @property
    def batch_normalization(self) -> MPSCNNBatchNormalization:
        """The kernel that made the state."""
        return self._kernel

    def reset(self) -> None:
        """Forget everything that kernels have added, as if the state were new."""
        self._statistics: BatchStatistics | None = None
        self._variance: Array | None = None  # of these statistics, once it was asked for
        self._sums: BatchGradientSums | None = None
        self._statistics_used = self._sums_used = False
        self._readable_version = self._version

    # --- what the host reads ---

    @property
    def gamma(self) -> Array:
        """The scale that the kernel has now, (C,); ones where its data source has none."""
        return self._kernel.scale[0]

    @property
    def beta(self) -> Array:
        """The shift that the kernel has now, (C,); zeros where its data source has none."""
        return self._kernel.scale[1]

    @property
    def mean(self) -> Array | None:
        """The mean of the batch so far, or before the first pixel that of the kernel, which may be ``None``.

        Raises ``NotSynchronizedError`` until what kernels wrote is synchronized; so do all that follow.
        """
        self.check_readable("mean")
        return self._device().mean

    @property
    def variance(self) -> Array | None:
        """The biased variance of the batch so far, or before the first pixel that of the kernel."""
        self.check_readable("variance")
        return self._device().variance

    @property
    def gradient_for_gamma(self) -> Array | None:
        """dL/dgamma, the sum over the pixels so far; ``None`` before the first of them."""
        self.check_readable("gradient_for_gamma")
        return self._device().gradient_for_gamma

    @property
    def gradient_for_beta(self) -> Array | None:
        """dL/dbeta, the sum over the pixels so far; ``None`` before the first of them."""
        self.check_readable("gradient_for_beta")
        return self._device().gradient_for_beta

    @property
    def gradient_for_mean(self) -> Array | None:
        """dL/dmean, with mean and variance taken as independent inputs; no accessor of Apple's [math]."""
        self.check_readable("gradient_for_mean")
        return None if self._sums is None else closed(-self.gamma * self._root() * self._sums.dbeta)

    @property
    def gradient_for_variance(self) -> Array | None:
        """dL/dvariance, with mean and variance taken as independent inputs; no accessor of Apple's [math]."""
        self.check_readable("gradient_for_variance")
        return None if self._sums is None else closed(-0.5 * self.gamma * self._root() ** 2 * self._sums.dgamma)

    # --- what kernels read and write ---

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> BatchNormalizationBuffers:
        """Return what a kernel that is encoded now reads; no synchronization is needed for that.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        return self._device()

    def _device(self) -> BatchNormalizationBuffers:
        mean, variance = self._kernel.statistics
        if self._statistics is not None:
            if self._variance is None:
                self._variance = closed(np.asarray(self._statistics.variance))
            mean, variance = self._statistics.mean, self._variance
        dgamma, dbeta = (None, None) if self._sums is None else (self._sums.dgamma, self._sums.dbeta)
        return BatchNormalizationBuffers(*self._kernel.scale, dgamma, dbeta, mean, variance)

    @property
    def count(self) -> int:
        """How many pixels of the batch the statistics are of; 0 where those of the kernel are taken."""
        return 0 if self._statistics is None else self._statistics.n

    def batch_so_far(self) -> BatchStatistics | None:
        """Return the statistics that the next statistics kernel adds to; ``None`` where it starts a batch."""
        return None if self._statistics_used else self._statistics

    def sums_so_far(self) -> BatchGradientSums | None:
        """Return the sums that the next statistics gradient kernel adds to; ``None`` where it starts a batch."""
        return None if self._sums_used else self._sums

    def complete_sums(self) -> BatchGradientSums | None:
        """Return the sums for a gradient kernel; ``None`` with frozen statistics.

        Raises ``OrderError`` unless they are over as many pixels as the statistics: a part was left out or came twice.
        """
        if not self.count:
            return None
        n = 0 if self._sums is None else self._sums.n
        if n != self.count:
            raise OrderError(
                f"batch_normalization_state has gradient sums over {n} pixels and statistics of {self.count}; encode "
                "MPSCNNBatchNormalizationStatisticsGradient once for every part of the batch before the gradient"
            )
        return self._sums

    def write_statistics(self, statistics: BatchStatistics) -> None:
        """Take the statistics of a batch so far; a batch that was used ends with it, and its sums go too."""
        if self._statistics_used:
            self.reset()
        self._statistics = statistics._replace(mean=closed(statistics.mean), m2=closed(statistics.m2))
        self._variance = None
        self.written()

    def write_sums(self, sums: BatchGradientSums) -> None:
        """Take the gradient sums of a batch so far; its statistics are complete."""
        self._sums = sums._replace(dbeta=closed(sums.dbeta), dgamma=closed(sums.dgamma))
        self._sums_used, self._statistics_used = False, True
        self.written()

    def use_statistics(self) -> None:
        """Note that the statistics were used: a batch is complete."""
        self._statistics_used = True

    def use_sums(self) -> None:
        """Note that the sums were used: a batch is complete."""
        self._sums_used = True

    def statistics_in_force(self) -> tuple[Array, Array]:
        """Return mean and variance of the batch, or those of the kernel; ``OrderError`` where it has none either."""
        found = self._device()
        if found.mean is None or found.variance is None:
            raise OrderError(
                "batch_normalization_state has no statistics, and the data source of its kernel none either; encode "
                "MPSCNNBatchNormalizationStatistics first, or give the data source mean() and variance()"
            )
        return found.mean, found.variance

    def _root(self) -> Array:
        _, variance = self.statistics_in_force()
        with np.errstate(divide="ignore"):
            return np.asarray(1 / np.sqrt(variance + variance.dtype.type(self._kernel.epsilon)))

    def __repr__(self) -> str:
        n = 0 if self._sums is None else self._sums.n
        return f"<{type(self).__name__}: {len(self.gamma)} channels, statistics of {self.count} pixels, sums over {n}>"


def closed(array: Array) -> Array:
    """Close an array to changes, and return it."""
    array.setflags(write=False)
    return array

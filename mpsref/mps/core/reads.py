"""Read counts of temporary images and states, whose memory a GPU reuses after the last read.

>>> from mpsref import mps
>>> image = mps.MPSTemporaryImage(mps.MPSImageDescriptor("float32", width=2, height=2, feature_channels=1))
>>> image.is_temporary, image.read_count
(True, 1)
>>> _ = mps.MPSCNNSoftMax().encode(image)
>>> mps.MPSCNNSoftMax().encode(image)
Traceback (most recent call last):
mpsref.errors.OrderError: source_image is a temporary image whose read_count is 0, so its contents are gone; set \
read_count to the number of reads before the first of them

Source: ``MPSImage.h``, ``MPSState.h`` [doc].
"""

from __future__ import annotations

from mpsref.arguments.parameters import integer
from mpsref.errors import OrderError


class Counted:
    """An object that may be temporary; each kernel that reads it decrements ``read_count`` [doc]."""

    kind = "object"
    """What it is, in messages."""
    _reads: int | None = None

    @property
    def is_temporary(self) -> bool:
        """Whether the contents are gone when ``read_count`` is 0."""
        return self._reads is not None

    @property
    def read_count(self) -> int:
        """The number of reads that are left, 1 by default; 0 unless it is temporary."""
        return self._reads or 0

    @read_count.setter
    def read_count(self, value: int) -> None:
        number = integer("read_count", value, low=0)
        if self._reads is None and number:
            raise ValueError(
                f"read_count is {number}; this {self.kind} is not temporary, so its read_count is 0: leave it at that"
            )
        if self._reads == 0 and number:
            raise OrderError(
                f"read_count is {number}; the contents of this temporary {self.kind} are gone: make another"
            )
        if self._reads is not None:
            self._reads = number

    def _count_read(self) -> None:
        if self._reads:
            self._reads -= 1

    def _read_by_kernel(self) -> None:
        """Count a read; ``OrderError`` if there is none left."""
        check_reads(f"the {type(self).__name__}", self)
        self._count_read()


def check_reads(name: str, value: Counted) -> None:
    """Raise ``OrderError`` for a temporary object that was read as often as it can be."""
    if value._reads == 0:
        raise OrderError(
            f"{name} is a temporary {value.kind} whose read_count is 0, so its contents are gone; set read_count to "
            "the number of reads before the first of them"
        )

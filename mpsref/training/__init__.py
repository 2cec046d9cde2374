"""A small CNN that learns handwritten digits through the graph layer, on any backend.

:mod:`~mpsref.training.digits` has the images, :mod:`~mpsref.training.network` the nodes, and
:mod:`~mpsref.training.trainer` the loop. ``mpsref train`` runs it.
"""

from mpsref.training.digits import Digits, load
from mpsref.training.network import Network
from mpsref.training.trainer import Epoch, Settings, Trainer

__all__ = ["Digits", "Epoch", "Network", "Settings", "Trainer", "load"]

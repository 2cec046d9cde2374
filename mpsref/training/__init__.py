"""Training of a small CNN on handwritten digits through the graph layer, on any backend.

``mpsref train`` runs it. :mod:`~mpsref.training.digits` loads the images, :mod:`~mpsref.training.network` builds the
graphs, and :mod:`~mpsref.training.trainer` has the training loop.
"""

from mpsref.training.digits import Digits, load
from mpsref.training.network import Network
from mpsref.training.trainer import Epoch, Settings, Trainer

__all__ = ["Digits", "Epoch", "Network", "Settings", "Trainer", "load"]

"""Names of before, until every family has moved."""

from mpsref.conformance.torch_equivalents import Call, nchw
from mpsref.conformance.torch_equivalents import JointEquivalent as Together
from mpsref.conformance.torch_equivalents import TorchEquivalent as Spelling

__all__ = ["Call", "Spelling", "Together", "nchw"]

"""Names of before, until every family has moved."""

from mpsref.conformance.properties import Counterpart, adjoint, one_image_at_a_time

__all__ = ["Counterpart", "adjoint", "one_image_at_a_time"]

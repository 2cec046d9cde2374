"""How a run finds its inputs: by position, or by node, handle or label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mpsref.errors import DuplicateHandleError, MissingSourceError, UnknownSourceError
from mpsref.mps.graph.places import MPSNNImageNode, MPSNNStateNode

__all__ = ["sources"]

Place = TypeVar("Place", MPSNNImageNode, MPSNNStateNode)


def sources(name: str, places: Sequence[Place], given: Any) -> dict[Place, Any]:
    """Return what was given for each of ``places``: a sequence in their order, or a mapping.

    A mapping is keyed by node, by handle or by label. Raises ``MissingSourceError`` and ``UnknownSourceError`` for too
    few and too many, ``DuplicateHandleError`` for a key that stands for two.
    """
    if given is None:
        given = ()
    if isinstance(given, (list, tuple)) and len(given) == len(places):
        return dict(zip(places, given, strict=True))
    legal = ", ".join(repr(place.name) for place in places) or "none"
    if isinstance(given, Mapping):
        found = {_named(name, places, key, legal): value for key, value in given.items()}
        missing = [place.name for place in places if place not in found]
        if missing:
            raise MissingSourceError(f"{name} lacks {', '.join(map(repr, missing))}; the graph reads {legal}")
        if len(found) < len(given):
            raise UnknownSourceError(f"{name} names an input twice, by different keys; the graph reads {legal}")
        return {place: found[place] for place in places}
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"{name} is of type {type(given).__name__}; it must be a list in the order {legal}, or a mapping from "
            "nodes, handles or labels"
        )
    if len(given) < len(places):
        missing = [place.name for place in places[len(given) :]]
        raise MissingSourceError(f"{name} has {len(given)} items and lacks {', '.join(map(repr, missing))}")
    raise UnknownSourceError(f"{name} has {len(given)} items; the graph reads {len(places)}: {legal}")


def _named(name: str, places: Sequence[Place], key: Any, legal: str) -> Place:
    matches: list[Place] = [place for place in places if place is key]
    if not matches:
        matches = [place for place in places if key == place.handle or key == place.name]
    if not matches:
        raise UnknownSourceError(f"{name} has the key {key!r}, which is no input of the graph; it reads {legal}")
    if len(matches) > 1:
        raise DuplicateHandleError(
            f"{name} has the key {key!r}, which {len(matches)} inputs have; use the image nodes themselves as keys"
        )
    return matches[0]

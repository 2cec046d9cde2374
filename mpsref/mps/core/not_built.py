"""Base class of Apple's classes that mpsref does not build: constructors raise an error [design objects-not-built]."""

from __future__ import annotations

from typing import ClassVar, Never

from mpsref.errors import UnsupportedError


class NotBuilt:
    """A class without an implementation."""

    why: ClassVar[str] = ""
    """The reason, if it is not the obvious one."""
    instead: ClassVar[str]
    """The next step."""

    def __new__(cls, *args: object, **kwargs: object) -> Never:
        """Raise ``UnsupportedError`` with the reason and the next step."""
        reason = f": {cls.why}" if cls.why else ""
        raise UnsupportedError(f"{cls.__name__} is not built{reason}; {cls.instead}")

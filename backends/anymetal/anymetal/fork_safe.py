"""What happens at the first use of something: imports, compilations and computed properties.

A fork does not interrupt them. A child has only the thread that forked: it would wait forever for a lock that another
thread held, or for a module that another thread was importing.
"""

from __future__ import annotations

import functools
import logging  # noqa: F401 - its own hooks must not be registered while a fork waits for an import
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import lazy_loader  # type: ignore[import-untyped]

Value = TypeVar("Value")


class Lock(Protocol):
    """What can be held while the process forks."""

    def acquire(self) -> object:
        """Wait for the lock, and hold it."""

    def release(self) -> None:
        """Let others have the lock."""


class Importing:
    """Entered by threads that import modules, also by several at once; a fork waits until no other thread is inside.

    It is not a lock: threads that import wait for each other's modules, and would wait for each other forever.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        """How often each thread has entered."""

    def __enter__(self) -> None:
        with self._changed:
            self._inside[threading.get_ident()] += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._inside[threading.get_ident()] -= 1
            self._inside += Counter()  # without threads that have left
            self._changed.notify_all()

    def acquire(self) -> None:
        """Wait until no other thread is inside, and let none in until :meth:`release`."""
        self._changed.acquire()
        self._changed.wait_for(lambda: self._inside.keys() <= {threading.get_ident()})

    def release(self) -> None:
        """Let threads in."""
        self._changed.release()


importing = Importing()

_locks: list[Lock] = [importing]
_held: list[Lock] = []
"""The locks of the fork in progress. A module that it waits for may add locks, which it then acquires too."""


def hold_while_forking(*locks: Lock) -> None:
    """Hold locks, in the order in which threads acquire them, while the process forks.

    A thread that holds one of them must not import modules.
    """
    _locks.extend(locks)


def _before_fork() -> None:
    for lock in _locks:
        lock.acquire()
        _held.append(lock)


def _after_fork() -> None:
    while _held:  # it is empty if this module was imported during the fork
        _held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class cached_property(functools.cached_property[Value]):
    """Without the lock that Python 3.11 holds while it computes a value."""

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value of an object, which is then in its ``__dict__``."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def lazy(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub says where its names are."""
    found, directory, names = lazy_loader.attach_stub(package, file)

    def get(name: str) -> Any:
        with importing:
            try:
                return found(name)
            except AttributeError as error:
                error.name, error.obj = name, sys.modules[package]  # Python adds "Did you mean"
                raise

    return get, directory, names

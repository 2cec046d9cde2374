"""The entry of the catalogue: a published defect, and a backend that has it."""

from __future__ import annotations

from dataclasses import dataclass

from mpsref import registry
from mpsref.registry import Backend, Implementation, Operation


def link_of(issue: str) -> str:
    """Return the address of an issue; empty for a name."""
    repository, number, digits = issue.partition("#")
    return f"https://github.com/{repository}/issues/{digits}" if number else ""


@dataclass(frozen=True)
class Bug:
    """A published wrong result of a framework, and an implementation of its mechanism.

    Parameters
    ----------
    issue : str
        The issue on GitHub, ``owner/repository#number``; or a name, for a defect without an issue.
    operation : Operation
        The operation of mpsref that computes the same.
    mechanism : str
        The mistake, in a sentence.
    versions : str
        The versions or the backend of the framework in which it was seen.
    run : Implementation
        The reference with this mistake.
    layouts, rules : tuple of str, optional
        Layouts in which the framework takes its inputs, and its documented differences, without the mistake.
    """

    issue: str
    operation: Operation
    mechanism: str
    versions: str
    run: Implementation
    layouts: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def link(self) -> str:
        """The address of the issue; empty for a defect without one."""
        return link_of(self.issue)

    @property
    def backend(self) -> Backend:
        """A backend with this mistake in its operation, and no other operation."""
        return Backend(
            f"bug: {self.issue}",
            {self.operation: self.run},
            dtypes=registry.get_backend("cpu").dtypes,
            layouts=self.layouts,
            rules=self.rules,
        )

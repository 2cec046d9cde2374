"""Sphinx: ``nox -s docs``. Every code cell of every page is executed. Most settings are those of anymetal's pages."""

import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

import mpsref

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from entries import expanded  # noqa: E402

common = runpy.run_path(str(Path(__file__).parents[1] / "backends" / "anymetal" / "docs" / "conf.py"))
globals().update({name: value for name, value in common.items() if not name.startswith("_")})
connect_common = common["setup"]
html_css_files = [*common["html_css_files"], "pictures.css"]
html_static_path = [*common["html_static_path"], "_static"]
del common  # configuration values are pickled

project = "mpsref"
release = mpsref.__version__

autodoc_default_options = {
    "exclude-members": "forward_class, gradient_class, kernel_class, spec_class, kind, custom_policy"
}

html_title = f"mpsref {release}"


def setup(app: Sphinx) -> None:
    """Connect the functions below."""
    connect_common(app)
    app.connect("source-read", _source)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-bases", _bases)


def _source(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill in what a page takes from the code."""
    source[0] = expanded(source[0])


def _signature(app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: Any) -> Any:
    """Show the signature of ``__init__`` where a base class has a ``__new__`` with any arguments."""
    if what == "class" and (signature or "").startswith("(*args"):
        _, *parameters = inspect.signature(value.__init__).parameters.values()
        return stringify_signature(inspect.Signature(parameters), show_annotation=False), None
    return None


def _bases(app: Sphinx, name: str, value: type, options: Any, bases: list[type]) -> None:
    """Show the nearest MPS class instead of private base classes."""
    if name.startswith("mpsref.mps."):
        bases[:] = [base for base in value.__mro__[1:] if base.__name__.startswith("MPS")][:1] or bases

"""Sphinx: ``nox -s docs``. Every code cell of every page is executed."""

import inspect
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.inspect import stringify_signature

import mpsref

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from entries import expanded  # noqa: E402

project = "mpsref"
author = "the mpsref authors"
copyright = "2026, the mpsref authors"  # as in LICENSE; the footer
release = mpsref.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

nb_execution_mode = "cache"  # pages that have not changed are not executed again
nb_execution_cache_path = str(Path(__file__).with_name("_build") / ".jupyter_cache")
get_cache(nb_execution_cache_path).list_cache_records()  # creates the database, which parallel processes cannot do
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_render_markdown_format = "myst"  # CommonMark, the default, has no tables

autodoc_default_options = {
    "exclude-members": "forward_class, gradient_class, kernel_class, spec_class, kind, custom_policy"
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the sections of docstrings have them, as in SciPy
napoleon_google_docstring = False
napoleon_use_param = False  # types of parameters are text, not references
napoleon_use_rtype = False

linkcheck_ignore = [r"http://127\.0\.0\.1"]
linkcheck_timeout = 20

html_theme = "furo"
html_title = f"mpsref {release}"
html_css_files = ["pictures.css"]
html_static_path = ["_static"]


def setup(app: Sphinx) -> None:
    """Connect the functions below."""
    app.connect("source-read", _source)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-bases", _bases)
    app.connect("doctree-resolved", _tables)


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


def _tables(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Warn of a table that is shown as its text."""
    for text in (paragraph.astext() for paragraph in tree.findall(nodes.paragraph)):
        if text.startswith("| "):
            logging.getLogger(__name__).warning("a table is shown as text: %s ...", text[:60], location=page)

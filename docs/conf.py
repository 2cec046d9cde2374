"""Sphinx: ``nox -s docs``. Every code cell of every page is executed."""

import inspect
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

import mpsref

project = "mpsref"
author = "the mpsref contributors"
release = mpsref.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_google_docstring = False

html_theme = "furo"
html_title = f"mpsref {release}"
html_css_files = ["pictures.css"]
html_static_path = ["_static"]


def setup(app: Sphinx) -> None:
    """Show the signature of ``__init__`` where a base class has a ``__new__`` that takes anything."""
    app.connect("autodoc-process-signature", _signature)


def _signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> Any:
    if what == "class" and (signature or "").startswith("(*args"):
        found = inspect.signature(value).replace(return_annotation=inspect.Signature.empty)
        return stringify_signature(found, unqualified_typehints=True), None
    return None

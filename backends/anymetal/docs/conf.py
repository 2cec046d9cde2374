"""Sphinx: ``nox -s docs``. Every code cell of every page is executed. The pages of mpsref have these settings, too."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_cache import get_cache
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

import anymetal

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the page of the reference on published kernels

project = "anymetal"
author = "the mpsref authors"
copyright = "2026, the mpsref authors"  # as in LICENSE; the footer
release = anymetal.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

nb_execution_mode = "cache"  # pages that have not changed are not executed again
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_render_markdown_format = "myst"  # CommonMark, the default, has no tables

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the sections of docstrings have them, as in SciPy
napoleon_google_docstring = False
napoleon_use_param = False  # types of parameters are text, not references
napoleon_use_rtype = False

linkcheck_ignore = [r"http://127\.0\.0\.1"]
linkcheck_timeout = 20

copybutton_selector = "div:not(.output) > div.highlight > pre"

html_theme = "furo"
html_title = f"anymetal {release}"
html_css_files = ["tables.css"]
html_js_files = ["search.js"]
html_static_path = [str(HERE / "_static")]


def setup(app: Sphinx) -> None:
    """Connect the functions below."""
    app.connect("config-inited", _cache)
    app.connect("doctree-read", _other_pages)
    app.connect("doctree-read", _files)
    app.connect("doctree-resolved", _tables)


def _cache(app: Sphinx, config: Any) -> None:
    """Create the database of executed pages, which parallel processes cannot do."""
    config.nb_execution_cache_path = str(Path(app.confdir) / "_build" / ".jupyter_cache")
    get_cache(config.nb_execution_cache_path).list_cache_records()


def _other_pages(app: Sphinx, tree: nodes.document) -> None:
    """Let a link to a file of the other documentation point to its page: ``anymetal`` is a folder of that of mpsref."""
    here, outer = Path(app.srcdir).resolve(), HERE.parents[2] / "docs"
    other, place = (outer, "..") if here == HERE else (HERE, "anymetal")
    up = "../" * app.env.docname.count("/")
    for node in list(tree.findall(addnodes.pending_xref)):
        page = (here / node["reftarget"]).resolve()
        if node["refdomain"] == "doc" and page.is_relative_to(other) and page.with_suffix(".md").is_file():
            anchor = f"#{node['reftargetid']}" if node.get("reftargetid") else ""
            address = f"{up}{place}/{page.relative_to(other).as_posix()}.html{anchor}"
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=False))


def _files(app: Sphinx, tree: nodes.document) -> None:
    """Show the name of a file that a cell writes above its text, so that the text alone is copied."""
    for cell in list(tree.findall(nodes.literal_block)):
        magic, _, text = cell.astext().partition("\n")
        if magic.startswith("%%writefile "):
            name = magic.split()[1]
            shown = nodes.literal_block(text, text, language="python" if name.endswith(".py") else "cpp")
            cell.replace_self(
                nodes.container(
                    "",
                    nodes.caption("", name),
                    shown,
                    ids=[nodes.make_id(f"file {name}")],
                    literal_block=True,
                    classes=["literal-block-wrapper"],
                )
            )


def _tables(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Warn of a table that is shown as its text."""
    for text in (paragraph.astext() for paragraph in tree.findall(nodes.paragraph)):
        if text.startswith("| "):
            logging.getLogger(__name__).warning("a table is shown as text: %s ...", text[:60], location=page)

"""Sphinx: ``sphinx-build -W -b html docs docs/_build/html``. Every code cell of every page is executed."""

import mpsref

project = "mpsref"
author = "the mpsref contributors"
release = mpsref.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"mpsref {release}"
html_css_files = ["pictures.css"]
html_static_path = ["_static"]

"""Sphinx configuration of mixad's documentation."""

import os

import mixad

project = "mixad"
author = "mixad developers"
copyright = "2026, mixad developers"
release = version = mixad.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "**/jupyter_execute"]

html_theme = "pydata_sphinx_theme"
html_title = "mixad"
html_show_sourcelink = False
templates_path = ["_templates"]
html_sidebars = {"**": ["pages.html"]}  # all pages, on every page
html_static_path = ["_static"]
html_css_files = ["lines.css"]
html_theme_options = {"navbar_center": []}  # they are too many for a row

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # for a cell, on a busy machine
nb_render_markdown_format = "myst"  # the default has no tables

autodoc_typehints = "none"
numpydoc_show_class_members = False

# Names of Python and NumPy are links where a build may fetch the lists of them; it need not.
if os.environ.get("MIXAD_DOCS_ONLINE") == "1":
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "python": ("https://docs.python.org/3", None),
    }

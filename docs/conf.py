"""Sphinx configuration of mixad's documentation."""

import mixad

project = "mixad"
author = "mixad developers"
copyright = "2026, mixad developers"
release = version = mixad.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "**/jupyter_execute"]

html_theme = "pydata_sphinx_theme"
html_title = "mixad"
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_render_markdown_format = "myst"  # the default has no tables

autodoc_typehints = "none"
numpydoc_show_class_members = False

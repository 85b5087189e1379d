"""Sphinx settings of the pages, for `make docs` and for rosdoc2, which adds its own theme.

`make docs` builds from the root of the repository, so that links between README.md, docs/ and models/ are
checked as well.
"""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "crossspec_ros"
extensions = ["myst_parser"]
exclude_patterns = [".*", "build", "install", "interfaces", "lab", "log", "test"]
# Anchors of headings, as on GitHub.
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    """Show Mermaid diagrams as text; GitHub draws them."""
    app.add_lexer("mermaid", TextLexer)

"""Sphinx's configuration: MyST reads the pages, Furo shows them (decision 0205).

The repository's root is the source folder, so that a relative link means the same in the site and
where the files are read as they are. Files that are not pages, such as source files, are copied
into the site where a page links to them.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.transforms import Transform
from sphinx.application import Sphinx

project = "meshnode"
author = "the meshnode developers"
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "decisions/*.md",
    "bench/README.md",
    "conformance/*.md",
    "conformance/judging/stranger/*.md",
    "conformance/results/README.md",
    "tools/*/README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "RELEASING.md",
]
source_suffix = {".md": "markdown"}
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 6
nitpicky = True
html_theme = "furo"
html_title = "meshnode"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
copybutton_prompt_text = "$ "

_ANCHOR = re.compile(r'<a id="([^"]+)">')


class RawAnchors(Transform):  # type: ignore[misc, unused-ignore]  # untyped where docutils is absent
    """Make ``<a id="section-4.2"></a>`` a target of links, as it is in a browser."""

    default_priority = 870
    """Before MyST resolves links within a page, which it does at 879."""

    def apply(self) -> None:
        """Add the anchors to what MyST knows of headings."""
        env = self.document.settings.env
        slugs = env.metadata[env.docname].setdefault("myst_slugs", {})
        for node in self.document.findall(nodes.raw):
            for name in _ANCHOR.findall(node.astext()):
                slugs[name] = (node.line, name, name)
        self.document.myst_slugs = slugs


def _outside_the_tree(app: Sphinx, name: str, content: list[str]) -> None:
    """Decisions are listed by topic on their own index, not in the navigation of every page."""
    if re.match(r"decisions/\d", name):
        content[0] = "---\norphan: true\n---\n\n" + content[0]


def setup(app: Sphinx) -> None:
    """Register what changes pages as they are read."""
    app.add_transform(RawAnchors)
    app.connect("source-read", _outside_the_tree)

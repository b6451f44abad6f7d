# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration; build.py runs it."""

from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

ROOT = Path(__file__).parents[2]

project = "torch_lod"
extensions = ["myst_parser"]
root_doc = "index"
highlight_language = "text"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # GitHub's anchors, which the pages link to
# Tables of measurements are headed as their programs print them.
suppress_warnings = ["myst.header"]

html_theme = "pydata_sphinx_theme"
html_title = "torch_lod"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 1,
    "navigation_depth": 3,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
}


def source_pages(app):
    """A page of every file that sources.txt names, with an anchor for every line."""
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, cssclass="highlight source")
    for path in (Path(app.srcdir) / "sources.txt").read_text().splitlines():
        code = (ROOT / path).read_text(encoding="utf-8")
        body = highlight(code, get_lexer_for_filename(path), formatter)
        yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"


def setup(app):
    app.connect("html-collect-pages", source_pages)

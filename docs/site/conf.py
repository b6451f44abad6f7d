# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration; build.py runs it."""

import sys
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))
from pages import project as of_project  # noqa: E402
from pages import repository  # noqa: E402

project = "torch_lod"
version = release = of_project("version")
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
myst_enable_extensions = ["colon_fence"]
python_maximum_signature_line_length = 88
toc_object_entries = False
copybutton_exclude = ".linenos, .gp, .go"
root_doc = "index"
highlight_language = "text"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # GitHub's anchors, which the pages link to
# Tables of measurements are headed as their programs print them.
suppress_warnings = ["myst.header"]

html_theme = "pydata_sphinx_theme"
html_title = f"torch_lod {version}"
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_sidebars = {"index": [], "gallery": []}
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 1,
    "navigation_depth": 3,
    "secondary_sidebar_items": ["page-toc"],
    "logo": {"text": f"torch_lod {version}"},
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "Repository", "url": repository(), "icon": "fa-brands fa-git-alt"}] * bool(repository()),
    "collapse_navigation": True,
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


def full_names(app, env):
    """Every name of a page also as `torch_lod.name`, as other projects' pages write it."""
    domain = env.get_domain("py")
    for name, entry in list(domain.objects.items()):
        if name.startswith("tl."):
            domain.objects[f"torch_lod.{name[3:]}"] = entry._replace(aliased=True)


def setup(app):
    app.connect("env-check-consistency", lambda app, env: full_names(app, env))
    app.connect("html-collect-pages", source_pages)

"""Settings of the documentation site; `python -m docs.site.build` gathers its pages and calls Sphinx with them."""

project = "lemmaformer"
author = "the authors of lemmaformer"
extensions = ["myst_parser", "docs.site.mathml"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["site", "tutorials/*.py"]
html_theme = "furo"
html_title = "lemmaformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = ["myst.header"]
pygments_style = "friendly"

"""What makes the documentation site: pages from docstrings, executed tutorials, figures and graphs, without network."""

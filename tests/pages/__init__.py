"""Pages for a browser: what is in the files, and what they do in a real browser."""

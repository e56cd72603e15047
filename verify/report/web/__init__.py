"""Pages for a browser: one self-contained HTML file each, from which no request leaves."""

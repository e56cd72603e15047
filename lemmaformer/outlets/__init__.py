"""Ways out of the program: networks for other programs, pages for a browser."""

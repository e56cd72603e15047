"""What a page shows of a network, as plain data: numbers that a browser can run, heads' shares of kernels, the proof with its numbers."""

"""Networks for other programs: PyTorch modules, ONNX graphs, JAX programs, one file of numpy; each with its measured difference.

May import from `constructions.run` and what lies below it.
"""

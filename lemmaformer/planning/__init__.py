"""Depth against width: every theorem that applies to a target, in every design, with sizes that are proven and sizes that were built."""

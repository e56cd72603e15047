"""Searches over whole numbers: the least size at which a condition begins to hold."""

from collections.abc import Callable


def least_whole(holds: Callable[[int], bool], fails: int, enough: int) -> int:
    """The least n in (fails, enough] from which on `holds` is true, by bisection.

    `holds` is taken to be false at `fails` and true at `enough` (neither is asked again) and to change once between them; where it changes
    more often, the n returned holds and n − 1 does not.
    """
    while enough - fails > 1:
        middle = (fails + enough) // 2
        if holds(middle):
            enough = middle
        else:
            fails = middle
    return enough

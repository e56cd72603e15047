"""Searches: the least size at which a condition begins to hold, among whole numbers or short dyadic ones, and the least of a function."""

import math
from collections.abc import Callable

from flint import fmpq

from analyzer.errors import Refusal


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


MAX_DOUBLINGS = 160
"""Halvings of b or doublings of B before giving up: they cover errors down to 2^-150, far below the least error offered."""


def least_parameter(holds: Callable[[fmpq], bool], start: fmpq, grow: bool) -> fmpq:
    """A short dyadic parameter for which `holds`, within 2^-10 of the threshold; `holds` must be monotone."""
    good = start
    for _ in range(MAX_DOUBLINGS):
        if holds(good):
            break
        good = good * 2 if grow else good / 2
    else:
        raise Refusal("no minimal bank reaches this error for this read-out")
    bad = good / 2 if grow else good * 2
    for _ in range(10):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def golden(function: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    """Golden-section search for the minimum of a unimodal function on [low, high]."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    f_left, f_right = function(left), function(right)
    for _ in range(steps):
        if f_left <= f_right:
            high, right, f_right = right, left, f_left
            left = high - ratio * (high - low)
            f_left = function(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + ratio * (high - low)
            f_right = function(right)
    return (low + high) / 2

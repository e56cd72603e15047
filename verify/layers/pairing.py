"""Ridges that follow a group of neurons are compared with it: part (iii) of the proof.

Where the argument of a ridge is nearly αv_g for a group g of neurons, with e = w·m − αv_g,

    ψ(w·m + o) = ψ(αv_g + o) + p e,      p in the range of ψ' between the two arguments.

P_g(v) − s ψ(αv + o) is a function of v alone, small where the neurons are a spline of ψ, and the *mean-value term* −s p e makes up for the
rest. Which ridge is paired with which group is a guess; any choice is sound.
"""

from dataclasses import dataclass

import numpy as np
from flint import fmpq

from analyzer.numbers.curves import curve
from analyzer.numbers.exact import rational
from analyzer.numbers.profiles import Ridge
from verify.layers.decomposition import ErrorDecomposition, along
from verify.layers.relaxed_terms import NO_WIDTH, RelaxedTerms, mean_value_term, stacked

PAIRED = 1 / 16
"""A ridge is paired with a group of neurons if their functionals differ by this share at most; any number is sound."""


@dataclass(frozen=True)
class Follower:
    """A ridge whose argument is nearly αv_g + o."""

    ridge: Ridge
    alpha: fmpq


def _followers(problem: ErrorDecomposition) -> dict[int, dict[int, Follower]]:
    """For every group of neurons the ridges that follow it, by their numbers."""
    if not (problem.bending and problem.ridges):
        return {}
    result: dict[int, dict[int, Follower]] = {}
    table = problem.kernels.table([term.functional for _, term in (*problem.bending, *problem.ridges)])
    groups, wanted = np.split(table.window, [len(problem.bending)])
    sizes = np.abs(table.window).sum(axis=1)[len(groups) :]
    for r, (row, size) in enumerate(zip(wanted, sizes, strict=True)):
        distances = [_distance(row, size, group) for group in groups]
        near = [(share, g, alpha) for g, (share, alpha) in enumerate(distances) if share <= PAIRED and alpha != 0]
        if near:
            _, leader, alpha = min(near)
            result.setdefault(leader, {})[r] = Follower(problem.ridges[r][0], rational(alpha))
    return result


def _distance(wanted: np.ndarray, size: float, given: np.ndarray) -> tuple[float, float]:
    """The share of a kernel that α times a given one leaves over, and that α, by least squares."""
    alpha = float(np.float32(given @ wanted / max(given @ given, NO_WIDTH)))
    return float(np.abs(wanted - alpha * given).sum() / size), alpha


def paired_terms(problem: ErrorDecomposition) -> RelaxedTerms:
    """Terms for bounding: groups of neurons less the ridges that follow them, ridges that follow none, mean-value terms."""
    followers = _followers(problem)
    following = {r for ridges in followers.values() for r in ridges}
    alone = [*(term for _, term in problem.bending), *(term for r, (_, term) in enumerate(problem.ridges) if r not in following)]
    functionals, reaches = [term.functional for term in alone], [term.reach for term in alone]
    curves = dict(enumerate(term.curve for term in alone))
    mean_values = {}
    for g, ridges in followers.items():
        neurons, term = problem.bending[g]
        curves[g] = curve(neurons, [along(follower.ridge, follower.alpha) for follower in ridges.values()], term.reach)
        for follower in ridges.values():
            difference = problem.kernels.of_memories(follower.ridge.direction).plus(term.functional, -follower.alpha)
            mean_values[len(functionals)] = mean_value_term(follower.ridge, follower.alpha, g, term.reach, problem.radii)
            functionals.append(difference)
            reaches.append(problem.kernels.sizes([difference])[0])
    return RelaxedTerms(functionals, np.array(reaches), curves, mean_values, stacked(curves))

"""Figures as PDF, SVG or PNG files, by matplotlib where it is installed: one style, and one function of the data per figure."""

from verify.report.figures.claims import choices, claim, front, rate, swept
from verify.report.figures.experiments import digits, fig_5, lags, losses, orders, ranks, squares, table, tour
from verify.report.figures.lag_costs import costs
from verify.report.figures.limits import architectures, coupling, horizon, kernel, lag, order, positions, slopes
from verify.report.figures.networks import chain, compared, letters, shares, spectrum, stream
from verify.report.figures.style import SUFFIXES, check_suffix

__all__ = [
    "SUFFIXES", "architectures", "chain", "check_suffix", "choices", "claim", "compared", "costs", "coupling", "digits", "fig_5", "front",
    "horizon", "kernel", "lag", "lags", "letters", "losses", "order", "orders", "positions", "ranks", "rate", "shares", "slopes",
    "spectrum", "squares", "stream", "swept", "table", "tour",
]  # fmt: skip

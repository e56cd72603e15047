"""Networks side by side, and published experiments."""

from collections.abc import Sequence
from typing import cast

from lemmaformer.results.base import Plain, Result


class Comparison(Result):
    """Networks of one target side by side.

    >>> import lemmaformer as lf
    >>> one, two = (lf.build(lf.fixed(lags=(1,)), error=error) for error in (0.1, 0.01))
    >>> both = lf.compare(one, two, sequences=4)
    >>> both.holds, len(both.networks)
    (True, 2)
    """

    shown_by = "comparisons:show_compared"
    drawn_by = "figures:compared"

    @property
    def networks(self) -> Sequence[Plain]:
        """One column per network."""
        return cast("Sequence[Plain]", self.data["networks"])

    @property
    def holds(self) -> bool:
        return not any(column["faults"] for column in self.networks)

    def _brief(self) -> str:
        return f" of {', '.join(str(column['name']) for column in self.networks)}"


class Arms(Comparison):
    """A construction beside networks of its structure that were trained."""

    shown_by = "networks:show_arms"


class SpectrumOfLogits(Result):
    """Singular values of attention logits on data (sampled)."""

    shown_by = "networks:show_spectrum"
    drawn_by = "figures:spectrum"


class Experiment(Result):
    """A published experiment, repeated; numbers are sampled unless they are called certified."""

    def _brief(self) -> str:
        return f" {self.data.get('experiment', '')}"


class JlTable(Experiment):
    shown_by = "experiments:show_jl_table"
    drawn_by = "figures:table"


class JlFigure5(Experiment):
    shown_by = "experiments:show_fig_5"
    drawn_by = "figures:fig_5"


class JlPoints(Experiment):
    shown_by = "experiments:show_points"
    drawn_by = "figures:ranks"


class JlTable1(Experiment):
    shown_by = "experiments:show_orders"
    drawn_by = "figures:orders"


class JlFigure1(Experiment):
    shown_by = "experiments:show_digits"
    drawn_by = "figures:digits"


class WeRegression(Experiment):
    shown_by = "experiments:show_we"
    drawn_by = "figures:squares"

    @property
    def holds(self) -> bool:
        return not self.data["violations"]


class WeLanguage(Experiment):
    shown_by = "experiments:show_language"
    drawn_by = "figures:losses"


class HorizonExperiment(Experiment):
    shown_by = "experiments:show_lags"
    drawn_by = "figures:lags"

    @property
    def holds(self) -> bool:
        return not self.data["violations"]

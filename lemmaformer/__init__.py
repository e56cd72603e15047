"""Theorems about Transformers as running, certified code.

    import lemmaformer as lf

    target = lf.fixed(lags=(2, 5), readout="x0 + m1*m2")
    net = lf.build(target, error=1e-2)          # the network of the theorem's proof
    net.verify()                                # witness ≤ certified ≤ bound

Names are loaded when they are used: importing the package loads neither JAX nor sympy, rich nor matplotlib. May import from
`lemmaformer.sweeps`, `verify.claims`, `verify.experiments` and what lies below them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from analyzer.notebooks import show_with

if TYPE_CHECKING:
    from pathlib import Path

    from analyzer.errors import InputError, LemmaformerError, Refusal
    from analyzer.families import (
        Adaptive,
        AdaptiveBound,
        Coupling,
        CouplingBound,
        Fixed,
        FixedBound,
        Kernel,
        KernelBound,
        KerpleBound,
        LeastSquaresBound,
        Points,
        PointsBound,
        Representation,
        RepresentationBound,
        StrideBound,
        TableBound,
    )
    from analyzer.options import Options, option
    from analyzer.statements.bounds import Bound, Choices
    from analyzer.statements.registry import THEOREMS as theorems
    from analyzer.statements.theorem import Case, Theorem
    from analyzer.targets.protocol import Target
    from constructions.theorems.construction import Construction
    from lemmaformer import experiments, limits
    from lemmaformer.api import (
        adaptive,
        bound,
        bounds,
        build,
        compare,
        coupling,
        export,
        fixed,
        kernel,
        load_target,
        points,
        sequence,
        sweep,
        task,
        train,
        verify,
    )
    from lemmaformer.checking import check
    from lemmaformer.devices import doctor
    from lemmaformer.files import load, spectrum
    from lemmaformer.network import Network
    from lemmaformer.options import Break, Check, Compare, Export, Planning, Train, Workers
    from lemmaformer.outlets.exporting import Exported
    from lemmaformer.outlets.gallery import Gallery, gallery
    from lemmaformer.outlets.reporting import explore, report
    from lemmaformer.planning.planner import plan
    from lemmaformer.planning.rows import Plan, PlanRow
    from lemmaformer.results.base import Evaluation, Result
    from lemmaformer.results.claims import BoxCheck, ClaimCheck, Sweep
    from lemmaformer.results.devices import Diagnosis
    from lemmaformer.results.experiments import Comparison
    from verify.chain.certificate import Certificate, Margin, Part, Verdict

_HOMES = {
    "analyzer.statements.bounds": ("Bound", "Choices"),
    "analyzer.errors": ("InputError", "LemmaformerError", "Refusal"),
    "analyzer.families": (
        "Adaptive", "AdaptiveBound", "Coupling", "CouplingBound", "Fixed", "FixedBound", "Kernel", "KernelBound", "KerpleBound",
        "LeastSquaresBound", "Points", "PointsBound", "Representation", "RepresentationBound", "StrideBound", "TableBound",
    ),
    "analyzer.options": ("Options", "option"),
    "analyzer.targets.protocol": ("Target",),
    "analyzer.statements.theorem": ("Case", "Theorem"),
    "constructions.theorems.construction": ("Construction",),
    "lemmaformer.api": (
        "adaptive", "bound", "bounds", "build", "compare", "coupling", "export", "fixed", "kernel", "load_target", "points", "sequence",
        "sweep", "task", "train", "verify",
    ),
    "lemmaformer.checking": ("check",),
    "lemmaformer.devices": ("doctor",),
    "lemmaformer.outlets.exporting": ("Exported",),
    "lemmaformer.files": ("load", "spectrum"),
    "lemmaformer.network": ("Network",),
    "lemmaformer.options": ("Break", "Check", "Compare", "Export", "Planning", "Train", "Workers"),
    "lemmaformer.outlets.gallery": ("Gallery", "gallery"),
    "lemmaformer.outlets.reporting": ("explore", "report"),
    "lemmaformer.planning.planner": ("plan",),
    "lemmaformer.planning.rows": ("Plan", "PlanRow"),
    "lemmaformer.results.base": ("Evaluation", "Result"),
    "lemmaformer.results.claims": ("BoxCheck", "ClaimCheck", "Sweep"),
    "lemmaformer.results.devices": ("Diagnosis",),
    "lemmaformer.results.experiments": ("Comparison",),
    "verify.chain.certificate": ("Certificate", "Margin", "Part", "Verdict"),
}  # fmt: skip
"""Where every public name lives."""
_PLACES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Adaptive", "AdaptiveBound", "Bound", "BoxCheck", "Break", "Case", "Certificate", "Check", "Choices", "ClaimCheck", "Compare",
    "Comparison", "Construction", "Coupling", "CouplingBound", "Diagnosis", "Evaluation", "Export", "Exported", "Fixed", "FixedBound",
    "Gallery", "InputError", "Kernel", "KernelBound", "KerpleBound", "LeastSquaresBound", "LemmaformerError", "Margin", "Network",
    "Options", "Part", "Plan", "PlanRow", "Planning", "Points", "PointsBound", "Refusal", "Representation", "RepresentationBound",
    "Result", "StrideBound", "Sweep", "TableBound", "Target", "Theorem", "Train", "Verdict", "Workers", "adaptive", "bound", "bounds",
    "build", "check", "compare", "coupling", "doctor", "experiments", "explore", "export", "fixed", "gallery", "kernel", "limits",
    "load", "load_target", "option", "plan", "points", "report", "sequence", "spectrum", "sweep", "task", "theorems", "train",
    "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "theorems":
        return import_module("analyzer.statements.registry").THEOREMS
    if name in ("experiments", "limits"):
        return import_module(f"lemmaformer.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'lemmaformer' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__


def _html(result: object) -> str:
    """Pages of notebooks come from the report, which is loaded when the first one is made."""
    from verify.report.showing import html

    return html(result)


def _drawn(result: object, path: "Path") -> bool:
    from verify.report.showing import draw

    return draw(result, path)


show_with(_html, _drawn)

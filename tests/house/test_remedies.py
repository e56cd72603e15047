"""Every remedy of every refusal leads to a certified network, or to another refusal with another remedy, at most twice."""

from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import OptionValue, Refusal, finer, larger_error, rounded_up
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.coupling import CouplingTarget, coupling_from_dict
from analyzer.targets.files import target_from_dict
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.toml import read_toml
from verify.bundles.ways_out import attempt as build_and_certify
from verify.bundles.ways_out import explained, missed, ways_out
from verify.chain.certificate import Certificate, Verdict

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
Options = dict[str, OptionValue]
Target = FixedMemory | KernelMemory | AdaptiveMemory | CouplingTarget


KNOWN: dict[str, Certificate | Refusal] = {}
"""Results by target and options: many remedies lead to the same network."""


def attempt(target: Target, options: Options) -> Certificate | Refusal:
    """Build and certify; a refusal is returned, anything else that is wrong with the options is an error of the test."""
    given = sorted((name, value) for name, value in options.items() if value is not None)
    name = f"{target.describe()} {given}"
    if name not in KNOWN:
        try:
            KNOWN[name] = build_and_certify(target, options)
        except Refusal as refusal:
            KNOWN[name] = refusal
    return KNOWN[name]


def follow(target: Target, options: Options, refusals: int = 2) -> None:
    """The options lead to a certified network after at most so many more refusals, by their first remedies."""
    result = attempt(target, options)
    if isinstance(result, Refusal):
        assert refusals, f"{options} is still refused: {result}"
        assert result.remedies, f"{options} is a dead end: {result}"
        follow(target, {**options, **result.remedies[0]}, refusals - 1)
        return
    assert result.verdict is not Verdict.VIOLATED
    error = options.get("error")
    assert not isinstance(error, float) or result.certified <= error
    assert error is not None or options.get("heads") or options.get("rank") or result.certified <= 0.01


def example(name: str) -> Target:
    return target_from_dict(read_toml(EXAMPLES / f"{name}.toml"), name)


def lags(*values: int, readout: str | None = None) -> FixedMemory:
    return FixedMemory(values, 1, readout)


SMOOTH = {"rho": "exp(-4*(u-v)**2)", "f": "cos(3*x)", "F": "tanh(2*y)", "length": 8}

REFUSED: dict[str, tuple[Target, Options]] = {
    "two lags, float64": (lags(2, 5), {"dtype": "float64"}),
    "two lags, float32": (lags(2, 5), {"dtype": "float32"}),
    "log heads, float64": (lags(4), {"dtype": "float64", "rpe": "log", "heads": 6}),
    "slow log heads": (lags(4), {"dtype": "float64", "rpe": "log", "heads": 8, "error": 0.2}),
    "lag 3, float32": (lags(3), {"dtype": "float32"}),
    "lag 12, float64": (lags(12), {"dtype": "float64"}),
    "lag 30, float64": (lags(30), {"dtype": "float64"}),
    "many heads, float64": (lags(2), {"dtype": "float64", "heads": 30}),
    "lag law": (lags(6), {"heads": 4}),
    "lag law, float64": (lags(4), {"heads": 3, "dtype": "float64"}),
    "narrow read-out": (lags(1, readout="m1**2"), {"width": 1}),
    "Barron read-out": (lags(1, readout="x0*m1"), {"ffn": "barron", "error": 1e-3}),
    "sharp read-out": (lags(1, readout="tanh(9*m1)"), {"error": 1e-12}),
    "paper bank": (lags(64), {"bank": "paper"}),
    "tuned bank, small error": (lags(6), {"bank": "tuned", "error": 1e-20, "share": True}),
    "tuned bank, few heads": (lags(2, 3), {"bank": "tuned", "heads": 4}),
    "tuned bank, missed": (lags(2), {"bank": "tuned", "heads": 4, "error": 1e-3}),
    "tuned bank, float64": (lags(3), {"bank": "tuned", "dtype": "float64", "rpe": "log"}),
    "balanced, π-law": (lags(12), {"bank": "balanced", "dtype": "float64"}),
    "balanced, too many heads": (lags(2), {"bank": "balanced", "dtype": "float64", "heads": 41}),
    "mixed, long lag": (lags(34), {"rpe": "mixed"}),
    "mixed, two lags": (lags(2, 4), {"rpe": "mixed", "bank": "tuned", "dtype": "float64"}),
    "mixed, given heads": (lags(4), {"rpe": "mixed", "heads": 5}),
    "mixed, float64": (lags(4), {"rpe": "mixed", "dtype": "float64"}),
    "depth times heads": (lags(12), {"depth": 2, "heads": 4, "dtype": "float64"}),
    "chain, float32": (lags(12), {"depth": "auto", "dtype": "float32"}),
    "chain of few layers": (lags(30), {"depth": 2, "dtype": "float64"}),
    "chain of few layers, float32": (lags(7), {"depth": 3, "dtype": "float32"}),
    "chain, tiny error": (lags(3), {"depth": 3, "dtype": "float32", "error": 1e-8}),
    "adaptive, tuned floats": (example("pair"), {"bank": "tuned", "dtype": "float64"}),
    "adaptive, relu floats": (example("pair"), {"rounding": "relu", "rpe": "log", "dtype": "float64"}),
    "adaptive, log dot products": (example("pointer"), {"rpe": "log", "attention": "dp", "dtype": "float64"}),
    "adaptive, minimal floats": (example("pair"), {"bank": "minimal", "dtype": "float64"}),
    "adaptive, long lag, float32": (example("tree"), {"dtype": "float32"}),
    "adaptive, float32": (example("pair"), {"dtype": "float32"}),
    "adaptive, few heads": (example("pair"), {"bank": "tuned", "heads": 4}),
    "adaptive, wrong lags": (example("nested"), {"bank": "tuned", "heads": 6}),
    "adaptive, paper bank": (example("pair"), {"bank": "paper", "error": 1e-3}),
    "kernel, power law by lin": (KernelMemory(("(s+1)**-4",)), {"bank": "tuned"}),
    "kernel, no rate": (KernelMemory(("(s+1)**-2",)), {"bank": "tuned", "rpe": "log"}),
    "kernel, too many heads": (KernelMemory(("exp(-s/5)",)), {"bank": "paper", "error": 1e-4}),
    "kernel, tiny error, float32": (KernelMemory(("exp(-s)",)), {"dtype": "float32", "error": 1e-9}),
    "coupling, tiny error, float32": (coupling_from_dict(SMOOTH, "smooth"), {"dtype": "float32", "error": 1e-5}),
    "coupling, few knots": (coupling_from_dict(SMOOTH, "smooth"), {"knots": 4, "error": 1e-2}),
    "coupling, small rank": (coupling_from_dict(SMOOTH, "smooth"), {"rank": 1, "error": 1e-2}),
}

SLOW = {"lag 30, float64", "chain of few layers"}


@pytest.mark.deep(
    keep=(
        "lag law",
        "mixed, float64",
        "mixed, given heads",
        "mixed, long lag",
        "mixed, two lags",
        "narrow read-out",
        "tuned bank, few heads",
    )
)
@pytest.mark.parametrize("case", [pytest.param(name, marks=pytest.mark.deep) if name in SLOW else name for name in REFUSED])
def test_every_remedy_leads_on(case: str) -> None:
    target, options = REFUSED[case]
    refusal = attempt(target, options)
    assert isinstance(refusal, Refusal), f"{options} is built"
    assert refusal.remedies, f"no way out of: {refusal}"
    assert "--" not in str(refusal)
    for remedy in refusal.remedies:
        assert any(options.get(name) != value for name, value in remedy.items()), f"{remedy} changes nothing"
        follow(target, {**options, **remedy})


SLOW_EXAMPLES = {"sines", "low_rank", "smooth_coupling"}
GALLERY = [
    pytest.param(path.stem, marks=pytest.mark.deep) if path.stem in SLOW_EXAMPLES else path.stem for path in sorted(EXAMPLES.glob("*.toml"))
]


@pytest.mark.deep(keep=("contrast-float64", "pair-float32"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GALLERY)
def test_gallery_in_floats_is_built_or_has_a_way_out(name: str, dtype: str) -> None:
    target, options = example(name), {"dtype": dtype}
    result = attempt(target, options)
    for remedy in result.remedies if isinstance(result, Refusal) else ():
        follow(target, {**options, **remedy})
    assert isinstance(result, Certificate) or result.remedies


TRIED: dict[str, tuple[Target, Options, Options]] = {
    "more heads": (lags(2, 5), {"dtype": "float64"}, {"heads": 7}),
    "a chain of lin heads": (lags(4), {"dtype": "float64", "rpe": "log", "heads": 6}, {"depth": "auto", "rpe": "lin", "heads": None}),
    "layers": (lags(12), {"dtype": "float64"}, {"depth": "auto"}),
    "tmx": (
        example("nested"),
        {"rpe": "log", "attention": "dp", "dtype": "float64", "rounding": "relu"},
        {"rounding": "ideal", "attention": "tmx"},
    ),
    "balanced heads": (example("pair"), {"bank": "minimal", "dtype": "float64"}, {"bank": "balanced"}),
    "a minimal bank": (example("nested"), {"bank": "tuned", "heads": 6}, {"bank": "minimal", "heads": None}),
    "a fitted bank": (KernelMemory(("exp(-s/5)",)), {"bank": "paper", "error": 1e-4}, {"bank": "fitted"}),
    "the rank it takes": (coupling_from_dict(SMOOTH, "smooth"), {"rank": 1, "error": 1e-2}, {"rank": None}),
}


@pytest.mark.deep(keep=("more heads", "a fitted bank", "layers", "a minimal bank"))
@pytest.mark.parametrize("case", TRIED)
def test_ways_out_are_tried_and_come_first(case: str) -> None:
    target, options, first = TRIED[case]
    refusal = attempt(target, options)
    assert isinstance(refusal, Refusal)
    found = ways_out(target, options)
    assert found[0] == first
    for way in found:
        certificate = attempt(target, {**options, **way})
        assert isinstance(certificate, Certificate) and certificate.verdict is not Verdict.VIOLATED
        assert certificate.certified <= (options.get("error") or 0.01)  # type: ignore[operator]


def test_tried_ways_come_before_those_of_the_refusal() -> None:
    first, own = Refusal("no", {"dtype": "exact"}, {"error": 0.5}), {"dtype": "float64"}
    found = explained(first, lags(2, 5), own).remedies
    assert found[0] == {"heads": 7} and {"error": 0.5} in found and len(found) == len({str(way) for way in found})


def test_a_missed_error_names_one_that_is_reached() -> None:
    target = lags(2, 5, readout="x0 + m1*m2")
    certificate = attempt(target, {"error": 0.05})
    assert isinstance(certificate, Certificate)
    refusal = missed(1e-3, certificate)
    assert "read-out" in refusal.reason and "rounding" in refusal.reason
    (remedy,) = refusal.remedies
    assert certificate.certified <= remedy["error"] <= 0.06  # type: ignore[operator]


def test_errors_are_rounded_up_to_two_digits() -> None:
    assert rounded_up(0.00461) == 0.0047 and rounded_up(0.05) == 0.051 and rounded_up(1e-30) >= 1e-30 and rounded_up(0.5) == 0.5
    assert larger_error(float("inf")) == () and larger_error(2.0) == ({"error": 2.0},)
    assert finer("float32") == ({"dtype": "float64"}, {"dtype": "exact"}) and finer("exact") == ()


@pytest.mark.deep
def test_refusals_say_which_head_is_slow() -> None:
    refusal: Any = attempt(*REFUSED["slow log heads"])
    assert "decay 2.16" in refusal.reason and "larger decays" not in str(refusal)

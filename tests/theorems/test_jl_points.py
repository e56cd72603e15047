"""Couplings of points at positions: the chain, all sequences of small sets, boxes, ranks, floats, sabotage and bad input."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import InputError, Refusal
from analyzer.lemmas.points import _second, frame, half_oscillation, interpolation, largest_sum, point_factors
from analyzer.numbers.exact import upper, working_precision
from analyzer.numbers.piecewise import seen_error
from analyzer.targets.coupling import BITS, parse_coupling
from analyzer.targets.examples import centre_of_mass, nearest_point, selection
from analyzer.targets.points import PointsTarget, points_from_dict
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.run.execute import run as evaluate
from constructions.theorems.construction import Construction
from constructions.theorems.jl_points import build, slots
from tests.depth import examples
from verify.chain.certificate import Certificate, StrangeWeights, Verdict
from verify.theorems.jl_points import coupling_error, output_at, read, value_errors, verify

Run = Callable[..., Any]

FINITE: dict[str, dict[str, Any]] = {
    "shared": {
        "length": 4,
        "space": 2,
        "rho": "-4*((u1-v1)**2 + (u2-v2)**2) - 9*relu(2-s) + t*s/20 + u1*v2*s/5",
        "f": ["x1 + s/8", "x1*x2"],
        "F": "y1*y2 - tanh(y2)",
        "points": [[0, 0], [0.5, "1/3"], [1, -1]],
    },
    "own": {
        "length": 3,
        "space": 2,
        "rho": "3*sin(2*u1 + v2*s)",
        "f": ["x1", "x2", "s*x1"],
        "F": "y1 + y2*y3",
        "points": [[[0, 0], [0.5, 0.5]], [[1, 1]], [[0, 1], [0.3, 0.3], [-0.5, 0.1]]],
    },
}


def finite(name: str) -> PointsTarget:
    return points_from_dict({"kind": "points", **FINITE[name]}, "test")


def plain(target: PointsTarget, points: np.ndarray) -> np.ndarray:
    """H at all positions by an independent route: the formulas of the two targets by hand, points (batch, N, 2)."""
    t, s = np.arange(1, target.length + 1)[:, None], np.arange(1, target.length + 1)[None, :]
    u, v = points[:, :, None, :], points[:, None, :, :]
    x, place = points, np.arange(1, target.length + 1)
    if target.F.startswith("y1*y2 -"):
        logits = -4 * ((u - v) ** 2).sum(-1) - 9 * np.maximum(2 - s, 0) + t * s / 20 + u[..., 0] * v[..., 1] * s / 5
        values = [x[..., 0] + place / 8, x[..., 0] * x[..., 1]]
    else:
        logits, values = 3 * np.sin(2 * u[..., 0] + v[..., 1] * s), [x[..., 0], x[..., 1], place * x[..., 0]]
    weights = np.exp(logits)
    y = [(weights * value[:, None, :]).sum(-1) / weights.sum(-1) for value in values]
    return y[0] * y[1] - np.tanh(y[1]) if target.F.startswith("y1*y2 -") else y[0] + y[1] * y[2]


def sequences(target: PointsTarget) -> np.ndarray:
    """Every sequence of a target on finite sets."""
    assert target.points is not None
    return np.array([target.array_of(chosen) for chosen in itertools.product(*target.points)])


@cache
def certified(name: str, rank: int | None, dtype: str) -> tuple[Construction, Certificate]:
    built = build(finite(name), rank=rank, error=0.05, dtype=dtype)
    return built, verify(built.network, built.target, built.bank, built.ffn)


@pytest.mark.deep(keep="shared-1-exact")
@pytest.mark.parametrize("dtype", ["exact", "float64", "float32"])
@pytest.mark.parametrize("rank", [1, 2, None])
@pytest.mark.parametrize("name", list(FINITE))
def test_every_sequence_stays_below_the_certificate(name: str, rank: int | None, dtype: str) -> None:
    built, found = certified(name, rank, dtype)
    tokens = sequences(built.target)
    errors = np.abs(evaluate(built.network, tokens).astype(float) - plain(built.target, tokens[..., 1:]))
    assert found.verdict in (Verdict.HOLDS, Verdict.VACUOUS)
    assert errors.max() <= found.certified <= found.bound
    rounding = 2 * (found.rounding or 0)  # another batch is summed up in another order
    assert found.witness <= errors.max() + 1e-9 + rounding  # all sequences were run: no error is larger
    assert found.witness >= errors.max() / 2
    assert (found.rounding == 0) == (dtype == "exact")
    if rank is None:
        assert found.certified <= 0.05 and found.verdict is Verdict.HOLDS


def test_finite_sets_are_exact_but_for_the_read_out() -> None:
    built, _ = certified("own", None, "exact")
    enough = point_factors(built.target, frame(built.target, 1))
    whole = build(built.target, rank=len(enough.sigma), error=0.05)
    reading = read(whole.network, built.target)
    assert upper(coupling_error(reading)) < 1e-9 and max(upper(v) for v in value_errors(reading)) < 1e-12
    assert reading.rank == len(enough.sigma)


def test_singular_values_are_enclosed() -> None:
    """Those of the matrix over all pairs of tokens, computed once more by hand from the formula."""
    target = finite("shared")
    assert target.points is not None
    found = point_factors(target, frame(target, 1))
    tokens = [(s, *(float(arb(x)) for x in p)) for s, points in enumerate(target.points, 1) for p in points]
    rho = np.array(
        [[-4 * ((u - x) ** 2 + (v - y) ** 2) - 9 * max(2 - s, 0) + t * s / 20 + u * y * s / 5 for s, x, y in tokens] for t, u, v in tokens]
    )
    sigma = np.linalg.svd((rho - rho.mean(axis=1, keepdims=True)) / len(tokens), compute_uv=False)
    assert np.abs(sigma[: len(found.sigma)] - found.sigma).max() <= found.sigma_error + 1e-12
    assert found.sigma_error < 1e-8


@pytest.mark.deep
@pytest.mark.parametrize("count", [4, 8, 16])
def test_nearest_point_in_the_square_is_certified(count: int) -> None:
    target = nearest_point(count)
    built = build(target, error=0.02)
    found = verify(built.network, target, built.bank, built.ffn)
    assert found.verdict is Verdict.HOLDS and found.witness <= found.certified <= found.bound <= 0.02
    assert found.details["rank"] == 3  # d + 1, modulo functions of the query
    assert found.sizes["width"] < 200  # what positions have in common is written once
    rng = np.random.default_rng(1)
    tokens = target.draw(rng, (400, target.length))
    x = tokens[..., 1:]
    logits = -16 * ((x[:, :1, :] - x[:, 1:, :]) ** 2).sum(-1)
    mask = -24 - 2 * 16
    weights = np.exp(np.concatenate([np.full((400, 1), mask), logits], axis=1))
    wanted = (weights * x[..., 0]).sum(-1) / weights.sum(-1)
    error = np.abs(evaluate(built.network, tokens)[:, 0] - wanted).max()
    assert found.certified / 50 < error <= found.certified
    gap = np.sort(((x[:, :1, :] - x[:, 1:, :]) ** 2).sum(-1), axis=1)
    margin, first = gap[:, 1] - gap[:, 0], ((x[:, :1, :] - x[:, 1:, :]) ** 2).sum(-1).argmin(axis=1)
    hard = np.take_along_axis(x[:, 1:, 0], first[:, None], axis=1)[:, 0]
    away = (count - 1) * np.exp(-16 * margin) + np.exp(mask + 16 * gap[:, 0])  # the landmarks that lose, and the position that asks
    assert (np.abs(evaluate(built.network, tokens)[:, 0] - hard) <= away + found.certified).all()


@pytest.mark.deep(keep="2-16")
@pytest.mark.parametrize("length", [16, 32])
@pytest.mark.parametrize("count", [2, 3])
def test_selection_is_certified(count: int, length: int) -> None:
    target = selection(count, length)
    built = build(target, error=0.02)
    found = verify(built.network, target, built.bank, built.ffn)
    assert found.verdict is Verdict.HOLDS and found.witness <= found.certified <= found.bound <= 0.02
    assert found.details["rank"] == 1
    tokens = target.draw(np.random.default_rng(2), (300, length))
    picked = [1 + k * (length // count) for k in range(count)]
    wanted = np.prod(tokens[:, picked, 1], axis=1)
    soft = 1 + (length - count) * np.exp(-24) / count  # the mean is over the selected ones but for so much
    error = np.abs(evaluate(built.network, tokens) - wanted[:, None]).max()
    assert error <= found.certified + (1 - soft**-count)


@pytest.mark.deep(keep="exact")
@pytest.mark.parametrize("dtype", ["exact", "float64", "float32"])
def test_centre_of_mass_needs_one_coordinate(dtype: str) -> None:
    target = centre_of_mass(4)
    built = build(target, error=0.01, dtype=dtype)
    found = verify(built.network, target, built.bank, built.ffn)
    assert found.verdict is Verdict.HOLDS and found.details["rank"] == 1 and found.certified <= 0.01
    tokens = target.draw(np.random.default_rng(0), (200, 4)).astype("float32").astype(float)
    masses = np.arange(1, 5)
    wanted = (tokens[..., 1] * masses).sum(-1) / masses.sum()
    assert np.abs(evaluate(built.network, tokens)[:, 0] - wanted).max() <= found.certified


def test_functions_of_the_query_cost_nothing() -> None:
    """(u − v)² and −2uv + v² are one coupling for softmax: the same rank, and the same error of the splines."""
    square = points_from_dict({"kind": "points", "length": 2, "rho": "-3*(u1-v1)**2", "f": ["x1"]}, "test")
    product = points_from_dict({"kind": "points", "length": 2, "rho": "6*u1*v1 - 3*v1**2", "f": ["x1"]}, "test")
    errors = [interpolation(target, frame(target, 8)) for target in (square, product)]
    assert abs(upper(errors[0]) - upper(errors[1])) < 1e-9 and upper(errors[0]) == pytest.approx(3 / 8**2 / 8, rel=1e-6)
    assert [len(point_factors(target, frame(target, 8)).sigma) for target in (square, product)] == [2, 2]


@given(a=st.integers(-3, 3), b=st.integers(-3, 3), c=st.integers(-3, 3), pieces=st.sampled_from([1, 2, 4]))
@settings(max_examples=examples(40), deadline=None)
def test_seen_error_is_never_exceeded(a: int, b: int, c: int, pieces: int) -> None:
    couplings = [parse_coupling(f"{a}*u**2*v + {b}*sin(2*u+v) + {c}*v**3 + {k}*u**2") for k in range(2)]
    knots = tuple(fmpq(i, pieces) for i in range(pieces + 1))
    with working_precision(BITS):
        found = upper(seen_error([partial(_second, one) for one in couplings], knots, knots))
    x, grid = np.linspace(0, 1, 33), np.linspace(0, 1, pieces + 1)
    hats = np.maximum(0, 1 - np.abs(x[:, None] - grid) * pieces)
    gaps = []
    for one in couplings:
        rho = one.compiled(np)
        gaps.append(
            rho(x[:, None], x[None]) + 0 * x[:, None] * x - hats @ (rho(grid[:, None], grid[None]) + 0 * grid[:, None] * grid) @ hats.T
        )
    seen = np.concatenate(gaps, axis=1)
    assert (seen.max(axis=1) - seen.min(axis=1)).max() / 2 <= found + 1e-12


def test_half_oscillation_of_blocks_is_an_upper_bound() -> None:
    rng = np.random.default_rng(0)
    gap = rng.standard_normal((2, 2, 3, 2, 2, 3))
    worst, largest = 0.0, 0.0
    for t, a, b in itertools.product(range(2), range(3), range(3)):
        keys = [
            sum(gap[t, i, (a, b)[i], s, j, (c, d)[j]] for i in range(2) for j in range(2))
            for s, c, d in itertools.product(range(2), range(3), range(3))
        ]
        worst, largest = max(worst, (max(keys) - min(keys)) / 2), max(largest, *map(abs, keys))
    assert worst <= half_oscillation(gap) and largest <= largest_sum(gap)
    query = rng.standard_normal((2, 2, 3, 1, 1, 1)) / 2  # a function of the query in every block is not seen
    assert half_oscillation(gap + query) == pytest.approx(half_oscillation(gap))


def _changed(network: Transformer, layer: int, part: str, name: str, index: tuple[int, ...], shift: fmpq) -> Transformer:
    chosen = getattr(network.layers[layer], part)
    array = np.array(getattr(chosen, name), dtype=object)
    array[index] = array[index] + shift
    layers = list(network.layers)
    layers[layer] = replace(layers[layer], **{part: replace(chosen, **{name: array})})
    return replace(network, layers=tuple(layers))


PLACES = [
    (0, "feedforward", "outer"),
    (0, "feedforward", "inner"),
    (0, "feedforward", "bias"),
    (1, "attention", "query"),
    (1, "attention", "key"),
    (1, "attention", "value"),
    (1, "attention", "output"),
    (1, "feedforward", "inner"),
    (1, "feedforward", "bias"),
    (1, "feedforward", "outer"),
]


@pytest.mark.deep(keep=("0-inner-points", "0-bias-box", "1-key-points", "1-value-box", "1-outer-points"))
@pytest.mark.parametrize("kind", ["points", "box"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]}-{place[2]}")
def test_a_changed_weight_is_noticed(place: tuple[int, str, str], kind: str) -> None:
    target = finite("shared") if kind == "points" else centre_of_mass(3)
    built = build(target, error=0.05)
    layer, part, name = place
    array = getattr(getattr(built.network.layers[layer], part), name)
    index = next((index for index, weight in np.ndenumerate(array) if weight != 0), (0,) * array.ndim)
    broken = _changed(built.network, layer, part, name, index, fmpq(1, 8))
    try:
        found = verify(broken, target, "centred", "spline")
    except StrangeWeights:
        return
    assert found.verdict is Verdict.VIOLATED
    tokens = target.draw(np.random.default_rng(0), (200, target.length))
    assert np.abs(evaluate(broken, tokens) - target.values(np)(tokens)).max() <= found.certified  # the error is still an upper bound


def test_neurons_across_coordinates_are_refused_on_boxes() -> None:
    target = nearest_point(2)
    built = build(target, error=0.1)
    network = built.network
    bent = next(n for n, row in enumerate(network.layers[0].feedforward.inner) if row[1] != 0 and network.layers[0].feedforward.bias[n] < 0)
    broken = _changed(network, 0, "feedforward", "inner", (bent, 2), fmpq(1))
    with pytest.raises(StrangeWeights, match="several coordinates"):
        verify(broken, target, "centred", "spline")


@pytest.mark.deep
def test_executors_agree_and_slots_have_names() -> None:
    built, _ = certified("shared", None, "exact")
    rounded = build(built.target, error=0.05, dtype="float64").network
    tokens = sequences(built.target)[:7]
    assert np.abs(fast.forward(rounded, tokens) - reference.forward(rounded, tokens)).max() < 1e-12
    with working_precision(96):
        ball = output_at(built.network, built.target, tokens[3], 2)
    assert abs(float(ball) - evaluate(built.network, tokens[3])[2]) < 1e-9
    names = slots(built.target, built.network)
    assert list(names)[:3] == ["position", "x1", "x2"] and len(names) == built.network.embedding.shape[0] and "answer2" in names


def test_float32_refuses_logits_beyond_its_exponential() -> None:
    target = points_from_dict({"kind": "points", "length": 2, "rho": "90*u1*v1", "f": ["x1"]}, "test")
    built = build(target, error=0.5, dtype="float32")
    with pytest.raises(Refusal, match="leaves float32") as caught:
        verify(built.network, target, "centred", "spline")
    assert {"dtype": "float64"} in caught.value.remedies
    wide = build(target, error=0.5, dtype="float64")
    assert verify(wide.network, target, "centred", "spline").certified <= 0.5


@pytest.mark.deep
@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(24), deadline=None)
def test_random_couplings_of_random_points(seed: int) -> None:
    """Attack: ranks below that of the coupling, random points for every position, all sequences."""
    rng = np.random.default_rng(seed)
    a, b, c = (round(float(v), 2) for v in rng.uniform(-3, 3, 3))
    sets = [[[int(v), int(w)] for v, w in {tuple(rng.integers(-8, 9, 2)) for _ in range(3)}] for _ in range(3)]
    points = [[[f"{v}/8", f"{w}/8"] for v, w in chosen] for chosen in sets]
    data = {"kind": "points", "length": 3, "space": 2, "rho": f"{a}*u1*v2 + {b}*sin(s*u2*v1) + {c}*t*v1", "f": ["x1", "x2*s"], "F": "y1*y2"}
    target = points_from_dict({**data, "points": points}, "test")
    built = build(target, rank=int(rng.integers(1, 4)), error=0.1, dtype=("exact", "float32")[seed % 2])
    found = verify(built.network, target, built.bank, built.ffn)
    tokens = sequences(target)
    errors = np.abs(evaluate(built.network, tokens).astype(float) - target.values(np)(tokens))
    assert (
        errors.max() <= found.certified * (1 + 1e-9) + 1e-12
        and found.certified <= found.bound
        and found.witness <= errors.max() + 1e-9 + 2 * (found.rounding or 0)
    )


@pytest.mark.deep
@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(16), deadline=None)
def test_noisy_weights_on_a_box_are_still_certified_from_above(seed: int) -> None:
    """Attack: all weights of the first layer but its directions, and those of the head, moved at random; corners and random points."""
    rng = np.random.default_rng(seed)
    target = (nearest_point(2, 4), centre_of_mass(3), selection(2, 4, 4))[seed % 3]
    network = build(target, error=0.1).network
    size = fmpq(1, int(rng.integers(4, 400)))

    def moved(array: Any) -> Any:
        noise = np.array([fmpq(int(v), 64) * size for v in rng.integers(-64, 65, array.size)], dtype=object).reshape(array.shape)
        return np.where(array != 0, array + noise, array)

    first, second = network.layers
    hidden = replace(first.feedforward, outer=moved(first.feedforward.outer), bias=moved(first.feedforward.bias))
    head = replace(
        second.attention, query=moved(second.attention.query), key=moved(second.attention.key), value=moved(second.attention.value)
    )
    broken = replace(network, layers=(replace(first, feedforward=hidden), replace(second, attention=head)))
    found = verify(broken, target, "centred", "spline")
    tokens = target.draw(rng, (3000, target.length))
    tokens[:1000, :, 1:] = rng.integers(0, 2, tokens[:1000, :, 1:].shape)
    errors = np.abs(evaluate(broken, tokens).astype(float) - target.values(np)(tokens))
    assert errors.max() <= found.certified * (1 + 1e-9) + 1e-12 and found.witness <= found.certified


@pytest.mark.deep
def test_the_remedy_of_too_small_an_error_works() -> None:
    target = nearest_point(2)
    with pytest.raises(Refusal, match="splines of 512 pieces") as caught:
        build(target, error=1e-8)
    (remedy,) = caught.value.remedies
    built = build(target, **remedy)
    assert verify(built.network, target, built.bank, built.ffn).certified <= float(str(remedy["error"]))


WRONG = [
    ({"length": 0}, "length"),
    ({"space": 9}, "space"),
    ({"rho": "u1*v3"}, "v3"),
    ({"rho": ["u1*u2*v1"], "points": None}, "u1 and u2"),
    ({"f": ["x1*x2"], "points": None, "rho": "u1*v1"}, "x1 and x2"),
    ({"points": [[0, 0], [0, 0]]}, "different"),
    ({"points": [[0, 2]]}, "outside"),
    ({"points": [[0]]}, "2 coordinates"),
    ({"points": 3}, "list of vectors"),
    ({"points": [[[0, 0]], [[1, 1]]]}, "2 sets for 4"),
    ({"F": "y3"}, "y3"),
    ({"F": 4}, "text"),
    ({"rho": "log(u1)"}, "finite"),
    ({"readout": "y1"}, "unknown key"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_targets_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    data = {"kind": "points", **FINITE["shared"], **change}
    with pytest.raises(InputError, match=message):
        points_from_dict({name: value for name, value in data.items() if value is not None}, "test")


def test_tokens_must_be_points_at_their_positions() -> None:
    target = finite("shared")
    tokens = target.draw(np.random.default_rng(0), (2, 4))
    target.check_tokens(tokens, "x")
    target.check_tokens(tokens.astype("float32").astype(float), "x")
    for wrong, message in (
        (tokens[:, ::-1], "position"),
        (tokens[:, :3], "4 positions"),
        (tokens + np.array([0, 0.1, 0]), "none of its points"),
    ):
        with pytest.raises(InputError, match=message):
            target.check_tokens(wrong, "x")
    with pytest.raises(InputError, match="knots is for boxes"):
        build(target, knots=4)


def test_bundles_from_files(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    built = run("build", "points", "--target", "examples/centre_of_mass.toml", "--out", out, "--json")
    assert built.code == 0, built.err
    found = run("verify", out, "--json")
    assert found.json["verdict"] == "holds" and found.json["theorem"] == "jl-points" and len(found.json["singular_values"]) == 1
    card = json.loads((out / "card.json").read_text())
    assert card["target"]["kind"] == "points"
    promised = run("bound", "jl-points", "--target", "examples/centre_of_mass.toml", "--json")
    assert promised.json["rank"] == 1 and promised.json["worst_case"] <= 0.01
    assert run("build", "coupling", "--target", "examples/centre_of_mass.toml", "--out", tmp_path / "other").code == 2


def test_the_library_takes_points() -> None:
    target = lf.points("2*u1*v1", f="x1", length=2, points=([0], ["1/2"], [1]))
    net = lf.build(target, error=0.01)
    assert net.verify().verdict.value == "holds" and target.describe()["points"] == [["0"], ["1*2^-1"], ["1"]]

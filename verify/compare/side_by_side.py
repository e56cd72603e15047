"""Networks of one target side by side: constructed, trained and imported ones, all numbers from the stored weights.

Sampled, over the same random sequences for every network, at positions whose lags lie inside the array:

* errors |ŷ_t − y_t|, the network in its own arithmetic, the target in float64;
* effective kernels, the mean of ∂ŷ_t/∂x_{t−s} at the last position, beside the target's own (`constructions.run.sensitivity`);
* probes: R² of a linear map from the stream after an attention to a memory (or an adaptive lag), fitted on the first half of the sequences
  and measured on the other.

Certified, where a certificate exists: the worst-case error over all tokens, whatever a network's origin, of one dp-free layer by
`verify.layers.dp_free`, of any network on a finite alphabet by `verify.layers.all_sequences` where all sequences can be gone through; else
of a constructed network by the certificate of its theorem, of others on an alphabet layer by layer. The witness is the largest error known
for certain: where a sample shows more than the certificate's own witness, it is evaluated again in the certificate's arithmetic, the target
in balls, and rounded down.
(The certificate of a finite window speaks of one position; samples at others are no witnesses.)

Beside the mean square errors of networks that are linear in the tokens stands a floor that no decays and weights of so many heads can beat
(`verify.theorems.floors`); a sampled mean square further below it than sampling explains is a fault.

Decays are read as half-lives ln 2/p of lin heads, exponents p of log and kerple heads, and the heaviest distance of table heads. Heads
whose values or outputs are all 0 are off and do not count.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb
from scipy.optimize import linear_sum_assignment

from analyzer.errors import InputError, LemmaformerError, Refusal
from analyzer.numbers.exact import UNIT, lower, rational, working_precision
from analyzer.statements.registry import THEOREMS
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import MemoryTarget, Target, no_memories
from constructions.files.bundle import Bundle
from constructions.network.recurrences import chosen, using
from constructions.network.transformer import Attention, Transformer, to_float
from constructions.run.execute import form_of, run, runs_rounded
from constructions.run.sensitivity import network_kernel, target_kernel
from constructions.run.stream import attended, batches
from verify.bundles.claims import verify_in_form
from verify.chain.certificate import Verdict, finite
from verify.chain.layer import FFN_BITS
from verify.layers import all_sequences, dp_free
from verify.layers.softmax import certificate as softmax
from verify.theorems.floors import contradicted, floor_of
from verify.theorems.no_theorem import (
    ALL_SEQUENCES,
    CANDIDATES,
    DP_FREE,
    LAYER_BY_LAYER,
    SOFTMAX,
    LearntError,
    learnt_error,
    trained_length,
    whole_error,
)

COUNTING_RULE = (
    "parameters: every entry of every stored array (embedding and its bias, decays, W_V, W_O, W_Q, W_K, pointers, tables, B, c, A)"
)
HALVINGS = 10
"""Sequences are so long that every head has seen all but 2^-10 of its weight: less than a figure shows."""
LONGEST = 256
"""Derived lengths end here, unless lags are longer: the reference pass holds N² weights per head."""
MAX_ASSIGNED = 4096
"""Heads that are matched: the cost matrix is 128 MB."""
PROBE_ROWS = 1 << 16
"""Positions a probe is fitted on and measured on: far more than a stream has coordinates."""
NEGLIGIBLE = 2.0**-40
"""Variance, and variance of lags, below this share counts as none: a constant has no R²."""
EVALUATION = 2.0**-40
"""Room for float64's own rounding when a sampled error is held against a certificate: thousands of roundings of numbers of size 1."""


@dataclass(frozen=True)
class ComparisonProtocol:
    """The random sequences; positions from `first` on count."""

    sequences: int
    length: int
    first: int
    seed: int
    tokens: str
    """uniform, signs, or letters where the target has an alphabet."""


def compare(
    networks: Sequence[tuple[str, Bundle]], target: Target, protocol: ComparisonProtocol, step: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """All of it as plain data; equal for equal seeds but for `seconds`."""
    start = time.perf_counter()
    tokens = sequences_of(target, protocol)
    wanted = np.asarray(target.values(np)(tokens))[:, protocol.first :]
    columns, kernels = [], {}
    if target.as_memory_target is not None:
        kernels["target"] = target_kernel(target, tokens)
    for name, bundle in networks:
        step(name)
        column, kernel = _column(name, bundle, target, protocol, tokens, wanted)
        columns.append(column)
        if kernel is not None:
            kernels[name] = kernel
    reference = networks[0][1].network if columns[0]["origin"] == "constructed" else None
    for column, (_, bundle) in zip(columns[1:], networks[1:], strict=True):
        column["decays_off"] = None if reference is None else decays_off(reference, bundle.network)
    return {
        "target": target.describe(),
        "sequences": protocol.sequences,
        "length": protocol.length,
        "first": protocol.first,
        "seed": protocol.seed,
        "tokens": protocol.tokens,
        "counting_rule": COUNTING_RULE,
        "networks": columns,
        "target_kernel": kernels["target"].tolist() if kernels else None,
        "kernel_distances": _distances(kernels),
        "seconds": time.perf_counter() - start,
    }


def origin_of(card: dict[str, Any]) -> str:
    """trained, imported, or constructed where the card does not say."""
    origin = card.get("origin", "constructed")
    if origin not in ("constructed", "trained", "imported"):
        raise InputError(f"a card names the origin {str(origin)[:40]!r}; expected trained, imported or none")
    return str(origin)


def derived_length(target: Target, networks: Sequence[Transformer]) -> int:
    """As many tokens after the settled position as the slowest head, and the target's slowest kernel, need to be seen but for 2^-10."""
    if target.length is not None:
        return target.length
    first = target.settled
    reach = max(HALVINGS, *(sum(_reach(layer.attention) for layer in network.layers) for network in networks))
    reach = max(reach, target.reach(2.0**-HALVINGS, LONGEST))
    return first + min(math.ceil(reach), max(LONGEST - first, HALVINGS))


def _reach(attention: Attention) -> float:
    """Tokens that hold all but 2^-10 of every head's weight: 2^{−s/(half-life)}, or ζ(p, s+1)/ζ(p) ≤ s^{1−p}, which is (1+rs)^{1−p} for
    kerple heads, or the table; steps of a stride are that much longer."""
    decays, reach = _floats(attention.decay), 0.0
    for h in _active(attention):
        match attention.rpe[h]:
            case "lin":
                reach = max(reach, HALVINGS * math.log(2) / decays[h])
            case "log":
                reach = max(reach, LONGEST if decays[h] <= 1 else 2 ** min(HALVINGS / (decays[h] - 1), math.log2(LONGEST)))
            case "kerple":
                fallen = 2 ** min(HALVINGS / (decays[h] - 1), math.log2(LONGEST))
                reach = max(reach, LONGEST if decays[h] <= 1 else fallen / _floats(attention.rate)[h])
            case "table":
                reach = max(reach, attention.table.shape[1])
    return min(reach * attention.stride, LONGEST)


def sequences_of(target: Target, protocol: ComparisonProtocol) -> np.ndarray:
    """Tokens (sequences, length, d). Uniform ones are numbers of float32, so that networks of every type read the same."""
    rng = np.random.default_rng(protocol.seed)
    tokens = target.draw(rng, (protocol.sequences, protocol.length), protocol.tokens == "signs")
    return tokens.astype(np.float32).astype(np.float64) if protocol.tokens == "uniform" else tokens


def _column(
    name: str, bundle: Bundle, target: Target, protocol: ComparisonProtocol, tokens: np.ndarray, wanted: np.ndarray
) -> tuple[dict[str, Any], np.ndarray | None]:
    start, network, card = time.perf_counter(), bundle.network, bundle.card
    outputs, found = _outputs(network, tokens)[:, protocol.first :], certificate(bundle, target, protocol.seed)
    column: dict[str, Any] = {
        "name": name,
        "origin": origin_of(card),
        "theorem": card.get("theorem"),
        "dtype": network.dtype,
        "structure": [_structure(network, index) for index in range(len(network.layers))],
        "sizes": network.sizes(),
        "sampled": _sampled(outputs, wanted),
        "certificate": found,
        "decays": [decays_of(layer.attention) for layer in network.layers],
    }
    seen, where = _certain(bundle, target, found, protocol.first, tokens, outputs, wanted)
    column["faults"] = _faults(column, seen, _everywhere(network, found["by"], protocol.length))
    floor = floor_of(network, target, protocol.tokens, protocol.first, protocol.length)
    column |= {"mean_square_floor": floor.value, "mean_square_floor_reason": floor.reason}
    if contradicted(floor.value, ((outputs - wanted) ** 2).mean(axis=1)):
        column["faults"].append(f"the sampled mean square error is below {floor.value:.6g}, which no {floor.heads} heads can beat")
    if found["witness"] is not None and found["witness"] < seen <= _limit(found):
        found |= {"witness": seen, "witness_input": where}
    kernel, memories = None, target.as_memory_target
    if memories is None:
        reason = no_memories(target)
        column |= {"kernel": None, "kernel_reason": reason, "probes": [], "probes_reason": reason}
    else:
        try:
            kernel = network_kernel(network, tokens)
            column |= {"kernel": kernel.tolist(), "kernel_reason": None}
        except Refusal as refusal:
            column |= {"kernel": None, "kernel_reason": f"not available: {refusal}"}
        try:
            column |= {"probes": probes(network, memories, protocol.first, tokens), "probes_reason": None}
        except Refusal as refusal:
            column |= {"probes": [], "probes_reason": f"not available: {refusal}"}
    return column | {"seconds": time.perf_counter() - start}, kernel


def _structure(network: Transformer, index: int) -> dict[str, Any]:
    layer = network.layers[index]
    attention, ffn = layer.attention, layer.feedforward
    return {
        "kind": attention.kind,
        "window": attention.window,
        "rpe": {kind: attention.rpe.count(kind) for kind in sorted(set(attention.rpe))},
        "off": len(attention.rpe) - len(_active(attention)),
        "width": int(ffn.inner.shape[0]),
        "rounded": any(p != "none" for p in ffn.precision),
    }


def _outputs(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """The network in its own arithmetic; layers that couple tokens in parts that fit into memory."""
    coupled = any(layer.attention.kind in ("dp", "nf") or layer.attention.window != "infinite" for layer in network.layers)
    if not coupled or (network.dtype == "exact" and all(layer.attention.window == "infinite" for layer in network.layers)):
        return np.asarray(run(network, tokens), dtype=np.float64)
    return np.concatenate([np.asarray(run(network, part), dtype=np.float64) for part in batches(network, tokens)])


def _sampled(outputs: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    """Per sequence the root mean square and the maximum over positions: mean and standard deviation over sequences; and over everything."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs(outputs - wanted)
        roots, most = np.sqrt((errors**2).mean(axis=1)), errors.max(axis=1)
        found = {
            "rms": {"mean": float(roots.mean()), "std": float(roots.std(ddof=1))},
            "max": {"mean": float(most.mean()), "std": float(most.std(ddof=1))},
            "overall": {"rms": float(np.sqrt((errors**2).mean())), "max": float(errors.max())},
        }
    plain: dict[str, Any] = {key: {part: finite(v) for part, v in pair.items()} for key, pair in found.items()}
    return plain | {"not_finite": int((~np.isfinite(outputs)).sum())}


def certificate(bundle: Bundle, target: Target, seed: int) -> dict[str, Any]:
    """witness ≤ worst-case error ≤ certified of the network as it runs here, and by whom; or why there is none."""
    with using(form_of(bundle.network, None)):
        return _certificate(bundle, target, seed)


def _certificate(bundle: Bundle, target: Target, seed: int) -> dict[str, Any]:
    length, lettered = _last_of(bundle), target.alphabet is not None
    try:
        return _by_weights(whole_error(bundle.network, target, length, seed))
    except LemmaformerError as error:
        reason = str(error)
    if origin_of(bundle.card) == "constructed" and bundle.card.get("theorem") is not None:
        if target_from_dict(bundle.card.get("target"), "card.json").describe() == target.describe():
            return _by_theorem(bundle, target)
        reason = f"{reason}; the card's theorem speaks of another target"
    if lettered:
        try:
            return _by_weights(learnt_error(bundle.network, target, length, seed))
        except LemmaformerError as error:
            reason = str(error)
    keys = ("by", "witness", "certified", "rounding", "arithmetic", "trivial", "witness_input", "over")
    return {**dict.fromkeys(keys), "reason": reason}


def _by_weights(found: LearntError) -> dict[str, Any]:
    return {
        "by": found.by,
        "witness": found.witness,
        "certified": finite(found.certified),
        "rounding": found.rounding,
        "arithmetic": found.arithmetic,
        "trivial": found.trivial,
        "witness_input": found.witness_input,
        "over": found.over,
        "reason": None,
    }


def _last_of(bundle: Bundle) -> int | None:
    """The length of the arrays that the certificate of a finite or full window speaks of, at their last token; None for infinite ones."""
    windows = {layer.attention.window for layer in bundle.network.layers}
    return trained_length(bundle.card) if windows != {"infinite"} else None


def _everywhere(network: Transformer, by: str | None, length: int) -> bool:
    """Whether a certificate from weights that counts roundings speaks of every settled position of arrays of so many tokens."""
    if by == SOFTMAX:
        return network.layers[0].attention.window == "infinite" and length <= softmax.RUN
    if by == LAYER_BY_LAYER:
        return all(layer.attention.window == "infinite" for layer in network.layers) and length <= all_sequences.LONGEST
    return by != ALL_SEQUENCES or all(layer.attention.table is not None for layer in network.layers)


def _limit(found: dict[str, Any]) -> float:
    return math.inf if found["certified"] is None else float(found["certified"])


def _certain(
    bundle: Bundle, target: Target, found: dict[str, Any], first: int, tokens: np.ndarray, outputs: np.ndarray, wanted: np.ndarray
) -> tuple[float, str]:
    """(the largest error of the sample, rounded down; where), in the certificate's arithmetic; 0 where none exceeds its witness."""
    if found["witness"] is None:
        return 0.0, ""
    errors = np.abs(outputs - wanted)
    covered = np.isfinite(errors) & (errors > found["witness"])
    length = _last_of(bundle)
    if length is not None and found["by"] in (DP_FREE, SOFTMAX, ALL_SEQUENCES, LAYER_BY_LAYER):
        covered &= np.arange(first, tokens.shape[1]) == length - 1
        if any(layer.attention.window == "full" for layer in bundle.network.layers):
            covered &= tokens.shape[1] == length
    best, where = 0.0, ""
    for place in np.argsort(np.where(covered, errors, -1), axis=None)[::-1][: min(CANDIDATES, int(covered.sum()))]:
        row, column = (int(i) for i in np.unravel_index(place, errors.shape))
        error = _certain_error(bundle.network, target, found, tokens[row], first + column, float(outputs[row, column]))
        if error > best:
            best, where = error, f"sampled sequence {row}, token {first + column}, {_how(found['arithmetic'])}"
    return best, where


def _how(arithmetic: str) -> str:
    return f"run in {arithmetic}" if arithmetic in UNIT else "in ball arithmetic"


def _certain_error(network: Transformer, target: Target, found: dict[str, Any], tokens: np.ndarray, t: int, output: float) -> float:
    """|ŷ_t − y_t| from below: ŷ as a float network computed it, or in balls where the certificate is about exact numbers; y in balls."""
    with working_precision(FFN_BITS):
        value = target.exact_value(tokens, t)
        ball = arb(rational(output)) if found["arithmetic"] in UNIT else _exact_output(network, target, str(found["by"]), tokens, t)
        return 0.0 if ball is None else lower(abs(ball - value))


def _exact_output(network: Transformer, target: Target, by: str, tokens: np.ndarray, t: int) -> arb | None:
    """ŷ_t in balls, as the certificate's own room evaluates it; where it says nothing as one dp-free layer, or as any network."""
    rooms = {DP_FREE: dp_free, SOFTMAX: all_sequences, ALL_SEQUENCES: all_sequences, LAYER_BY_LAYER: all_sequences}
    room = rooms.get(by) or sys.modules[THEOREMS[by].verified_by().__module__]
    usual = dp_free if len(network.layers) == 1 and not runs_rounded(network) else all_sequences
    evaluate: Callable[[Transformer, Target, np.ndarray, int], arb | None] = getattr(room, "output_at", usual.output_at)
    return evaluate(network, target, tokens, t)


def _by_theorem(bundle: Bundle, target: Target) -> dict[str, Any]:
    found = verify_in_form(bundle, chosen(), norm="sup")
    return {
        "by": found.theorem,
        "witness": found.witness,
        "certified": finite(found.certified),
        "rounding": None if found.rounding is None else finite(found.rounding),
        "arithmetic": found.dtype,
        "trivial": finite(found.trivial),
        "witness_input": found.witness_input,
        "over": target.tokens_text,
        "reason": found.advice if found.verdict is Verdict.VIOLATED else None,
    }


def _faults(column: dict[str, Any], seen: float, everywhere: bool) -> list[str]:
    """What contradicts the certificate: a witness or a sampled error above it (`seen`: one that is certain), or the certificate's own
    faults. Samples count where it speaks of all of them (`everywhere`)."""
    found, worst = column["certificate"], column["sampled"]["overall"]["max"]
    if found["by"] is None:
        return []
    faults = [] if found["reason"] is None else [found["reason"]]
    if found["certified"] is None:
        return faults
    if found["witness"] is not None and not found["witness"] <= found["certified"]:
        faults.append(f"the witness {found['witness']:.6g} exceeds the certified error {found['certified']:.6g}")
    counted = everywhere and found["rounding"] is not None  # a certificate of the weights alone says nothing about a run in floats
    if counted and not (worst is not None and worst <= found["certified"] * (1 + EVALUATION) + EVALUATION):
        size = "that is not finite" if worst is None else f"of {worst:.6g}"
        faults.append(f"a sampled error {size} exceeds the certified error {found['certified']:.6g}")
    elif seen > found["certified"]:
        faults.append(f"a sampled error of {seen:.6g}, in the certificate's own arithmetic, exceeds it: {found['certified']:.6g}")
    return faults


def _floats(weights: Any) -> np.ndarray:
    array = np.asarray(weights)
    return to_float(array, "float64") if array.dtype == object else array.astype(np.float64)


def _active(attention: Attention) -> list[int]:
    """Heads that write anything."""
    value, output = np.asarray(attention.value), np.asarray(attention.output)
    return [h for h in range(len(attention.rpe)) if (value[h] != 0).any() and (output[h] != 0).any()]


def decays_of(attention: Attention) -> dict[str, Any]:
    """Half-lives of lin heads in tokens, exponents of log and kerple heads, both increasing; of table heads the distance with the most
    weight, and its share."""
    decays, active = _floats(attention.decay), _active(attention)
    found: dict[str, Any] = {
        "half_lives": sorted(attention.stride * math.log(2) / float(decays[h]) for h in active if attention.rpe[h] == "lin"),
        "exponents": sorted(float(decays[h]) for h in active if attention.rpe[h] in ("log", "kerple")),
        "tables": [],
    }
    if attention.table is not None:
        biases = _floats(attention.table)[active]
        weights = np.exp(biases - biases.max(axis=1, keepdims=True, initial=-np.inf))
        shares = weights / weights.sum(axis=1, keepdims=True)
        found["tables"] = sorted(
            ({"distance": int(row.argmax()), "share": float(row.max())} for row in shares), key=lambda t: (t["distance"], t["share"])
        )
    return found


def decays_off(reference: Transformer, network: Transformer) -> dict[str, Any] | None:
    """Mean |log p − log p'| over the best assignment of heads of one type, all layers together; None if no type occurs in both."""
    total, pairs, heads = 0.0, 0, [0, 0]
    for kind in ("lin", "log"):
        ours, theirs = (np.log(_decays(found, kind)) for found in (reference, network))
        heads = [heads[0] + len(ours), heads[1] + len(theirs)]
        if max(len(ours), len(theirs)) > MAX_ASSIGNED:
            return None
        cost = np.abs(ours[:, None] - theirs[None, :])
        rows, columns = linear_sum_assignment(cost)
        total, pairs = total + float(cost[rows, columns].sum()), pairs + len(rows)
    return {"mean_log_ratio": total / pairs, "pairs": pairs, "unmatched": [count - pairs for count in heads]} if pairs else None


def _decays(network: Transformer, kind: str) -> np.ndarray:
    """Decays of heads of one type; those of lin heads per token, whatever their stride."""
    attentions = [layer.attention for layer in network.layers]
    found = [_floats(a.decay)[[h for h in _active(a) if a.rpe[h] == kind]] / (a.stride if kind == "lin" else 1) for a in attentions]
    return np.sort(np.concatenate(found))


def probes(network: Transformer, target: MemoryTarget, first: int, tokens: np.ndarray) -> list[dict[str, Any]]:
    """R² on the second half of the sequences, per layer and memory; null for memories that do not vary."""
    positions = tokens.shape[1] - first
    used = tokens[: 2 * max(1, min(len(tokens) // 2, PROBE_ROWS // positions))]
    wanted = [(name, values[:, first:]) for name, values in _probed(target, used)]
    found = []
    for layer, stream in enumerate(attended(network, used, first)):
        fit, test = _features(stream[: len(used) // 2]), _features(stream[len(used) // 2 :])
        scale = np.abs(fit).max(axis=0)
        scale[scale == 0] = 1
        for name, values in wanted:
            half = [part.reshape(-1, part.shape[-1]) for part in (values[: len(used) // 2], values[len(used) // 2 :])]
            found.append({"layer": layer, "memory": name, "r2": _r2(fit / scale, half[0], test / scale, half[1])})
    return found


def _features(stream: np.ndarray) -> np.ndarray:
    flat = stream.reshape(-1, stream.shape[-1])
    return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)


def _r2(fit: np.ndarray, seen: np.ndarray, test: np.ndarray, wanted: np.ndarray) -> float | None:
    """1 − Σ(error)²/Σ(deviation)², over all coordinates of a memory."""
    deviation = float(((wanted - wanted.mean(axis=0)) ** 2).sum())
    if not (np.isfinite(fit).all() and np.isfinite(test).all()) or not deviation > NEGLIGIBLE * wanted.size:
        return None
    weights = np.linalg.lstsq(fit, seen, rcond=None)[0]
    return finite(1 - float(((test @ weights - wanted) ** 2).sum()) / deviation)


def _probed(target: MemoryTarget, tokens: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Memories, then lags that depend on tokens, (batch, N, coordinates) each."""
    seen, dim, lags = np.asarray(target.memory_values(np)(tokens)), target.dim, target.lag_values(np)
    found = [(name, seen[..., k * dim : (k + 1) * dim]) for k, name in enumerate(target.names, start=1)]
    if lags is not None:
        steps = np.asarray(lags(tokens), dtype=np.float64)
        found += [(f"lag of {name}", steps[..., k : k + 1]) for k, name in enumerate(target.names)]
    return found


def _distances(kernels: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """‖κ_A − κ_B‖₁ of every pair, over the distances of the array and all token coordinates."""
    names = list(kernels)
    return [
        {"a": a, "b": b, "l1": finite(float(np.abs(kernels[a] - kernels[b]).sum()))} for k, a in enumerate(names) for b in names[k + 1 :]
    ]

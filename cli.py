"""The command line of lemmaformer.

Heavy parts are imported inside the commands that need them, so that `--help` and `bound` answer without loading JAX.
Exit codes: 0 done and holds, 1 a claim is violated, 2 bad input (one line on stderr).
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from analyzer.errors import InputError, LemmaformerError, OptionValue, Refusal

RPE = click.Choice(["lin", "log"])
BANK = click.Choice(["paper", "tuned", "minimal"])
LAYER_RPE = click.Choice(["lin", "log", "mixed"])
FIXED_BANK = click.Choice(["paper", "tuned", "minimal", "balanced"])
FFN = click.Choice(["spline", "barron"])
DTYPE_BITS = {"bfloat16": 8, "float32": 24, "float64": 53}
"""B of the unit roundoff 2^-B."""
ARITHMETIC = click.Choice(list(DTYPE_BITS))
MAX_LIMIT_HEADS = 64
"""Heads of a bank that `limits lag` looks for; with more the optimum over any number is as good."""
MAX_BOUND_HEADS = 10**8
"""More heads than any model has: a larger number is taken for a mistake."""
MAX_TOKENS = 1 << 24
"""Numbers in an input array: 128 MB of float64."""


MAX_COMPARED = 8
"""Columns that a page holds."""
MAX_SEQUENCES = 1 << 16
MAX_LENGTH = 1 << 12
"""Tokens per sequence in comparisons, where the reference pass holds N² weights per head: 2^24 of them."""


_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_quiet = click.option("--quiet", is_flag=True, help="No progress display.")


def _emit(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False))


def _lags(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"-?[0-9]{1,9}(,-?[0-9]{1,9})*", text.replace(" ", "")) is None:
        raise InputError(f"--lags {text[:40]!r} is not a list of whole numbers such as 2,5")
    return tuple(int(part) for part in text.split(","))


def _positive_error(error: float | None) -> float | None:
    if error is not None and not 0 < error < float("inf"):
        raise InputError(f"--error {error} must be a positive number")
    return error


def _checked_heads(heads: int | None, limit: int) -> int | None:
    if heads is not None and not 1 <= heads <= limit:
        raise InputError(f"--heads {heads} is out of range; give 1 to {limit}")
    return heads


@click.group()
@click.version_option(package_name="lemmaformer")
def cli() -> None:
    """Theorems about Transformers as running, certified code."""


@cli.command()
@click.argument("theorem_id", required=False)
@click.option("--latex", is_flag=True, help="The bound in LaTeX.")
@click.option("--graph", is_flag=True, help="The proof as a tree of lemmas with their budgets.")
@click.option("--dot", is_flag=True, help="The proof graph in Graphviz's language.")
@click.option(
    "--target", "target_file", type=click.Path(path_type=Path), help="An adaptive target: who depends on whom, or with an id its proof."
)
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--bank", type=BANK, default="tuned", show_default=True)
@_json
def theorems(
    theorem_id: str | None, latex: bool, graph: bool, dot: bool, target_file: Path | None, rpe: Any, bank: str, as_json: bool
) -> None:
    """What is implemented: statement, constants, proof graph; with --target, who depends on whom."""
    from analyzer.theorems import LIMITS, limit

    if theorem_id in LIMITS:
        if latex or graph or dot or target_file is not None:
            raise InputError(f"{theorem_id} is a limit, with its proof as text; --latex, --graph, --dot and --target are for theorems")
        _show_limit(limit(theorem_id), as_json)
        return
    if theorem_id is not None:
        _theorem(theorem_id)
    if target_file is not None and theorem_id is None:
        _show_memories(target_file, dot, as_json)
        return
    if theorem_id is None and (latex or graph or dot):
        raise InputError("--latex, --graph and --dot need the id of a theorem, or --target")
    from analyzer.latex import latex as latex_of
    from analyzer.proof import dot as dot_text
    from analyzer.proof import tree_lines
    from analyzer.theorems import THEOREMS

    if theorem_id is None:
        rows = [{"id": name, "title": module.TITLE} for name, module in {**THEOREMS, **{n: limit(n) for n in LIMITS}}.items()]
        if as_json:
            _emit({"theorems": rows})
        else:
            for row in rows:
                click.echo(f"{row['id']:15} {row['title']}")
        return
    module = _theorem(theorem_id)
    if target_file is None:
        proof = module.proof_graph(rpe, bank, "spline", (4,) if theorem_id == "thm-3.1" else (2, 4))
    else:
        proof = _proof_of_target(theorem_id, module.TITLE, target_file, rpe, bank)
    formula = latex_of(module.expression(rpe, bank))
    if as_json:
        keys = ("title", "relation", "budget")
        nodes = [{"name": name, **{key: str(data[key]) for key in keys}} for name, data in proof.nodes(data=True)]
        edges = [list(edge) for edge in proof.edges]
        statement = module.STATEMENT[rpe]
        _emit({"id": theorem_id, "title": module.TITLE, "statement": statement, "latex": formula, "lemmas": nodes, "uses": edges})
    elif latex:
        click.echo(formula)
    elif dot:
        click.echo(dot_text(proof))
    elif graph:
        click.echo("\n".join(tree_lines(proof)))
    else:
        click.echo(module.__doc__.strip())


def _show_limit(module: Any, as_json: bool) -> None:
    """The page of a limit: statement and proof."""
    if as_json:
        _emit({"id": module.ID, "title": module.TITLE, "page": module.__doc__.strip()})
    else:
        click.echo(module.__doc__.strip())


def _show_memories(path: Path, dot: bool, as_json: bool) -> None:
    target = _adaptive_target(path)
    if as_json:
        memories = [
            {"name": n, "level": target.levels[n], "parents": target.parents[n], "lags": target.occurring(k)}
            for k, n in enumerate(target.names)
        ]
        _emit({"memories": memories, "levels": target.depth, "layers": target.depth + 1, "situations": len(target.situations)})
    else:
        click.echo(target.dot() if dot else "\n".join(target.tree_lines()))


def _proof_of_target(theorem_id: str, title: str, path: Path, rpe: Any, bank: str) -> Any:
    """The proof for the memories of a target."""
    from analyzer.theorems.thm_4_4 import target_graph, theorem_of

    target = _adaptive_target(path)
    fitting = sorted({theorem_of(target, attention, deep) for attention in ("dp", "tmx") for deep in (False, True)})
    if theorem_id not in fitting:
        raise InputError(f"{theorem_id} does not speak of this target, but {' or '.join(fitting)} does")
    return target_graph(target, rpe, bank, "spline", theorem_id, title)


def _adaptive_target(path: Path) -> Any:
    from analyzer.targets import adaptive_target, read_toml

    return adaptive_target(read_toml(path), str(path))


def _theorem(theorem_id: str) -> Any:
    from analyzer.theorems import LIMITS, THEOREMS

    if theorem_id in LIMITS:
        raise InputError(f"{theorem_id} is a limit, not the bound of a size; lemmaformer limits evaluates those, theorems states them")
    if theorem_id not in THEOREMS:
        raise InputError(f"unknown theorem {theorem_id[:40]!r}; known: {', '.join(THEOREMS)}; limits: {', '.join(LIMITS)}")
    return THEOREMS[theorem_id]


@cli.command()
@click.argument("theorem_id")
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--lags", help="Lags such as 4 or 2,5; for adaptive memories the longest lag of each.")
@click.option("--target", "target_file", type=click.Path(path_type=Path), help="An adaptive target, instead of --lags.")
@click.option("--kernel", "kernels", multiple=True, help="thm-5.1: a kernel in s such as 'exp(-s/5)'; once per memory.")
@click.option("--chain", type=int, help="thm-4.4 with --lags: how many memories form the chain; the rest is parallel.  [default: all]")
@click.option("--heads", type=int, help="Heads in all (thm-3.1), or in every layer.")
@click.option("--tuning", type=click.Choice(["paper", "tuned"]), default="tuned", show_default=True)
@click.option("--rate", default="best", show_default=True, help="The rate n, or best.")
@click.option("--share", is_flag=True, help="Every lag uses all heads.")
@click.option("--solve", type=click.Choice(["heads", "width", "rank"]), help="Solve for a size; needs --error.")
@click.option("--error", type=float)
@click.option("--readout", help="With --solve width: the read-out, e.g. 'x0 + m1*m2'.")
@click.option("--dim", type=int, default=1, show_default=True)
@click.option("--ffn", type=FFN, default="spline", show_default=True)
@click.option("--rank", type=int, help="jl-4.2 with --target: m_h, the query and key coordinates.")
@click.option("--knots", type=int, help="jl-4.2: pieces of the splines.  [default: the fewest for --error, or for 0.01]")
@_json
def bound(
    theorem_id: str,
    rpe: Any,
    lags: str | None,
    target_file: Path | None,
    kernels: tuple[str, ...],
    chain: int | None,
    heads: int | None,
    tuning: str,
    rate: str,
    share: bool,
    solve: str | None,
    error: float | None,
    readout: str | None,
    dim: int,
    ffn: str,
    rank: int | None,
    knots: int | None,
    as_json: bool,
) -> None:
    """Evaluate a bound, or solve it for a size."""
    _theorem(theorem_id)
    if theorem_id == "jl-4.2":
        if target_file is None or (rank is None) == (solve != "rank") or lags or kernels or heads is not None:
            raise InputError("jl-4.2 takes --target and --rank, or --solve rank with --error")
        found = _coupling_bound(target_file, rank, knots, _positive_error(error))
        if as_json:
            _emit(found)
        else:
            from verify.report import show_bound

            show_bound(found)
        return
    if rank is not None or knots is not None or solve == "rank":
        raise InputError("--rank, --knots and --solve rank go with jl-4.2")
    if theorem_id == "prop-4.2":
        raise InputError("prop-4.2 is no rate; its two numbers are in: lemmaformer limits dp-free")
    if theorem_id == "shift-chain":
        raise InputError("shift-chain is the law L·H ≥ T and a product over layers; plan one with: lemmaformer build fixed --depth auto")
    _positive_error(error)
    if solve is not None and error is None:
        raise InputError(f"--solve {solve} needs --error")
    if (solve is None) == (heads is None):
        raise InputError("give either --heads, or --solve with --error")
    if (theorem_id == "thm-5.1") != bool(kernels):
        raise InputError("--kernel goes with thm-5.1, and thm-5.1 needs it")
    if (lags is None) == (target_file is None) and not kernels:
        raise InputError("give either --lags or, for an adaptive target, --target")
    if rate != "best" and re.fullmatch("[0-9]{1,3}", rate) is None:
        raise InputError(f"--rate {rate[:20]!r} is neither a whole number nor 'best'")
    _checked_heads(heads, MAX_BOUND_HEADS)
    whole_rate = None if rate == "best" else int(rate)
    if kernels:
        if lags or target_file or chain is not None or share or readout or dim != 1 or solve == "width":
            raise InputError("thm-5.1 takes --kernel, --rpe, --tuning, --rate and --heads or --solve heads --error")
        result: dict[str, Any] = _kernel_bound(kernels, rpe, heads, tuning, whole_rate, error)
    elif theorem_id == "thm-3.1":
        from analyzer.targets import FixedMemory

        if target_file is not None or chain is not None:
            raise InputError("--target and --chain go with the adaptive theorems; thm-3.1 takes --lags")
        if readout is not None and solve != "width":
            raise InputError("--readout goes with --solve width: the attention part does not depend on it")
        target = FixedMemory(_lags(lags or ""), dim, readout)
        result = {"lags": list(target.lags)}
        if solve == "width":
            result |= _width(target, ffn, error)
        else:
            result |= _attention(target.lags, rpe, heads, tuning, whole_rate, share, solve, error)
    else:
        if share or readout is not None or dim != 1:
            raise InputError("--share, --readout and --dim go with thm-3.1; heads that read a lag slot cannot be shared")
        adaptive = None if target_file is None else _adaptive_target(target_file)
        if solve == "width":
            if adaptive is None:
                raise InputError("--solve width needs --target: the width depends on the read-out")
            result = _width(adaptive, ffn, error)
        else:
            result = _leveled(theorem_id, adaptive, lags, chain, rpe, heads, tuning, whole_rate, error)
    result = {"theorem": theorem_id, **result}
    if as_json:
        _emit(result)
    elif "comparison" in result:
        from verify.report import show_comparison

        show_comparison(result)
    else:
        from verify.report import show_bound

        show_bound(result)


def _coupling_bound(path: Path, rank: int | None, knots: int | None, error: float | None) -> dict[str, Any]:
    """Theorem 4.2 of Jiang & Li for a target: the worst case, and means with the exponents as printed and as repaired."""
    from analyzer.exact import upper
    from analyzer.latex import latex as latex_of
    from analyzer.low_rank import averages, budget, hull_knots, is_affine, plan_sizes, uniform_knots
    from analyzer.theorems import jl_4_2

    if rank is None and error is None:
        raise InputError("--solve rank needs --error")
    target = _coupling_target(path, None, None, None, None)
    m, pieces = plan_sizes(target, "pod", rank, knots, jl_4_2.DEFAULT_ERROR if error is None else error, "exact")
    readout_pieces = 1 if is_affine(target) else pieces
    promised = budget(target, "pod", m, uniform_knots(pieces), hull_knots(target, readout_pieces), "exact")
    means = averages(target, promised, "pod", m, uniform_knots(pieces))
    return {
        "theorem": jl_4_2.ID,
        "rank": m,
        "knots": pieces,
        "readout_knots": readout_pieces,
        "tail": upper(promised.tail),
        "interpolation": upper(promised.interpolation),
        "values": upper(promised.values),
        "readout": upper(promised.readout),
        "worst_case": upper(promised.total),
        "mean_l1": upper(means.l1),
        "root_mean_square": upper(means.root_mean_square),
        "printed_rate": str(jl_4_2.PRINTED),
        "repaired_rate": str(jl_4_2.REPAIRED),
        "mean_square_rate": str(jl_4_2.MEAN_SQUARE),
        "expression": str(jl_4_2.EXPRESSION),
        "latex": latex_of(jl_4_2.EXPRESSION),
    }


def _kernel_bound(
    kernels: tuple[str, ...], rpe: Any, heads: int | None, tuning: str, rate: int | None, error: float | None
) -> dict[str, Any]:
    """Theorem 5.1 for the given kernels."""
    from analyzer.exact import nearest, upper
    from analyzer.latex import latex as latex_of
    from analyzer.targets import KernelMemory
    from analyzer.theorems import thm_5_1

    parsed = KernelMemory(kernels).parsed
    if heads is None:
        assert error is not None
        found = thm_5_1.solve_heads(rpe, parsed, error, tuning, rate)
    else:
        found = thm_5_1.attention_bound(rpe, parsed, heads, tuning, rate)
    expression = thm_5_1.expression(rpe, tuning)
    envelopes = [kernel.envelope for kernel in parsed]
    variations = [upper(thm_5_1.bump_variation(rpe, kernel, n, t)) for kernel, n, t in zip(parsed, found.rates, found.tunings, strict=True)]
    return {
        "kernels": list(kernels),
        "rpe": rpe,
        "tuning": tuning,
        "attention": upper(found.total),
        "heads": sum(found.heads),
        "split": list(found.heads),
        "rate": list(found.rates),
        "alpha": [nearest(t.alpha) for t in found.tunings],
        "gamma": [nearest(t.gamma) for t in found.tunings],
        "variation": variations,
        "errors": [upper(e) for e in found.errors],
        "envelopes": [{"shape": e.shape, "rate": nearest(e.rate), "constant": nearest(e.constant)} for e in envelopes],
        "expression": str(expression),
        "latex": latex_of(expression),
    }


def _leveled(
    theorem_id: str,
    target: Any,
    lags: str | None,
    chain: int | None,
    rpe: Any,
    heads: int | None,
    tuning: str,
    rate: int | None,
    error: float | None,
) -> dict[str, Any]:
    """Bounds with H heads in every layer: one level after the other, and for prop-4.5 two layers beside M + 1."""
    from analyzer.adaptive import MAX_LAG
    from analyzer.latex import latex as latex_of
    from analyzer.theorems.thm_3_1 import attention_expression
    from analyzer.theorems.thm_4_4 import parallel_levels

    longest = _lags(lags or "") if target is None else tuple(max(target.occurring(k)) for k in range(len(target.memories)))
    if not all(1 <= lag <= MAX_LAG for lag in longest):
        raise InputError(f"lags are whole numbers from 1 to {MAX_LAG}")
    if chain is not None and (theorem_id != "thm-4.4" or target is not None or not 0 <= chain <= len(longest)):
        raise InputError(f"--chain goes with thm-4.4 and --lags, and counts at most the {len(longest)} memories")
    if target is not None and target.depth > 1 and theorem_id != "thm-4.4":
        raise InputError(f"this target has {target.depth} levels; {theorem_id} is about lags of the current token, use thm-4.4")
    if theorem_id != "thm-4.4":
        levels = [list(longest)]
    elif target is not None:
        levels = [[longest[k] for k in group] for group in target.schedule(False)]
    else:
        levels = parallel_levels(longest, len(longest) if chain is None else chain)
    expression = attention_expression(rpe, longest)
    result = {"rpe": rpe, "tuning": tuning, "lags": list(longest), "levels": levels}
    flat = _one_bound(rpe, levels, heads, tuning, rate, error)
    result |= flat
    if target is not None:
        result["memories"] = _lag_widths(target, rpe)
    if theorem_id == "prop-4.5":
        deep = [[lag] for lag in longest]
        widths = [row["width_theorem"] for row in result["memories"]] if target is not None else None
        shallow = flat | {"inner_width": sum(widths) if widths else None}
        deeper = _one_bound(rpe, deep, heads, tuning, rate, error) | {"inner_width": max(widths) if widths else None}
        result |= deeper | {"levels": deep, "comparison": {"two layers": shallow, "M + 1 layers": deeper}}
    return result | {"expression": str(expression), "latex": latex_of(expression)}


def _one_bound(rpe: Any, levels: list[list[int]], heads: int | None, tuning: str, rate: int | None, error: float | None) -> dict[str, Any]:
    from analyzer.exact import nearest, upper
    from analyzer.theorems.thm_4_4 import leveled_bound, solve_heads

    if heads is None:
        assert error is not None
        found = solve_heads(rpe, levels, error, tuning, rate)
    else:
        found = leveled_bound(rpe, levels, heads, tuning, rate)
    return {
        "layers": len(levels) + 1,
        "heads": found.heads,
        "split": [list(level.heads) for level in found.levels],
        "rate": [level.rate for level in found.levels],
        "alpha": [[nearest(t.alpha) for t in level.tunings] for level in found.levels],
        "gamma": [[nearest(t.gamma) for t in level.tunings] for level in found.levels],
        "errors": [upper(e) for e in found.errors],
        "attention": upper(found.total),
        "root_sum_square": upper(found.root_sum_square),
    }


def _lag_widths(target: Any, rpe: Any) -> list[dict[str, Any]]:
    """Barron norms and sampling widths of a target's lags, for dot-product attention and parents without error."""
    from analyzer.exact import upper
    from analyzer.lag_encoding import encode, rounding_margin, slot_form

    rows, form = [], slot_form(rpe, "dp")
    for k, name in enumerate(target.names):
        encoding = encode(target, k)
        margin = rounding_margin(form, max(target.occurring(k)))
        row: dict[str, Any] = {"name": name, "lags": list(target.occurring(k)), "margin": upper(margin)}
        rows.append(row | encoding.describe(form, margin))
    return rows


def _width(target: Any, ffn: str, error: float | None) -> dict[str, Any]:
    """Width for a read-out error on the paper's domain [−2, 2]^D."""
    from flint import arb

    from analyzer import feedforward
    from analyzer.exact import upper
    from analyzer.latex import latex as latex_of

    radii = [arb(2)] * target.readout.coordinates
    plan = feedforward.plan_feedforward(ffn, target.readout, radii, None, error)
    expression = feedforward.SPLINE if ffn == "spline" else feedforward.BARRON
    return {
        "ffn": ffn,
        "width": plan.width,
        "readout": target.readout.text,
        "readout_error": upper(plan.error),
        "domain": "[-2, 2]^D",
        "barron_norm": upper(target.readout.barron_norm(radii)),
        "lipschitz": [upper(v) for v in target.readout.lipschitz(radii)],
        "expression": str(expression),
        "latex": latex_of(expression),
    }


def _attention(
    lags: tuple[int, ...], rpe: Any, heads: int | None, tuning: str, rate: int | None, share: bool, solve: str | None, error: float | None
) -> dict[str, Any]:
    from analyzer import extraction as ex
    from analyzer.bump import variation
    from analyzer.exact import nearest, upper
    from analyzer.latex import latex as latex_of
    from analyzer.theorems.lag_law import lag_law
    from analyzer.theorems.thm_3_1 import attention_expression

    if solve == "heads":
        assert error is not None
        found = ex.solve_heads(rpe, lags, error, tuning, rate, share)
    else:
        assert heads is not None
        found = ex.attention_bound(rpe, lags, heads, tuning, rate, share)
    expression = attention_expression(rpe, lags)
    law = lag_law(rpe, lags, error if error is not None else 0.0)
    alphas, gammas = ([nearest(getattr(t, name)) for t in found.tunings] for name in ("alpha", "gamma"))
    single = len(set(zip(alphas, gammas, strict=True))) == 1
    result = {
        "rpe": rpe,
        "tuning": tuning,
        "attention": upper(found.total),
        "heads": found.total_heads,
        "rate": found.rate,
        "alpha": alphas[0] if single else alphas,
        "gamma": gammas[0] if single else gammas,
        "variation": upper(variation(found.rate)),
        "split": list(found.heads),
        "shared": share,
        "lower_bound_heads": law.heads,
        "lower_bound_status": law.status,
        "expression": str(expression),
        "latex": latex_of(expression),
    }
    hand = ex.hand_tuning(rpe, lags[0])
    if tuning == "tuned" and len(lags) == 1 and hand is not None:
        value = ex.extraction_bound(rpe, lags[0], found.total_heads, found.rate, hand)
        result["closed_form"] = {"alpha": nearest(hand.alpha), "gamma": nearest(hand.gamma), "attention": upper(value)}
    return result


@cli.group()
def build() -> None:
    """Build a network and write it as a bundle."""


@build.command()
@click.option("--lags", help="Lags such as 2,5.")
@click.option("--target", "target_file", type=click.Path(path_type=Path), help="A TOML file with the target.")
@click.option("--dim", type=int, default=1, show_default=True, help="Token dimension (with --lags).")
@click.option("--readout", help="Read-out such as 'x0 + m1*m2' (with --lags); default: the sum of the memories.")
@click.option("--rpe", type=LAYER_RPE, default="lin", show_default=True, help="mixed: one log head and lin heads, for one odd lag.")
@click.option("--bank", type=FIXED_BANK, default="minimal", show_default=True)
@click.option("--heads", type=int, help="Heads in all; with --depth the most in a layer.")
@click.option("--error", type=float, help="Total error, certified.  [default: 0.01 unless --heads is given]")
@click.option("--ffn", type=FFN, default="spline", show_default=True)
@click.option("--width", type=int, help="Neurons of the read-out.")
@click.option("--dtype", type=click.Choice(["exact", "float64", "float32"]), default="exact", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of Barron sampling.")
@click.option("--share", is_flag=True, help="Paper and tuned banks: every lag uses all heads.")
@click.option("--depth", help="A chain of shifts: a number of layers, or auto for the fewest layers, then the fewest heads in all.")
@click.option("--restore", is_flag=True, help="With --depth: reset values to letters after every shift.")
@click.option("--alphabet", help="With --restore: the letters that tokens are made of, such as -1,1.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
@_quiet
def fixed(
    lags: str | None,
    target_file: Path | None,
    dim: int,
    readout: str | None,
    rpe: Any,
    bank: str,
    heads: int | None,
    error: float | None,
    ffn: str,
    width: int | None,
    dtype: str,
    seed: int,
    share: bool,
    depth: str | None,
    restore: bool,
    alphabet: str | None,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fixed memories: y_t = f(x_t, x_{t-T1}, …) by Theorem 3.1 in one layer or, with --depth, by a chain of shifts."""
    from analyzer.targets import FixedMemory, fixed_target, read_toml

    if (lags is None) == (target_file is None):
        raise InputError("give either --lags or --target")
    if target_file:
        target = fixed_target(read_toml(target_file), str(target_file))
    else:
        target = FixedMemory(_lags(lags or ""), dim, readout, None if alphabet is None else _letters(alphabet, "--alphabet"))
    if target_file and (dim != 1 or readout is not None or alphabet is not None):
        raise InputError("--dim, --readout and --alphabet go with --lags; a target file has its own")
    if share and bank == "minimal":
        raise InputError("--share goes with paper and tuned banks; a minimal bank always serves all lags")
    if seed < 0:
        raise InputError(f"--seed {seed} is negative")
    from analyzer.theorems.thm_3_1 import DEFAULT_ERROR, check_layer, check_sizes

    if depth is None and (restore or target.alphabet is not None):
        raise InputError("--restore and --alphabet need layers to restore after: add --depth auto")
    if target.alphabet is not None and not restore:
        raise InputError("the alphabet is what --restore resets values to: add --restore, or leave the alphabet out")
    if depth is not None:
        if share:
            raise InputError("--share goes with one layer; a chain of shifts always shares its heads")
        options: dict[str, Any] = {"bank": bank, "depth": _depth(depth), "heads": heads, "width": width, "dtype": dtype}
        options["error"] = DEFAULT_ERROR if error is None else error
        from analyzer.theorems.shift_chain import check_options

        check_options(target, rpe, restore=restore, **options)
        _chain(target, {**options, "ffn": ffn, "seed": seed}, out, as_json, quiet)
        return
    check_layer(target, rpe, bank, heads, dtype, error)
    check_sizes(target, rpe, bank, heads, error, width)

    from constructions.card import check_output

    check_output(out)
    from constructions.thm_3_1 import build as build_network
    from verify.report import progress
    from verify.thm_3_1 import verify as certify

    with progress("building and certifying", quiet or as_json):
        built = build_network(
            target, rpe=rpe, bank=bank, heads=heads, error=error, ffn=ffn, width=width, dtype=dtype, seed=seed, share=share
        )
        certificate = certify(built.network, target, bank, ffn)
    asked = error if error is not None or heads is not None else DEFAULT_ERROR
    _finish(built, certificate, asked, out, as_json)


def _depth(text: str) -> int | None:
    """A number of layers; None for auto."""
    if text == "auto":
        return None
    if re.fullmatch("-?[0-9]{1,9}", text) is None:
        raise InputError(f"--depth {text[:20]!r} is neither a whole number nor 'auto'")
    return int(text)


def _letters(text: str, option: str) -> tuple[Any, ...]:
    """Numbers such as -1,0.5,1, as exact decimals."""
    from analyzer.exact import rational

    signed = [(part.startswith("-"), part.removeprefix("-")) for part in text.replace(" ", "").split(",")]
    try:
        return tuple(-rational(size) if negative else rational(size) for negative, size in signed)
    except InputError as error:
        raise InputError(f"{option} takes decimals such as -1,0.5,1: {error}") from None


def _chain(target: Any, options: dict[str, Any], out: Path, as_json: bool, quiet: bool) -> None:
    """Plan, build and certify a chain of shifts."""
    from constructions.card import check_output

    check_output(out)
    from constructions.shift_chain import build as build_chain
    from verify.report import progress
    from verify.shift_chain import verify as certify

    with progress("planning, building and certifying", quiet or as_json):
        built = build_chain(target, **options)
        certificate = certify(built.network, target, built.bank, built.ffn)
    _finish(built, certificate, options["error"], out, as_json)


def _finish(built: Any, certificate: Any, asked: float | None, out: Path, as_json: bool, keep_violated: bool = False) -> None:
    """Write the bundle and show its chain; refuse what misses the error asked for or, unless it was asked for, violates its theorem."""
    from constructions.bundle import write
    from verify.bundles import card_of, citation_of
    from verify.report import console, show_certificate

    violated = certificate.verdict.value == "violated"
    if violated and not keep_violated:
        if not all(condition.holds for condition in certificate.conditions):
            raise Refusal(
                f"H is too small for the rounding margins, nothing was written; use more heads or --bank minimal: {certificate.advice}"
            )
        raise Refusal(f"the network does not obey its own theorem, nothing was written: {certificate.advice}")
    if asked is not None and certificate.certified > asked and not violated:
        raise Refusal(_missed(asked, certificate))
    card = card_of(built, certificate)
    write(out, built.network, card, citation_of(card))
    if as_json:
        _emit({"out": str(out), **certificate.as_dict(), "seeds": card["seeds"]})
    else:
        if card["target"]["kind"] == "adaptive":
            console().print("\n".join(built.target.tree_lines()), soft_wrap=True)
        show_certificate(certificate)
        if "barron" in (card["ffn"], card.get("encode")):
            console().print(f"Barron samples drawn (seed {card['seeds']['barron']}): {_draws(card['seeds']['draws'])}")
        console().print(f"written to {out}", soft_wrap=True)
    if violated:
        sys.exit(1)


def _draws(draws: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in draws.items() if count) if isinstance(draws, dict) else str(draws)


@build.command()
@click.option("--target", "target_file", type=click.Path(path_type=Path), required=True, help="A TOML file with the target.")
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--attention", type=click.Choice(["dp", "tmx"]), default="dp", show_default=True)
@click.option("--bank", type=BANK, default="minimal", show_default=True)
@click.option(
    "--encode", "encode_by", type=click.Choice(["exact", "barron"]), default="exact", show_default=True, help="How lags are written."
)
@click.option(
    "--rounding", type=click.Choice(["ideal", "relu"]), default="ideal", show_default=True, help="[.] and log[exp(.)], or relu staircases."
)
@click.option(
    "--layers", type=click.Choice(["auto", "deep"]), default="auto", show_default=True, help="One layer per level, or per memory."
)
@click.option("--heads", type=int, help="Paper and tuned banks: heads in every layer.")
@click.option("--error", type=float, help="Total error, certified.  [default: 0.01 unless --heads is given]")
@click.option("--ffn", type=FFN, default="spline", show_default=True, help="The read-out.")
@click.option("--width", type=int, help="Barron neurons per lag, right or wrong; default: the fewest (in powers of 2) that are certified.")
@click.option("--dtype", type=click.Choice(["exact", "float64", "float32"]), default="exact", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of Barron sampling.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
@_quiet
def adaptive(
    target_file: Path,
    rpe: Any,
    attention: str,
    bank: str,
    encode_by: str,
    rounding: str,
    layers: str,
    heads: int | None,
    error: float | None,
    ffn: str,
    width: int | None,
    dtype: str,
    seed: int,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Adaptive memories: lags that depend on the tokens, by Theorems 4.1 and 4.4."""
    target = _adaptive_target(target_file)
    if seed < 0:
        raise InputError(f"--seed {seed} is negative")
    from analyzer.theorems.thm_3_1 import DEFAULT_ERROR
    from analyzer.theorems.thm_4_4 import check_options, check_sizes

    check_sizes(target, rpe, bank, heads, error)
    check_options(target, rpe, attention, bank, encode_by, rounding, width, dtype)
    from constructions.card import check_output

    check_output(out)
    from constructions.thm_4_4 import build as build_network
    from verify.report import progress
    from verify.thm_4_4 import verify as certify

    with progress("building and certifying", quiet or as_json):
        built = build_network(
            target, rpe=rpe, attention=attention, bank=bank, encode_by=encode_by, rounding=rounding, deep=layers == "deep",
            heads=heads, error=error, ffn=ffn, width=width, dtype=dtype, seed=seed,
        )  # fmt: skip
        certificate = certify(built.network, target, bank, ffn)
    asked = error if error is not None or heads is not None else DEFAULT_ERROR
    _finish(built, certificate, asked, out, as_json, keep_violated=width is not None)


@build.command("kernel")
@click.option("--kernel", "kernels", multiple=True, help="A kernel in s such as '(s+1)**-2'; once per memory.")
@click.option("--target", "target_file", type=click.Path(path_type=Path), help="A TOML file with the target.")
@click.option("--dim", type=int, default=1, show_default=True, help="Token dimension (with --kernel).")
@click.option("--readout", help="Read-out such as 'x0 + k1*k2' (with --kernel); default: the sum of the memories.")
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--bank", type=click.Choice(["paper", "tuned", "fitted"]), default="fitted", show_default=True)
@click.option("--heads", type=int, help="Heads in all.")
@click.option("--error", type=float, help="Total error, certified.  [default: 0.01 unless --heads is given]")
@click.option("--ffn", type=FFN, default="spline", show_default=True)
@click.option("--width", type=int, help="Neurons of the read-out.")
@click.option("--dtype", type=click.Choice(["exact", "float64", "float32"]), default="exact", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of Barron sampling.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
@_quiet
def build_kernel(
    kernels: tuple[str, ...],
    target_file: Path | None,
    dim: int,
    readout: str | None,
    rpe: Any,
    bank: str,
    heads: int | None,
    error: float | None,
    ffn: str,
    width: int | None,
    dtype: str,
    seed: int,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Essentially sparse memories: y_t = f(x_t, Σ ρ_k(s) x_{t-s}, …) by Theorem 5.1."""
    from analyzer.targets import KernelMemory, kernel_target, read_toml

    if bool(kernels) == (target_file is not None):
        raise InputError("give either --kernel or --target")
    target = kernel_target(read_toml(target_file), str(target_file)) if target_file else KernelMemory(kernels, dim, readout)
    if target_file and (dim != 1 or readout is not None):
        raise InputError("--dim and --readout go with --kernel; a target file has its own")
    if seed < 0:
        raise InputError(f"--seed {seed} is negative")
    from analyzer.theorems.thm_3_1 import DEFAULT_ERROR
    from analyzer.theorems.thm_5_1 import check_sizes

    check_sizes(target, rpe, bank, heads, error, width)
    from constructions.card import check_output

    check_output(out)
    from constructions.thm_5_1 import build as build_network
    from verify.report import progress
    from verify.thm_5_1 import verify as certify

    with progress("building and certifying", quiet or as_json):
        built = build_network(target, rpe=rpe, bank=bank, heads=heads, error=error, ffn=ffn, width=width, dtype=dtype, seed=seed)
        certificate = certify(built.network, target, bank, ffn)
    asked = error if error is not None or heads is not None else DEFAULT_ERROR
    _finish(built, certificate, asked, out, as_json)


def _coupling_target(target_file: Path | None, rho: str | None, f: str | None, readout: str | None, length: int | None) -> Any:
    """A coupling target from a file or from flags."""
    from analyzer.couplings import coupling_from_dict, coupling_target
    from analyzer.targets import read_toml

    if (target_file is None) == (rho is None):
        raise InputError("give either --rho or --target")
    if target_file is not None:
        if f is not None or readout is not None or length is not None:
            raise InputError("--f, --F and --length go with --rho; a target file has its own")
        return coupling_target(read_toml(target_file), str(target_file))
    data = {"rho": rho, "f": "x" if f is None else f, "F": "y" if readout is None else readout, "length": 16 if length is None else length}
    return coupling_from_dict(data, "--rho")


def _of_coupling(command: Any) -> Any:
    """The options that say which coupling."""
    for option in (
        click.option("--length", type=int, help="Tokens in a sequence (with --rho).  [default: 16]"),
        click.option("--F", "readout", help="F in y (with --rho).  [default: y]"),
        click.option("--f", "values", help="f in x (with --rho).  [default: x]"),
        click.option("--rho", help="A coupling in u and v, e.g. 'exp(-(u-v)**2)'."),
        click.option("--target", "target_file", type=click.Path(path_type=Path), help="A TOML file with kind = 'coupling'."),
    ):
        command = option(command)
    return command


@build.command("coupling")
@_of_coupling
@click.option("--rank", type=int, help="m_h, the query and key coordinates.  [default: the fewest for --error]")
@click.option("--knots", type=int, help="Pieces of the splines, a power of 2.  [default: the fewest for --error]")
@click.option(
    "--pod", "bank", type=click.Choice(["pod", "centred"]), default="pod", show_default=True, help="centred: of rho minus its mean."
)
@click.option("--error", type=float, help="Total error, certified.  [default: 0.01 unless --rank is given]")
@click.option("--dtype", type=click.Choice(["exact", "float64", "float32"]), default="exact", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
@_quiet
def build_coupling(
    target_file: Path | None,
    rho: str | None,
    values: str | None,
    readout: str | None,
    length: int | None,
    rank: int | None,
    knots: int | None,
    bank: str,
    error: float | None,
    dtype: str,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Low-rank couplings: y_t = F(Σ softmax[rho(x_t, x_s)] f(x_s)) with one softmax head, by Theorem 4.2 of Jiang & Li."""
    _positive_error(error)
    target = _coupling_target(target_file, rho, values, readout, length)
    if rank is not None:
        from analyzer.low_rank import check_rank

        check_rank(rank)
    from constructions.card import check_output

    check_output(out)
    from analyzer.theorems.jl_4_2 import DEFAULT_ERROR
    from constructions.jl_4_2 import build as build_network
    from verify.jl_4_2 import verify as certify
    from verify.report import progress

    with progress("building and certifying", quiet or as_json):
        built = build_network(target, bank=bank, rank=rank, knots=knots, error=error, dtype=dtype)
        certificate = certify(built.network, target, bank, built.ffn)
    asked = error if error is not None or rank is not None or knots is not None else DEFAULT_ERROR
    _finish(built, certificate, asked, out, as_json)


@cli.group()
def limits() -> None:
    """What no network of a class can do."""


@limits.command("kernel")
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. '(s+1)**-2'.")
@click.option("--heads", type=int, required=True)
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--certificate", type=click.Path(path_type=Path), help="Write bank and lower bound to a file that `verify` re-checks.")
@_json
@_quiet
def kernel_limits_command(text: str, heads: int, rpe: Any, certificate: Path | None, as_json: bool, quiet: bool) -> None:
    """A memory kernel with H heads: what a fitted bank reaches, and what no decays and no read-out can beat."""
    from verify.certificate_files import check_place, write_json
    from verify.kernel_limits import kernel_certificate, kernel_limits
    from verify.report import progress, show_kernel_limits

    if certificate is not None:
        check_place(certificate)
    with progress("fitting and bounding", quiet or as_json):
        found = kernel_certificate(text, rpe, heads)
        result = kernel_limits(found)
    if certificate is not None:
        write_json(certificate, found)
        result["certificate"] = str(certificate)
    if as_json:
        _emit(result)
    else:
        show_kernel_limits(result)


@limits.command("coupling")
@_of_coupling
@click.option("--rank", type=int, default=8, show_default=True, help="m_h from 1 up to this one.")
@click.option("--alpha", type=float, help="Exponent of the complexities.  [default: the fitted one]")
@click.option("--figure", type=click.Path(path_type=Path), help="The spectrum as a PNG file.")
@_json
@_quiet
def limits_coupling(
    target_file: Path | None,
    rho: str | None,
    values: str | None,
    readout: str | None,
    length: int | None,
    rank: int,
    alpha: float | None,
    figure: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """A coupling: certified singular values, and what no m_h query and key coordinates can beat."""
    from verify.certificate_files import check_place
    from verify.coupling_limits import coupling_limits
    from verify.report import coupling_figure, progress, show_coupling_limits

    target = _coupling_target(target_file, rho, values, readout, length)
    if figure is not None:
        check_place(figure)
    with progress("decomposing", quiet or as_json):
        result = coupling_limits(target, rank, alpha)
    if figure is not None:
        result["figure"] = str(figure) if coupling_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_coupling_limits(result)


@limits.command("rnn")
@click.option("--kernel", "text", required=True, help="A kernel in s, e.g. 'exp(-s)'.")
@click.option("--length", type=int, default=32, show_default=True, help="Tokens in a sequence.")
@click.option("--swap", type=int, default=10, show_default=True, help="The first and the last so many tokens change places.")
@click.option("--filter", "weights", help="Weights such as 0.5,0.25,0.25 of a filter; their sizes add up to at most 1.")
@_json
def limits_rnn(text: str, length: int, swap: int, weights: str | None, as_json: bool) -> None:
    """Recurrent networks: C_RNN of a kernel, what no causal model can do once tokens change places, and what filters do."""
    theta = () if weights is None else _letters(weights, "--filter")
    from verify.report import show_rnn_limits
    from verify.rnn_limits import rnn_limits

    result = rnn_limits(text, length, swap, theta)
    if as_json:
        _emit(result)
    else:
        show_rnn_limits(result)


@limits.command("dp-free")
@click.option("--error", type=float, default=1e-6, show_default=True, help="Error that the dot-product network of part (A) is built for.")
@_json
def dp_free(error: float, as_json: bool) -> None:
    """Proposition 4.2: dp-free attention errs by 1 where one dot-product layer reaches any error."""
    from analyzer.exact import nearest
    from analyzer.theorems import prop_4_2
    from analyzer.theorems.thm_3_1 import LEAST_ERROR

    if not LEAST_ERROR <= error < 1:
        raise InputError(f"--error {error} is out of range; give {LEAST_ERROR} to 1")
    least = prop_4_2.lower_bound()
    from constructions.prop_4_2 import build as build_network
    from verify.prop_4_2 import verify as certify

    reached = certify(build_network(error))
    points = [{"tokens": list(tokens), "wanted": prop_4_2.wanted(tokens), "weight": str(weight)} for tokens, weight in prop_4_2.CERTIFICATE]
    result = {
        "theorem": prop_4_2.ID,
        "lower_bound": int(least) if least.q == 1 else nearest(least),
        "lower_bound_exact": str(least),
        "paper": nearest(prop_4_2.PAPER),
        "paper_exact": str(prop_4_2.PAPER),
        "certificate": points,
        "dp": {"layers": 1, "heads": reached.heads, "witness": reached.witness, "certified": reached.certified, "bound": reached.bound},
    }
    if as_json:
        _emit(result)
    else:
        from verify.report import show_dp_free

        show_dp_free(result)


@limits.command("lag")
@click.option("--rpe", type=LAYER_RPE, default="lin", show_default=True, help="Heads of one type, or of both.")
@click.option("--lag", type=int, help="How many tokens back.")
@click.option("--heads", type=int, help="At most so many heads (lin, log).  [default: any number]")
@click.option("--dtype", type=ARITHMETIC, help="The arithmetic in which weights are stored.")
@click.option("--bits", help="The same by unit roundoff 2^-B; with --horizon also a range such as 8-64.")
@click.option("--horizon", "wants_horizon", is_flag=True, help="The largest lag with an error below 1/2; all dtypes unless one is given.")
@click.option("--certificate", type=click.Path(path_type=Path), help="Write bank and dual sequence to a file that `verify` re-checks.")
@click.option("--figure", type=click.Path(path_type=Path), help="With --horizon: error against lag as a PNG file.")
@_json
@_quiet
def limits_lag(
    rpe: Any,
    lag: int | None,
    heads: int | None,
    dtype: str | None,
    bits: str | None,
    wants_horizon: bool,
    certificate: Path | None,
    figure: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Lags: how many heads one needs, and the least error that an arithmetic allows, over all decays."""
    if dtype is not None and bits is not None:
        raise InputError("give --dtype or --bits, not both")
    units = _units(dtype, bits)
    from verify.certificate_files import check_place

    for place in (certificate, figure):
        if place is not None:
            check_place(place)
    if wants_horizon:
        if lag is not None or heads is not None or certificate is not None:
            raise InputError("--horizon looks for the lag itself; --lag, --heads and --certificate do not go with it")
        _limits_horizon(rpe, units, figure, as_json, quiet)
        return
    if lag is None:
        raise InputError("give --lag, or --horizon")
    if figure is not None or (len(units) > 1 and bits is not None):
        raise InputError("--figure and a range of bits go with --horizon")
    _limits_one_lag(rpe, lag, heads, units if dtype or bits else {}, certificate, as_json, quiet)


def _units(dtype: str | None, bits: str | None) -> dict[str, int]:
    """Names of arithmetics → bits B of the unit roundoff 2^-B."""
    from verify.limits import LEAST_BITS, MAX_BITS

    if bits is None:
        return {name: size for name, size in DTYPE_BITS.items() if dtype in (None, name)}
    if re.fullmatch("[0-9]{1,4}(-[0-9]{1,4})?", bits) is None:
        raise InputError(f"--bits {bits[:20]!r} is neither a number such as 24 nor a range such as 8-64")
    ends = [int(part) for part in bits.split("-")]
    if not LEAST_BITS <= ends[0] <= ends[-1] <= MAX_BITS:
        raise InputError(f"--bits {bits} is out of range; give {LEAST_BITS} to {MAX_BITS}")
    return {str(size): size for size in range(ends[0], ends[-1] + 1)}


def _limits_one_lag(
    rpe: Any, lag: int, heads: int | None, units: dict[str, int], certificate: Path | None, as_json: bool, quiet: bool
) -> None:
    from analyzer.theorems.lag_law import lag_law
    from verify.limits import check_lag, describe_pair, lag_limit

    check_lag(lag)
    _checked_heads(heads, MAX_LIMIT_HEADS)
    law = lag_law(rpe, (lag,))
    result: dict[str, Any] = {"rpe": rpe, "lag": lag, "min_heads": law.heads, "proof": law.status, "budgeted_error": None}
    if heads is not None:
        result |= {"heads": heads, "least_error": 1.0 if heads < law.heads else 0.0}
    if certificate is not None and (not units or (heads is not None and heads < law.heads)):
        raise InputError("a certificate needs --dtype or --bits, and as many heads as the lag law asks for")
    for name, size in units.items():
        from flint import fmpq

        from verify.certificate_files import certificate as certificate_of
        from verify.certificate_files import write_json
        from verify.report import progress

        with progress("solving and certifying", quiet or as_json):
            pair = lag_limit(rpe, lag, fmpq(1, 2**size), size, heads)
        result |= {"arithmetic": name, **describe_pair(pair)}
        if certificate is not None:
            write_json(certificate, certificate_of([pair], rpe, pair.unit))
            result["certificate"] = str(certificate)
    if as_json:
        _emit(result)
    else:
        from verify.report import show_lag_limit

        show_lag_limit(result)


def _limits_horizon(rpe: Any, units: dict[str, int], figure: Path | None, as_json: bool, quiet: bool) -> None:
    from flint import fmpq

    from verify.limits import curve, describe_horizon, horizon
    from verify.report import horizon_figure, show_horizon, steps

    rows, curves = [], {}
    with steps("looking for the horizon", quiet or as_json) as step:
        for name, size in units.items():
            found = horizon(rpe, fmpq(1, 2**size), size, lambda text, name=name: step(f"{name}: {text}"))  # type: ignore[misc]
            rows.append({"arithmetic": name, "bits": size, **describe_horizon(found)})
            if figure is not None:
                curves[name] = curve(rpe, fmpq(1, 2**size), size, found.horizon + 2)
    result: dict[str, Any] = {
        "rpe": rpe,
        "horizon": rows[0]["horizon"] if len(rows) == 1 else {r["arithmetic"]: r["horizon"] for r in rows},
    }
    result["rows"] = rows
    if rpe == "lin":
        result["rule_holds"] = all(r["horizon"] == r["rule"] for r in rows)
        result["rule_exceptions"] = [r["bits"] for r in rows if r["horizon"] != r["rule"]]
    if figure is not None:
        result["curves"] = curves
        result["figure"] = str(figure) if horizon_figure(figure, rpe, curves, {n: units[n] for n in curves}) else None
    if as_json:
        _emit(result)
    else:
        show_horizon(result)


@limits.command("slopes")
@click.option("--slopes", required=True, help="Decays of a model's heads: alibi:8, or numbers such as 0.5,0.25.")
@click.option("--rpe", type=RPE, default="lin", show_default=True)
@click.option("--lags", "most", type=int, help="Audit the lags 1 to this one.  [default: heads + 2, at most 24]")
@click.option("--dtype", type=ARITHMETIC, default="float32", show_default=True)
@click.option("--certificate", type=click.Path(path_type=Path), help="Write banks and dual sequences to a file that `verify` re-checks.")
@click.option("--figure", type=click.Path(path_type=Path), help="Best error against lag as a PNG file.")
@_json
@_quiet
def limits_slopes(
    slopes: str, rpe: Any, most: int | None, dtype: str, certificate: Path | None, figure: Path | None, as_json: bool, quiet: bool
) -> None:
    """Given slopes: which lags can position-only heads with these decays resolve at all?"""
    from flint import fmpq

    from verify.certificate_files import certificate as certificate_of
    from verify.certificate_files import check_place, write_json
    from verify.limits import MAX_AUDITED, audit, check_lag, slopes_of
    from verify.report import show_slopes, slopes_figure, steps

    heads = slopes_of(slopes, rpe)
    longest = min(len(heads) + 2, MAX_AUDITED) if most is None else most
    check_lag(longest)
    if longest > MAX_AUDITED:
        raise InputError(f"--lags {longest} is out of range; give 1 to {MAX_AUDITED}")
    for place in (certificate, figure):
        if place is not None:
            check_place(place)
    unit = fmpq(1, 2 ** DTYPE_BITS[dtype])
    found = []
    with steps("auditing", quiet or as_json) as step:
        for lag in range(1, longest + 1):
            step(f"lag {lag} of {longest}")
            found.append(audit(heads, lag, unit))
    rows = [{"lag": row.lag, "lower": row.lower, "upper": row.upper, "resolved": row.upper < 0.5} for row in found]
    result: dict[str, Any] = {
        "slopes": slopes,
        "rpe": rpe,
        "dtype": dtype,
        "heads": len(heads),
        "decays": [float(p.p) / float(p.q) for _, p in heads],
    }
    result |= {"resolved": [r["lag"] for r in rows if r["resolved"]], "rows": rows}
    if certificate is not None:
        write_json(certificate, certificate_of(found, rpe, unit, heads))
        result["certificate"] = str(certificate)
    if figure is not None:
        result["figure"] = str(figure) if slopes_figure(figure, slopes, dtype, rows) else None
    if as_json:
        _emit(result)
    else:
        show_slopes(result)


def _missed(asked: float, certificate: Any) -> str:
    parts = ", ".join(f"{part.name} {part.certified:.3g}" for part in certificate.parts)
    deeper = "--depth auto, " if certificate.theorem == "thm-3.1" else ""
    finer = "" if certificate.dtype == "exact" else f"--dtype exact or more bits, {deeper}"
    more = "a larger --rank or more --knots" if certificate.theorem == "jl-4.2" else "more heads or more --width"
    return (
        f"the network is certified to {certificate.certified:.3g} only, more than the error {asked:g} asked for ({parts}, rounding "
        f"{certificate.rounding:.3g}); use {finer}a larger --error, {more}"
    )


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_json
@_quiet
def verify(folder: Path, as_json: bool, quiet: bool) -> None:
    """Certify a bundle from its stored weights, or re-check a certificate file; exit 1 if the chain breaks or a claim is false."""
    if folder.is_file():
        _verify_file(folder, as_json)
        return
    from constructions.card import read_files

    files = read_files(folder)
    from constructions.bundle import load
    from verify.bundles import verify_bundle
    from verify.report import progress, show_certificate

    with progress("certifying", quiet or as_json):
        certificate = verify_bundle(load(files))
    if as_json:
        _emit(certificate.as_dict())
    else:
        show_certificate(certificate)
    if certificate.verdict.value == "violated":
        sys.exit(1)


def _verify_file(path: Path, as_json: bool) -> None:
    """Re-check a certificate of a limit."""
    start = time.perf_counter()
    from verify.certificate_files import check, read_json
    from verify.kernel_limits import FORMAT, check_kernel_certificate
    from verify.report import show_checked

    data = read_json(path)
    of_kernel = isinstance(data, dict) and data.get("format") == FORMAT
    found = check_kernel_certificate(data) if of_kernel else check(data)
    result = {**found, "verdict": "violated" if found["faults"] else "holds", "seconds": time.perf_counter() - start}
    if as_json:
        _emit(result)
    else:
        show_checked(result)
    if found["faults"]:
        sys.exit(1)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--input", "source", type=click.Path(path_type=Path), required=True, help="Tokens, .npy: (N,), (N, d) or (batch, N, d).")
@click.option("--output", "destination", type=click.Path(path_type=Path), required=True, help="Outputs, .npy: (N,) or (batch, N).")
@_json
def run(folder: Path, source: Path, destination: Path, as_json: bool) -> None:
    """Evaluate a bundle's network on an array of tokens."""
    import os

    import numpy as np

    from constructions.card import read_files

    files = read_files(folder)
    tokens = _numbers(source)
    length = _check_domain(files.card, tokens, source)
    if tokens.max() > 1 or tokens.min() < -1:
        raise InputError(f"{source} holds tokens outside [-1, 1], where no certificate holds")
    if destination.is_dir() or not destination.absolute().parent.is_dir():
        raise InputError(f"cannot write {destination}: not a file in an existing folder")
    from constructions.bundle import load
    from constructions.execute import run as evaluate

    network = load(files).network
    if tokens.ndim == 1 and network.dim == 1:
        tokens = tokens[:, None]
    start = time.perf_counter()
    outputs = evaluate(network, tokens)
    seconds = time.perf_counter() - start
    staging = destination.with_name(f".{destination.name}.part")
    try:
        with staging.open("wb") as file:
            np.save(file, outputs)
        os.replace(staging, destination)
    except OSError as failure:
        staging.unlink(missing_ok=True)
        raise InputError(f"cannot write {destination}: {failure.strerror}") from None
    summary = {"output": str(destination), "shape": list(outputs.shape), "dtype": network.dtype, "seconds": seconds}
    lost = int((~np.isfinite(outputs)).sum())
    if lost:
        summary["not_finite"] = lost
    strange = _outside_alphabet(files.card, tokens)
    if strange is not None:
        summary["outside_alphabet"] = strange
    longer = length is not None and outputs.shape[-1] > length and network.dtype != "exact"
    if longer:
        summary["beyond_length"] = outputs.shape[-1]
    if as_json:
        _emit(summary)
    else:
        click.echo(f"{outputs.shape} outputs in {seconds:.3f} s written to {destination}")
        if lost:
            click.echo(f"{lost} outputs are not finite numbers")
        if strange:
            click.echo(f"{strange} tokens are not in the target's alphabet: the certificate does not cover what depends on them")
        if longer:
            click.echo(f"the certificate counts the rounding of sequences of at most {length} tokens")


def _check_domain(card: dict[str, Any], tokens: Any, source: Path) -> int | None:
    """Couplings have tokens in [0, 1]; their length, or None for other targets."""
    target = card.get("target")
    if not isinstance(target, dict) or target.get("kind") != "coupling":
        return None
    if tokens.min() < 0 or tokens.max() > 1:
        raise InputError(f"{source} holds tokens outside [0, 1], the domain of this coupling")
    from analyzer.couplings import coupling_target

    return int(coupling_target(target, "card.json").length)


def _numbers(source: Path) -> Any:
    """One array of finite real numbers from an .npy file."""
    from tokenize import TokenError

    import numpy as np

    try:
        array = np.load(source, allow_pickle=False)
    except (OSError, MemoryError) as error:
        raise InputError(f"cannot read {str(source)[:80]}: {getattr(error, 'strerror', None) or str(error)[:80]}") from None
    except (ValueError, EOFError, RecursionError, SyntaxError, TokenError):
        raise InputError(f"{str(source)[:80]} is not an .npy file of numbers, or a damaged one; numpy.save writes such files") from None
    if not isinstance(array, np.ndarray) or not 0 < array.size <= MAX_TOKENS:
        raise InputError(f"{source} must hold one array of 1 to {MAX_TOKENS} numbers")
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InputError(f"{source} holds values that are not finite real numbers")
    return array


def _outside_alphabet(card: dict[str, Any], tokens: Any) -> int | None:
    """How many tokens are not in the target's alphabet (adaptive targets: up to float32 rounding); None where there is none."""
    import numpy as np

    from analyzer.adaptive import AdaptiveMemory
    from analyzer.exact import nearest
    from analyzer.targets import FixedMemory, target_from_dict

    if card.get("target") is None:
        return None
    target = target_from_dict(card["target"], "card.json")
    if not isinstance(target, FixedMemory | AdaptiveMemory) or target.alphabet is None:
        return None
    if not isinstance(target, AdaptiveMemory):
        return int((~np.isin(tokens, [nearest(v) for v in target.alphabet]).all(axis=-1)).sum())
    known = np.zeros(tokens.shape[:-1], dtype=bool)
    for token in target.alphabet:
        known |= (np.abs(tokens - np.array([nearest(v) for v in token])) <= 2.0**-24).all(axis=-1)
    return int((~known).sum())


def _of_target(command: Any) -> Any:
    """--target, or --lags or --kernel with --dim and --readout."""
    for option in reversed(
        [
            click.option("--target", "target_file", type=click.Path(path_type=Path), help="A TOML file with a target of any kind."),
            click.option("--lags", help="Fixed memories, such as 2,5."),
            click.option("--kernel", "kernels", multiple=True, help="A kernel in s such as '(s+1)**-2'; once per memory."),
            click.option("--dim", type=int, default=1, show_default=True, help="Token dimension (with --lags or --kernel)."),
            click.option("--readout", help="Read-out such as 'x0 + m1*m2'; default: the sum of the memories."),
        ]
    ):
        command = option(command)
    return command


def _any_target(target_file: Path | None, lags: str | None, kernels: tuple[str, ...], dim: int, readout: str | None) -> Any:
    from analyzer.targets import FixedMemory, KernelMemory, read_toml, target_from_dict

    if [target_file is not None, lags is not None, bool(kernels)].count(True) != 1:
        raise InputError("give one of --target, --lags and --kernel")
    if target_file is not None:
        if dim != 1 or readout is not None:
            raise InputError("--dim and --readout go with --lags or --kernel; a target file has its own")
        return target_from_dict(read_toml(target_file), str(target_file))
    return FixedMemory(_lags(lags), dim, readout) if lags is not None else KernelMemory(kernels, dim, readout)


def _of_recipe(command: Any) -> Any:
    """How to train."""
    for option in reversed(
        [
            click.option("--length", type=int, help="Tokens per sequence.  [default: three times the longest lag, at least 32]"),
            click.option("--batch", type=int, default=64, show_default=True, help="Fresh sequences per step."),
            click.option("--steps", type=int, default=2000, show_default=True),
            click.option("--rate", type=float, default=3e-3, show_default=True, help="Peak learning rate of AdamW."),
            click.option("--weight-decay", type=float, default=0.0, show_default=True),
            click.option("--tokens", type=click.Choice(["uniform", "signs"]), default="uniform", show_default=True),
            click.option("--until", type=float, default=0.0, help="Stop when the mean loss of a fortieth of the run is below this."),
            click.option("--patience", type=int, help="Stop after so many fortieths of the run without progress."),
            click.option("--seed", type=int, default=0, show_default=True),
            click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
        ]
    ):
        command = option(command)
    return command


def _recipe(target: Any, options: dict[str, Any], supervise: float = 0.0) -> Any:
    """The recipe of a run, checked as far as that goes without the network."""
    from constructions.recipes import MAX_STEPS, Recipe, Stop, check_numbers
    from constructions.target_values import settled
    from verify.experiments import MIN_STEPS

    if not MIN_STEPS <= options["steps"] <= MAX_STEPS:
        raise InputError(f"--steps {options['steps']} is out of range; give {MIN_STEPS} to {MAX_STEPS}")
    if options["patience"] is not None and options["patience"] < 1:
        raise InputError(f"--patience {options['patience']} is out of range; give 1 or more")
    if not 0 <= options["until"] < float("inf"):
        raise InputError(f"--until {options['until']} must be a loss, 0 or more")
    first = settled(target)
    length = options["length"]
    if length is None:
        length = getattr(target, "length", None) or max(32, 3 * first)
    recipe = Recipe(
        length=length,
        first=first,
        batch=options["batch"],
        steps=options["steps"],
        rate=options["rate"],
        weight_decay=options["weight_decay"],
        seed=options["seed"],
        signs=options["tokens"] == "signs",
        supervise=supervise,
        stop=Stop(options["until"], options["patience"]),
    )
    check_numbers(recipe)
    return recipe


_STRUCTURE = ("rpe", "attention", "window", "heads", "layers", "width", "model_dim", "key_dim", "reach", "linear")
"""Options of `train` that describe random weights."""


@cli.command()
@_of_target
@click.option("--start", type=click.Path(path_type=Path), help="A bundle whose weights to start from.  [default: random weights]")
@click.option(
    "--rpe", type=click.Choice(["lin", "log", "table", "none"]), default="lin", show_default=True, help="table: a bias per distance."
)
@click.option("--attention", type=click.Choice(["dp-free", "dp", "nf", "tmx"]), default="dp-free", show_default=True)
@click.option("--window", type=click.Choice(["infinite", "finite", "full"]), default="infinite", show_default=True)
@click.option("--heads", type=int, default=8, show_default=True)
@click.option("--layers", type=int, default=1, show_default=True)
@click.option("--width", type=int, default=32, show_default=True, help="Neurons of every feed-forward network.")
@click.option("--model-dim", type=int, help="Width of the stream.  [default: x0 and every memory; couplings: query, key and value]")
@click.option("--key-dim", type=int, default=2, show_default=True, help="Coordinates of queries and keys (dp, nf).")
@click.option("--reach", type=int, help="Distances of a table.  [default: the length of the sequences]")
@click.option("--linear", is_flag=True, help="No feed-forward network at the end: the output is a coordinate of the stream.")
@_of_recipe
@click.option("--checkpoint", type=click.Path(path_type=Path), help="A file that holds the run after every fortieth of it.")
@click.option("--resume", is_flag=True, help="Go on from --checkpoint, if the file is there.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
@_quiet
def train(
    target_file: Path | None,
    lags: str | None,
    kernels: tuple[str, ...],
    dim: int,
    readout: str | None,
    start: Path | None,
    rpe: str,
    attention: Any,
    window: Any,
    heads: int,
    layers: int,
    width: int,
    model_dim: int | None,
    key_dim: int,
    reach: int | None,
    linear: bool,
    checkpoint: Path | None,
    resume: bool,
    out: Path,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train one of our networks on a target; the result is a bundle like any other, with origin "trained"."""
    from constructions.card import check_output, check_place, read_files

    given = click.get_current_context().get_parameter_source
    fixed = [name for name in _STRUCTURE if start is not None and given(name) is ParameterSource.COMMANDLINE]
    if fixed:
        raise InputError(f"--{fixed[0].replace('_', '-')} does not go with --start: the bundle has its structure")
    files = None if start is None else read_files(start)
    if files is not None and target_file is None and lags is None and not kernels:
        from verify.learnt import target_of

        target = target_of(files.card)
    else:
        target = _any_target(target_file, lags, kernels, dim, readout)
    recipe = _recipe(target, options)
    check_output(out)
    if resume and checkpoint is None:
        raise InputError("--resume needs --checkpoint, the file to go on from")
    if checkpoint is not None:
        check_place(checkpoint)
        if out.resolve() in (checkpoint.resolve(), *checkpoint.resolve().parents):
            raise InputError(f"--checkpoint {str(checkpoint)[:80]} lies where the bundle goes; choose a place outside --out")
        if checkpoint.exists() and not resume:
            raise InputError(f"{checkpoint} exists; add --resume to go on from it, or choose another --checkpoint")
    from constructions import checkpoint as runs

    begun_before = runs.read(checkpoint) if checkpoint is not None and checkpoint.exists() else None
    from constructions.recipes import Shape, check_recipe, check_shape

    if start is None:
        from constructions.target_values import token_dim

        memories = getattr(target, "readout", None)
        shape = Shape(
            heads=heads,
            width=width,
            layers=layers,
            model_dim=model_dim if model_dim is not None else memories.coordinates if memories is not None else 2 * key_dim + 1,
            rpe=rpe,
            attention=attention,
            window=window,
            key_dim=key_dim,
            reach=reach if reach is not None else recipe.length if rpe == "table" else 0,
            readout="affine" if linear else "relu",
        )
        if key_dim < 1 and attention in ("dp", "nf"):
            raise InputError(f"--key-dim is {key_dim}; dot products need 1 coordinate or more")
        check_shape(shape, token_dim(target))
        check_recipe(recipe, target, layers, heads, [attention])
    from constructions.bundle import load
    from constructions.learning import as_float, initial, learnt_at_start, run_of
    from constructions.learning import train as fit_network
    from constructions.training import Progress, resumed

    if files is None:
        network = initial(shape, token_dim(target), recipe.seed, recipe.length, options["dtype"])
    else:
        network = as_float(load(files).network, options["dtype"])

    run = run_of(network, target, recipe)
    saved = None if begun_before is None else resumed(begun_before, learnt_at_start(network, recipe), run)
    from verify.learnt import trained_card, verify_learnt
    from verify.report import progress, show_certificate, show_training, training

    begun = time.perf_counter()
    with training(quiet or as_json) as report:

        def watched(state: Progress) -> None:
            if report is not None:
                report("training", state)

        store = None if checkpoint is None else lambda state: runs.write(checkpoint, state.checkpoint(run))
        trained, history = fit_network(network, target, recipe, report=watched, resume=saved, store=store)
    seconds = time.perf_counter() - begun
    with progress("certifying", quiet or as_json):
        certificate = verify_learnt(trained, target, recipe.length)
    summary = {**history.summary(), "start": "random" if files is None else "bundle", "seconds": seconds}
    from constructions.bundle import write

    write(out, trained, trained_card(trained, target, recipe, summary, certificate), "")
    if as_json:
        _emit({"out": str(out), "origin": "trained", **certificate.as_dict(), "training": summary})
    else:
        show_training(summary)
        show_certificate(certificate)
        click.echo(f"written to {out}")


@cli.group()
def experiment() -> None:
    """Published experiments, repeated: trained networks beside constructed ones and certified floors."""


def _training_options(command: Any) -> Any:
    """--seeds, --steps and --full."""
    command = click.option("--full", is_flag=True, help="More steps and seeds.")(command)
    command = click.option("--steps", type=int, help="Training steps.  [default: 6000; 30000 with --full]")(command)
    return click.option("--seeds", type=int, help="Runs per row.  [default: 3; 5 with --full]")(command)


@experiment.command("jl-table-2")
@_training_options
@_json
@_quiet
def jl_table_2(seeds: int | None, steps: int | None, full: bool, as_json: bool, quiet: bool) -> None:
    """Jiang & Li, Table 2: an RNN minds the order of tokens, a Transformer minds filters."""
    _jl_table(2, seeds, steps, full, as_json, quiet)


@experiment.command("jl-table-3")
@_training_options
@_json
@_quiet
def jl_table_3(seeds: int | None, steps: int | None, full: bool, as_json: bool, quiet: bool) -> None:
    """Jiang & Li, Table 3: a memory without structure, in order and permuted."""
    _jl_table(3, seeds, steps, full, as_json, quiet)


@experiment.command("jl-fig-5")
@click.option("--sequences", type=int, default=2000, show_default=True, help="Random sequences that errors are averaged over.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--figure", type=click.Path(path_type=Path), help="Error against m_h as a PNG file.")
@_json
@_quiet
def jl_fig_5(sequences: int, seed: int, figure: Path | None, as_json: bool, quiet: bool) -> None:
    """Jiang & Li, Figure 5: error against m_h for given singular values, and which exponent it follows."""
    if seed < 0:
        raise InputError(f"--seed {seed} is negative")
    if figure is not None:
        from constructions.card import check_place

        check_place(figure)
    from verify.experiments.jl_fig_5 import check_sequences, fig_5
    from verify.report import fig_5_figure, show_fig_5, steps

    check_sequences(sequences)
    with steps("running networks", quiet or as_json) as step:
        result = fig_5(sequences, seed, step)
    if figure is not None:
        result["figure"] = str(figure) if fig_5_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_fig_5(result)


def _check_training(seeds: int | None, steps: int | None, least_seeds: int) -> None:
    from verify.experiments import MAX_SEEDS, MAX_STEPS, MIN_STEPS

    if seeds is not None and not least_seeds <= seeds <= MAX_SEEDS:
        raise InputError(f"--seeds {seeds} is out of range; give {least_seeds} to {MAX_SEEDS}")
    if steps is not None and not MIN_STEPS <= steps <= MAX_STEPS:
        raise InputError(f"--steps {steps} is out of range; give {MIN_STEPS} to {MAX_STEPS}")


def _jl_table(table: int, seeds: int | None, steps: int | None, full: bool, as_json: bool, quiet: bool) -> None:
    _check_training(seeds, steps, 1)
    if full and (seeds is not None or steps is not None):
        raise InputError("--full sets seeds and steps; give one or the other")
    from dataclasses import replace

    from verify.experiments import jl_tables
    from verify.report import show_jl_table, training

    protocol = jl_tables.FULL if full else jl_tables.DEFAULT
    protocol = replace(protocol, seeds=seeds or protocol.seeds, steps=steps or protocol.steps)
    with training(quiet or as_json) as report:
        result = (jl_tables.table_2 if table == 2 else jl_tables.table_3)(protocol, report)
    if as_json:
        _emit(result.as_dict())
    else:
        show_jl_table(result.as_dict())


@experiment.command("arms")
@click.argument("folder", type=click.Path(path_type=Path), metavar="BUNDLE")
@_of_recipe
@click.option("--continued-rate", type=float, default=1e-5, show_default=True, help="Peak rate of the arm that starts from BUNDLE.")
@click.option("--supervise", is_flag=True, help="A fourth arm, taught what the slots of the stream hold.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder for the bundles of all arms.")
@click.option("--figure", type=click.Path(path_type=Path), help="The comparison as a PNG file.")
@_json
@_quiet
def arms_experiment(
    folder: Path,
    continued_rate: float,
    supervise: bool,
    out: Path,
    figure: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """A constructed network (BUNDLE), one of its structure trained from random weights, and one trained from its own weights.

    Does training find, keep or leave the mechanism? The arms are written as bundles into --out and compared.
    """
    from constructions.card import check_new_folder, check_place, new_folder, read_files
    from verify.learnt import target_of

    files = read_files(folder)
    if files.card.get("origin") is not None:
        raise InputError(f"{folder} was {files.card['origin']}, not constructed; lemmaformer build makes constructed networks")
    target = target_of(files.card)
    recipe = _recipe(target, options)
    check_new_folder(out)
    if figure is not None:
        check_place(figure)
    if not 0 < continued_rate < 1:
        raise InputError(f"--continued-rate is {continued_rate}; give a number between 0 and 1")
    if supervise and target.describe()["kind"] == "coupling":
        raise InputError("--supervise is for memories; a coupling has none")
    from constructions.bundle import load, write
    from verify.bundles import citation_of
    from verify.experiments.arms import compared, train_arms
    from verify.report import compare_figure, progress, show_arms, training

    constructed = load(files)
    with training(quiet or as_json) as report:
        arms = train_arms(constructed, target, recipe, options["dtype"], continued_rate=continued_rate, supervise=supervise, report=report)
    with progress("comparing", quiet or as_json):
        result = compared(arms, target, recipe.seed, recipe.signs)
    with new_folder(out) as place:
        for name, (bundle, run) in arms.items():
            write(place / name, bundle.network, bundle.card, citation_of(bundle.card) if run is None else "")
    result["out"] = str(out)
    if figure is not None:
        result["figure"] = str(figure) if compare_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_arms(result)
    if any(column["faults"] for column in result["networks"]):
        sys.exit(1)


_WE = {
    "we-1b": ("three ±1 tokens far back, through ridges", 2000, 2),
    "we-2a": ("one token through ridges: neurons help, heads do not", 3000, 3),
    "we-2b": ("the sum of three tokens: heads help, neurons do not; which positions can do it", 2000, 3),
    "we-3a": ("1b with and without dot products", 1000, 2),
    "we-4a": ("a kernel t^(-1/2): one log head against 64 lin heads", 10000, 3),
    "we-4b": ("a kernel e^(-5t): one lin head against 64 log heads", 10000, 3),
}
"""What it is, and the steps and seeds that are the default; --full has 10000 and 5."""


def _we_command(name: str, subject: str, steps_default: int, seeds_default: int) -> None:
    """`experiment we-…`."""

    @experiment.command(name, help=f"Wang & E, experiment {name[3:]}: {subject}.")
    @click.option("--seeds", type=int, help=f"Runs per row.  [default: {seeds_default}; 5 with --full]")
    @click.option("--steps", type=int, help=f"Training steps.  [default: {steps_default}; 10000 with --full]")
    @click.option("--seed", type=int, default=0, show_default=True, help="The first seed.")
    @click.option("--full", is_flag=True, help="The published iterations and sizes, more seeds.")
    @_json
    @_quiet
    def command(seeds: int | None, steps: int | None, seed: int, full: bool, as_json: bool, quiet: bool) -> None:
        _check_training(seeds, steps, 1)
        if full and (seeds is not None or steps is not None):
            raise InputError("--full sets seeds and steps; give one or the other")
        if not 0 <= seed < 2**31:
            raise InputError(f"--seed {seed} is out of range; give 0 to {2**31 - 1}")
        from dataclasses import replace

        from verify.experiments import we
        from verify.report import show_we, training

        protocol = (we.FULL if full else we.DEFAULT)[name]
        protocol = replace(protocol, seeds=seeds or protocol.seeds, steps=steps or protocol.steps, seed=seed)
        with training(quiet or as_json) as report:
            result = we.run(name, protocol, report)
        if as_json:
            _emit(result.as_dict())
        else:
            show_we(result.as_dict())


for _name, _about in _WE.items():
    _we_command(_name, *_about)


@experiment.command("jl-fig-1")
@click.option("--seeds", type=int, default=6, show_default=True, help="Runs for every head dimension.")
@click.option("--steps", type=int, default=1000, show_default=True, help="Training steps of every run.")
@click.option("--figure", type=click.Path(path_type=Path), help="Error against head dimension and spectra as a PNG file.")
@_json
@_quiet
def digits_experiment(seeds: int, steps: int, figure: Path | None, as_json: bool, quiet: bool) -> None:
    """Jiang & Li, Figure 1, on scikit-learn's digits: training error of a vision Transformer against its head dimension m_h."""
    from constructions.card import check_place
    from constructions.digits import digits

    _check_training(seeds, steps, 2)  # one seed has no spread
    if figure is not None:
        check_place(figure)
    images, labels = digits()
    from verify.experiments.jl_digits import run as run_experiment
    from verify.report import digits_figure, show_digits, training

    start = time.perf_counter()
    with training(quiet or as_json) as report:
        result = run_experiment(images, labels, seeds, steps, report)
    result["seconds"] = time.perf_counter() - start
    if figure is not None:
        result["figure"] = str(figure) if digits_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_digits(result)


@experiment.command("horizon")
@click.option("--lags", "most", type=int, default=12, show_default=True, metavar="MOST", help="Lags 1 to MOST.")
@click.option("--seeds", type=int, default=2, show_default=True, help="Runs per row.")
@click.option("--steps", type=int, default=2000, show_default=True, help="Training steps of every run.")
@click.option("--figure", type=click.Path(path_type=Path), help="Error against lag as a PNG file.")
@_json
@_quiet
def horizon_experiment(most: int, seeds: int, steps: int, figure: Path | None, as_json: bool, quiet: bool) -> None:
    """Do trained float32 networks ever beat the certified optimum for a lag, and where do they stop learning it?"""
    from verify.experiments import check_lags

    _check_training(seeds, steps, 1)
    check_lags(most)
    if figure is not None:
        from constructions.card import check_place

        check_place(figure)
    from verify.experiments.horizon import Protocol
    from verify.experiments.horizon import run as run_experiment
    from verify.report import lags_figure, show_lags, training

    with training(quiet or as_json) as report:
        result = run_experiment(Protocol(most, seeds, steps), report)
    if figure is not None:
        result["figure"] = str(figure) if lags_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_lags(result)
    if result["violations"]:
        sys.exit(1)


@experiment.command("we-lm")
@click.option("--text", type=click.Path(path_type=Path), required=True, metavar="FILE", help="A UTF-8 text; its last tenth is held out.")
@click.option("--steps", type=int, default=600, show_default=True, help="Training steps of every run.")
@click.option("--seeds", type=int, default=2, show_default=True, help="Runs per size.")
@click.option("--length", type=int, default=64, show_default=True, help="Characters of a window.")
@_json
@_quiet
def we_lm(text: Path, steps: int, seeds: int, length: int, as_json: bool, quiet: bool) -> None:
    """Wang & E, 1a and 3b, on the characters of a text: depth against heads at equal parameters, with and without dot products."""
    from verify.experiments.corpus import read_corpus

    _check_training(seeds, steps, 1)
    corpus = read_corpus(text, length)
    from verify.experiments.we_lm import run as run_experiment
    from verify.report import show_language, training

    with training(quiet or as_json) as report:
        result = run_experiment(corpus, length, steps, seeds, report)
    if as_json:
        _emit(result)
    else:
        show_language(result)


@cli.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, metavar="A B [C …]")
@click.option("--target", "target_file", type=click.Path(path_type=Path), help="The target.  [default: that of the first card with one]")
@click.option("--sequences", type=int, default=256, show_default=True, help="Random sequences.")
@click.option("--length", type=int, help="Tokens per sequence.  [default: until the slowest head has seen all but 2^-10 of its weight]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--tokens", type=click.Choice(["uniform", "signs"]), help="Random tokens where there is no alphabet.  [default: uniform]")
@click.option("--figure", type=click.Path(path_type=Path), help="Kernels, decays, errors and probes as a PNG file.")
@_json
@_quiet
def compare(
    folders: tuple[Path, ...],
    target_file: Path | None,
    sequences: int,
    length: int | None,
    seed: int,
    tokens: str | None,
    figure: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Constructed, trained and imported networks of one target side by side; exit 1 if a certificate is contradicted.

    Sampled: errors, effective kernels (the mean of ∂ŷ_t/∂x_{t-s}) and linear probes, on the same random sequences. Certified: worst-case
    errors, by the same verifier wherever there is one dp-free layer.
    """
    if not 2 <= len(folders) <= MAX_COMPARED:
        raise InputError(f"{len(folders)} bundle{'' if len(folders) == 1 else 's'} to compare; give 2 to {MAX_COMPARED} folders")
    if seed < 0:
        raise InputError(f"--seed {seed} is negative")
    if not 2 <= sequences <= MAX_SEQUENCES:
        raise InputError(f"--sequences {sequences} is out of range; give 2 to {MAX_SEQUENCES}")
    if length is not None and not 1 <= length <= MAX_LENGTH:
        raise InputError(f"--length {length} is out of range; give 1 to {MAX_LENGTH}")
    if figure is not None:
        from constructions.card import check_place

        check_place(figure)
    from constructions.card import read_files

    found = [read_files(folder) for folder in folders]
    target = _common_target(found, target_file)
    coupled = target.describe()["kind"] == "coupling"
    letters = getattr(target, "alphabet", None) is not None
    if tokens is not None and (coupled or letters):
        raise InputError("--tokens is for targets without an alphabet, whose tokens lie in [-1, 1]")
    from constructions.target_values import settled, token_dim

    first = settled(target)
    if coupled and length not in (None, target.length):
        raise InputError(f"this coupling has sequences of {target.length} tokens, not {length}")
    if not first < (length or MAX_LENGTH):
        raise InputError(f"the target looks {first} tokens back; --length must be larger, and is {MAX_LENGTH} at most")
    from constructions.bundle import load
    from verify.compare import Protocol, derived_length
    from verify.compare import compare as side_by_side
    from verify.report import compare_figure, show_compared, steps

    bundles = [load(files) for files in found]
    for folder, bundle in zip(folders, bundles, strict=True):
        if bundle.network.dim != token_dim(target):
            raise InputError(f"{folder} reads tokens of dimension {bundle.network.dim}, the target has {token_dim(target)}")
    count = length or min(MAX_LENGTH, derived_length(target, [bundle.network for bundle in bundles]))
    if sequences * count * token_dim(target) > MAX_TOKENS:
        raise InputError(f"{sequences} sequences of {count} tokens are more than {MAX_TOKENS} numbers; give fewer or shorter ones")
    protocol = Protocol(sequences, count, first, seed, "letters" if letters else tokens or "uniform")
    with steps("comparing", quiet or as_json) as step:
        result = side_by_side(list(zip(_names(folders), bundles, strict=True)), target, protocol, step)
    if figure is not None:
        result["figure"] = str(figure) if compare_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_compared(result)
    if any(column["faults"] for column in result["networks"]):
        sys.exit(1)


def _common_target(found: list[Any], target_file: Path | None) -> Any:
    """The target given, or the one that all cards with a target name."""
    from analyzer.targets import read_toml, target_from_dict

    if target_file is not None:
        return target_from_dict(read_toml(target_file), str(target_file))
    named = [(files.path, target_from_dict(files.card["target"], f"{files.path}/card.json")) for files in found if files.card.get("target")]
    if not named:
        raise InputError("none of these cards names a target; give --target")
    for path, target in named[1:]:
        if target.describe() != named[0][1].describe():
            raise InputError(f"{path} has another target than {named[0][0]}; give --target to measure all against one")
    return named[0][1]


def _names(folders: tuple[Path, ...]) -> list[str]:
    """Names of folders; paths where names repeat, numbered where paths do. `target` is the target's."""
    plain = [folder.resolve().name for folder in folders]
    names: list[str] = []
    for folder, name in zip(folders, plain, strict=True):
        wanted = name if plain.count(name) == 1 and name != "target" else str(folder)
        repeated = sum(other == folder for other in folders[: len(names)])
        names.append(f"{wanted} ({repeated + 1})" if repeated or wanted == "target" else wanted)
    return names


@cli.command()
@click.argument("weights", type=click.Path(path_type=Path), metavar="BUNDLE|FILE.safetensors")
@click.option("--input", "source", type=click.Path(path_type=Path), required=True, help="Tokens, or what the layer of a FILE reads, .npy.")
@click.option("--layer", type=int, help="Only this layer of a bundle, or this pair of arrays of a file, counted from 0.")
@click.option("--heads", type=int, help="FILE: split arrays of shape (H·dk, D) into H heads.")
@click.option("--figure", type=click.Path(path_type=Path), help="Singular values as a PNG file.")
@_json
def spectrum(weights: Path, source: Path, layer: int | None, heads: int | None, figure: Path | None, as_json: bool) -> None:
    """Singular values of a trained attention's logits on data, with effective rank and decay exponent (sampled, not certified).

    A BUNDLE is run on --input, tokens of shape (N,), (N, d) or (batch, N, d), and every head of every dot-product layer is analysed.

    A FILE holds weights from anywhere: pairs of arrays <prefix>query<suffix> and <prefix>key<suffix> (or q_proj and k_proj; the suffix
    is empty or such as .weight) of shape (H, dk, D), (dk, D), or (H·dk, D) with --heads H, and matching arrays with .bias if there are
    any; --input is then what that layer reads, (N, D) or (batch, N, D). The logits are ⟨W_Q x + b_Q, W_K x' + b_K⟩, without 1/√dk,
    rotation or norm.
    """
    if heads is not None and (weights.is_dir() or heads < 1):
        raise InputError("--heads H, at least 1, splits the arrays of a FILE; a bundle knows its heads")
    if figure is not None:
        from constructions.card import check_place

        check_place(figure)
    inputs = _numbers(source)
    found, note = _bundle_spectra(weights, inputs, source, layer) if weights.is_dir() else _file_spectra(weights, inputs, layer, heads)
    from verify.report import show_spectrum, spectrum_figure
    from verify.spectrum import describe

    result = describe(str(weights), found, inputs.size // inputs.shape[-1] if inputs.ndim > 1 else len(inputs), note)
    if figure is not None:
        result["figure"] = str(figure) if spectrum_figure(figure, result) else None
    if as_json:
        _emit(result)
    else:
        show_spectrum(result)


def _bundle_spectra(folder: Path, tokens: Any, source: Path, layer: int | None) -> tuple[list[Any], str]:
    """Heads of the dot-product layers of one of our networks, and a remark."""
    from constructions.card import read_files
    from constructions.scores import coupled_places

    files = read_files(folder)
    _check_domain(files.card, tokens, source)
    structure = files.card.get("structure")
    if isinstance(structure, list) and all(isinstance(part, dict) for part in structure):
        coupled_places([str(part.get("kind")) for part in structure], layer)  # refused without loading JAX
    from constructions.bundle import load
    from constructions.stream import coupled_layers
    from verify.spectrum import spectra

    network = load(files).network
    if tokens.ndim == 1 and network.dim == 1:
        tokens = tokens[:, None]
    found = [head for index, scores, inputs in coupled_layers(network, tokens, layer) for head in spectra(scores, index, inputs)]
    unnormalised = sorted({head.layer for head in found if network.layers[head.layer].attention.kind == "nf"})
    seen = ", ".join(map(str, unnormalised))
    return found, f"layers without a normaliser, where the plain logits count: {seen}" if unnormalised else ""


def _file_spectra(path: Path, inputs: Any, layer: int | None, heads: int | None) -> tuple[list[Any], str]:
    """Heads of the query and key arrays of a file, and a remark."""
    from constructions.scores import read_scores
    from verify.spectrum import spectra

    pairs = read_scores(path, heads, layer)
    found = [head for place, scores in pairs for head in spectra(scores, place, inputs)]
    return found, "" if len(pairs) == 1 else f"all {len(pairs)} pairs were given the same input; --layer chooses one"


@cli.command("import")
@click.argument("weights", type=click.Path(path_type=Path), metavar="WEIGHTS.safetensors")
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG.toml")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the bundle.")
@_json
def import_command(weights: Path, config: Path, out: Path, as_json: bool) -> None:
    """Make a bundle of weights that were trained elsewhere; docs/import.md explains CONFIG."""
    from constructions.card import check_output

    check_output(out)
    from constructions.foreign import read_foreign

    found = read_foreign(weights, config)
    from constructions.bundle import network_of, write
    from verify.report import show_imported

    network = network_of(found.arrays, found.structure)
    card = found.card(network.sizes())
    write(out, network, card, "")
    kept = {key: card[key] for key in ("origin", "source", "target", "sizes")}
    result = {"out": str(out), **kept, "dtype": found.dtype, "structure": found.structure}
    if as_json:
        _emit(result)
    else:
        show_imported(result)


@cli.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder for figure, CSV and bundle.")
@_json
@_quiet
def demo(out: Path, as_json: bool, quiet: bool) -> None:
    """The tour: a table to remember, one network with its chain, one figure."""
    from verify.demo import run_demo

    result = run_demo(out, quiet or as_json, show=not as_json)
    if as_json:
        _emit(result)
    if "violated" in (
        result[act]["chain"]["verdict"] if act else result["chain"]["verdict"] for act in ("", "adaptive", "depth", "coupling")
    ):
        sys.exit(1)


def main() -> None:
    """Entry point: our errors and usage errors become one line on stderr and exit code 2."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a group without a command: its help is the answer
            click.echo(message, err=True)
            sys.exit(2)
        _fail(message)
    except click.Abort:
        _fail("interrupted")
    except Refusal as refusal:
        _fail(refusal.text(_flag))
    except LemmaformerError as error:
        _fail(str(error))
    except (OSError, MemoryError, RecursionError) as error:
        _fail(f"{type(error).__name__}: {str(error)[:120]}")


def _flag(option: str, value: OptionValue) -> str:
    """An option as the command line writes it."""
    name = f"--{option.replace('_', '-')}"
    if value is None or isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _fail(message: str) -> None:
    click.echo(f"lemmaformer: {' '.join(message.split())}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()

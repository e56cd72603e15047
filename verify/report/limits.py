"""Limits: what no network of a class can do, beside what a network was found to do."""

from itertools import zip_longest
from typing import Any

from analyzer.numbers.exact import decimal_above, decimal_below
from verify.report.console import console, show_places, table
from verify.report.words import enclosure, number, runs

ROOM = {"states": "12", "heads": "12", "window": "2^48"}
"""How far `limits architectures` looks for a size that is enough."""
LETTERS = {"states": "m", "window": "w", "heads": "H"}


def show_lag_limit(result: dict[str, Any]) -> None:
    """A lag between its two sides."""
    _show_lag(result)
    show_places(result, "certificate", "figure")


def _show_lag(result: dict[str, Any]) -> None:
    out = console()
    what = "heads of both types" if result["rpe"] == "mixed" else f"{result['rpe']} heads"
    out.print(
        f"lag {result['lag']}, one dp-free layer: at least {result['min_heads']} {what} for any error below 1 (lag law, {result['proof']})"
    )
    if result.get("least_error"):
        out.print(f"{result['heads']} heads are too few: whatever their decays and the read-out, the worst-case error is at least 1")
    if "mean_square" in result:
        show_mean_square(result["mean_square"], f"lag {result['lag']}, {result['heads']} {what}")
        return
    pair = result["budgeted_error"]
    if pair is None:
        out.print("give a dtype or bits for the least error that an arithmetic allows")
        return
    rows = [["certified lower bound", number(pair["lower"])], ["certified upper bound", number(pair["upper"])]]
    if "pi_law" in result:
        rows.append([f"π-law, closed form (λ = {result['pi_law_frequency']:g})", number(result["pi_law"])])
        rows.append(["by hand: min(1, u·C(2T, T))", number(result["hand_bound"])])
    out.print(f"least error plus price of rounding, {result['arithmetic']} (u = {result['unit']}), any decays:")
    out.print(table("", ["E_u", "value"], rows))
    used = f"{result['heads_used']} heads" if result["heads_used"] else "the zero network"
    out.print(f"upper bound by {used}, weights adding up to {number(result['weights_l1'])}")
    out.print(f"source: {result['source']}")


def show_mean_square(pair: dict[str, Any], title: str) -> None:
    """The least mean square error over all decays, between its two sides."""
    out = console()
    rows = [[f"any decays ≥ ({pair['method']})", decimal_below(pair["lower"], 6)]]
    if pair["reached"] is not None:
        rows.append(["bank found ≤", decimal_above(pair["reached"], 6)])
    if pair["law"] is not None:
        rows.append(["law for all decays ≥", decimal_below(pair["law"], 6)])
    out.print(table(title, ["mean square error, share of the tokens' variance", "value"], rows))
    out.print("for independent tokens and affine read-outs; for Gaussian tokens whatever the read-out")
    if pair["decays"]:
        out.print("decays of the bank: " + ", ".join(f"{p:.5g}" for p in pair["decays"]), soft_wrap=True)
    if pair["lower"] == 0 and pair["method"] == "closed form":
        out.print("the infimum is 0, approached as decays grow")


def show_horizon(result: dict[str, Any]) -> None:
    """Horizons, one row per arithmetic."""
    out = console()
    columns = ["arithmetic", "horizon", "E_u there <", "E_u beyond ≥", "⌊ln(1/u)/π⌋"]
    rows = [
        [r["arithmetic"], r["horizon"], "-" if r["upper"] is None else number(r["upper"]), number(r["next_lower"]), r["rule"]]
        for r in result["rows"]
    ]
    out.print(f"the largest lag with E_u < 1/2, {result['rpe']} heads, any number of them:")
    out.print(table("", columns, rows))
    if "rule_holds" in result:
        verdict = "holds" if result["rule_holds"] else f"fails at {', '.join(map(str, result['rule_exceptions']))} bits"
        out.print(f"the rule ⌊ln(1/u)/π⌋ {verdict}")
    show_places(result)


def show_slopes(result: dict[str, Any]) -> None:
    """The audit of given slopes."""
    out = console()
    rows = [[r["lag"], number(r["lower"]), number(r["upper"]), "yes" if r["resolved"] else "no"] for r in result["rows"]]
    out.print(f"{result['heads']} {result['rpe']} heads with slopes {result['slopes']}, any weights, stored in {result['dtype']}:")
    out.print(table("", ["lag", "best error ≥", "best error ≤", "below 1/2"], rows))
    resolved = ", ".join(map(str, result["resolved"])) or "none"
    out.print(f"lags that position alone can resolve: {resolved}")
    show_places(result, "certificate", "figure")


def show_model(result: dict[str, Any]) -> None:
    """The position parts of a published model, one row each."""
    out, rows = console(), []
    for row in result["groups"]:
        first = row["first_unresolved"]
        undecided = f"; undecided {runs(row['undecided'])}" if row["undecided"] else ""
        decays = f"{row['slowest']:.3g} to {row['fastest']:.3g}" if "slowest" in row else "-"
        beyond = ["-", "-"] if first is None else [first["lag"], decimal_below(first["lower"], 6)]
        rows.append([row["scheme"], row["about"], decays, (runs(row["resolved"]) or "none") + undecided, *beyond])
    out.print(f"{result['model']} ({result['family']}): lags 1 to {result['longest']} that positions alone resolve", soft_wrap=True)
    out.print(f"(error below 1/2, weights in {result['dtype']}):")
    out.print(table("", ["where", "given", "decays", "resolved", "first not", "error ≥"], rows))
    for row in result["groups"]:
        for lag, heads in row["alone"].items():
            out.print(f"{row['scheme']}: lag {lag} by one head alone: {runs(heads)}", soft_wrap=True)
    for row in result["without"]:
        out.print(f"layers {runs(row['layers'])}: nothing that falls with the distance ({row['reason']})", soft_wrap=True)
    if result["window"] is not None:
        out.print(f"biases over a window of {result['window']} tokens", soft_wrap=True)
    if result["float32_differs"]:
        out.print(f"a float32 logarithm puts the distances {runs(result['float32_differs'])} into other buckets", soft_wrap=True)
    for remark in result["remarks"]:
        out.print(remark, soft_wrap=True)
    out.print(f"certified: {result['certified']}", soft_wrap=True)
    out.print(f"not certified: {result['not_certified']}", soft_wrap=True)
    show_places(result)


def show_positions(result: dict[str, Any]) -> None:
    """Schemes of relative positions, one row each."""
    out, rows = console(), []
    for row in result["schemes"]:
        first = row["first_unresolved"]
        undecided = f"; undecided {runs(row['undecided'])}" if row["undecided"] else ""
        beyond = ["-", "-"] if first is None else [first["lag"], decimal_below(first["lower"], 6)]
        rows.append([row["scheme"], row["about"], (runs(row["resolved"]) or "none") + undecided, *beyond, row["law"]])
    out.print(f"lags 1 to {result['longest']} that positions alone resolve (error below 1/2), {result['dtype']}:")
    out.print(table("", ["scheme", "given", "resolved", "first not", "error ≥", "law"], rows))
    for row in result["schemes"]:
        out.print(f"{row['scheme']}: {row['reason']}", soft_wrap=True)
    if result.get("float32_differs"):
        out.print(f"t5: a float32 logarithm puts the distances {runs(result['float32_differs'])} into other buckets", soft_wrap=True)
    show_places(result)


def show_checked(result: dict[str, Any]) -> None:
    """A certificate file, re-checked."""
    out = console()
    if "entries" in result:
        rows = [[e["lag"], number(e["lower"]), "-" if e["upper"] is None else number(e["upper"])] for e in result["entries"]]
        out.print(f"{result['claim']}, {result['rpe']}: from the exact numbers in the file")
        out.print(table("", ["lag", "lower", "upper"], rows))
    else:
        out.print(f"{result['kernel']}, {result['rpe']}, {result['heads']} heads: {number(result['lower'])} ≤ {number(result['upper'])}")
    for fault in result["faults"]:
        out.print(fault, soft_wrap=True)
    colour = "red" if result["faults"] else "green"
    out.print(f"[{colour}]{result['verdict']}[/] in {result['seconds']:.2f} s, without a solver")


def show_kernel_limits(result: dict[str, Any]) -> None:
    """Both sides of a memory kernel."""
    title = f"y_t = Σ ρ(s) x_(t-s), ρ(s) = {result['kernel']}, {result['rpe']}, {result['heads']} heads"
    if "mean_square" in result:
        show_mean_square(result["mean_square"], title)
        show_places(result)
        return
    out, section = console(), result["section"]
    ratio = "-" if result["ratio"] is None else f"{result['ratio']:.4g}"
    row = [result["kernel_norm"], result["lower"], result["upper"]]
    out.print(table(title, ["no heads", "any heads ≥", "fitted bank ≤", "ratio"], [[*map(number, row), ratio]]))
    out.print(f"lower: {result['method']}, {section['rows']} rows, {section['tokens']} past tokens")
    out.print("decays: " + ", ".join(f"{p:.5g}" for p in result["decays"]), soft_wrap=True)
    if "note" in result:
        out.print(f"note: {result['note']}")
    show_places(result, "certificate", "figure")


def show_architectures(result: dict[str, Any]) -> None:
    """One kernel, one row per architecture and size; sizes for an error below it."""
    out = console()
    named = {row["architecture"]: row for row in result["architectures"]}
    rows, last = [], ""
    for row in result["rows"]:
        about = named[row["architecture"]]
        label, last = "" if last == about["label"] else about["label"], about["label"]
        ends = [decimal_below(row["lower"]), decimal_above(row["upper"])]
        rows.append([label, f"{LETTERS[about['counts']]} = {row['size']}", row["parameters"], *ends, row["upper_by"]])
    out.print(f"y_t = Σ ρ(s) x_(t-s), ρ(s) = {result['kernel']}: least worst-case error, tokens in [-1, 1]", soft_wrap=True)
    out.print(table("", ["architecture", "size", "parameters", "error ≥", "error ≤", "reached by"], rows))
    if result["error"] is not None:
        sizes = []
        for row in result["architectures"]:
            most = [f"none found, up to {ROOM[row['counts']]}", "-"] if row["enough"] is None else [row["enough"], row["parameters"]]
            sizes.append([row["label"], LETTERS[row["counts"]], row["needs"], *most])
        out.print(f"for an error of {number(result['error'])}:")
        out.print(table("", ["architecture", "size", "needs at least", "is enough", "parameters"], sizes))
    for row in result["architectures"]:
        out.print(f"{row['label']}: {row['about']}", soft_wrap=True)
    out.print(f"parameters: {result['counting']}", soft_wrap=True)
    show_places(result)


def show_coupling_limits(result: dict[str, Any]) -> None:
    """Certified singular values of a coupling, and the best error of every rank."""
    out = console()
    out.print(
        f"coupling {result['coupling']}: singular values by {result['method']}, error bar {number(result['error_bar'])}", soft_wrap=True
    )
    pairs = zip_longest(result["singular_values"][:8], result["centred_singular_values"][:8])
    rows = [[k, *(enclosure(p) if p else "-" for p in pair)] for k, pair in enumerate(pairs, start=1)]
    out.print(table("", ["k", "σ_k of ρ", "σ_k of ρ modulo functions of u"], rows))
    best = [
        [r["rank"], enclosure([r["lower"], r["upper"]]), decimal_below(r["log_odds"], 6), decimal_above(r["plain_upper"], 6)]
        for r in result["rows"]
    ]
    out.print("no query and key maps with m_h coordinates come closer to ρ, in L² and modulo functions of u, than")
    out.print(table("", ["m_h", "best error", "log-odds of two tokens off by ≥", "best without the modulo ≤"], best))
    ranks = ["infinite or undecided" if result[key] is None else str(result[key]) for key in ("rank", "centred_rank")]
    out.print(f"rank {ranks[0]}; modulo functions of u {ranks[1]}")
    if result["decay"] is not None:
        decay = result["decay"]
        out.print(f"fitted decay σ_k ~ k^-{decay['alpha']:.3f} (± {decay['standard_error']:.3f}) over {decay['values']} values")
    if "complexities" in result:
        found = result["complexities"]
        c2 = "not bounded (a kink)" if found["c2"] is None else f"≤ {number(found['c2'])}"
        out.print(f"complexities at α = {found['alpha']:.4g}: C_0 ≤ {number(found['c0'])}, C_1 ≤ {number(found['c1'])}, C_2 (splines) {c2}")
    show_places(result)


def show_permutation(result: dict[str, Any]) -> None:
    """The least error without positions, and what it comes from."""
    out, made = console(), result["constructed"]
    floor = result["floor_exact"] or decimal_below(result["lower"], 6)
    out.print(f"{result['target']}: without positions every network errs by at least {floor}", soft_wrap=True)
    if result["orders"]:
        out.print("two orders that it cannot tell apart:")
        for order in result["orders"]:
            out.print(f"  {order}", soft_wrap=True)
    else:
        known = "" if result["equivariant"] else ", as far as enclosures tell"
        out.print(f"the target does not depend on the order{known}: positions are not needed")
    sizes = made["sizes"]
    reached = decimal_above(result["upper"], 6)
    out.print(
        f"reached by one head and {sizes['width']} neurons that read the {made['reads']} of letters: {reached} (certified)", soft_wrap=True
    )
    if result["error"] is not None:
        word = {True: "possible", False: "impossible", None: "undecided"}[result["possible"]]
        out.print(f"an error of {number(result['error'])} without positions: {word}")


def show_invariance(result: dict[str, Any]) -> None:
    """The verdict on two couplings, with ranks."""
    out = console()
    first, second = result["couplings"]
    out.print(f"{first}  and  {second}: {result['verdict']}", soft_wrap=True)
    shown = {True: "shown", False: "not shown"}
    rows = [
        ["rho' - rho is a function of the query", shown[result["query_only"]]],
        ["f' = a f + b and F'(a y + b) = F(y)", shown[result["affine"]]],
        ["the targets differ by at least", decimal_below(result["difference"], 6)],
        ["and by at most", "-" if result["difference_upper"] is None else decimal_above(result["difference_upper"], 6)],
    ]
    out.print(table("", ["what", "answer"], rows))
    if result["tokens"]:
        out.print(f"at the first of the tokens {', '.join(f'{token:g}' for token in result['tokens'])}", soft_wrap=True)
    for name, key in (("rank", "ranks"), ("modulo functions of the query", "ranks_modulo_query")):
        out.print(f"{name}: " + ", ".join("infinite or undecided" if rank is None else str(rank) for rank in result[key]))


def show_rnn_limits(result: dict[str, Any]) -> None:
    """C_RNN, floors for causal models, filters, and the RNN that is exact."""
    out, found, floor, made = console(), result["complexity"], result["floor"], result["constructed"]
    if found["c1"] is None:
        out.print(f"{result['kernel']}: C_RNN is infinite, a power law is not in the RNN space")
    else:
        out.print(f"{result['kernel']}: C_1 = {number(found['c1'])}, C_2 = {enclosure(found['c2'])}, C_RNN = {enclosure(found['c_rnn'])}")
    rows = [
        [name, decimal_below(floor[key], 6)]
        for name, key in (
            ("any causal model, worst case", "supremum"),
            ("any causal model, mean square", "mean_square"),
            ("linear RNNs with biases, mean square", "linear"),
            ("linear RNNs without, mean square", "unbiased"),
        )
    ]
    title = f"first and last {result['swapped']} of {result['length']} tokens exchanged"
    out.print(table(title, ["certified floor", "error ≥"], rows))
    if "mixing" in result:
        mixed = result["mixing"]
        ranks = f"rank of the softmax logits at least {mixed['rank_before']} before and {mixed['rank_after']} after"
        out.print(f"filtered: C_2 ≤ {decimal_above(mixed['c2'], 6)} (Prop 6.3 allows {number(mixed['allowed'])}); {ranks}")
    if "refused" in made:
        out.print(f"no RNN built: {made['refused']}", soft_wrap=True)
    else:
        chain = f"{number(made['witness'])} ≤ {number(made['certified'])} ≤ {number(made['bound'])}"
        out.print(f"RNN built from the exponentials, {made['dtype']}, tokens in order: {chain} ({made['verdict']})")
    show_places(result)


def show_dp_free(result: dict[str, Any]) -> None:
    """prop-4.2 in four inputs and two numbers."""
    out, dp = console(), result["dp"]
    rows = [[str(tuple(p["tokens"])), p["wanted"], p["weight"]] for p in result["certificate"]]
    title = "y_t = x_{t-g(x_t)}, g(x) = x + 1: four inputs that no affine functional tells apart"
    out.print(table(title, ["(x_t, x_{t-1}, x_{t-2})", "wanted", "weight"], rows))
    exact, paper = result["lower_bound_exact"], result["paper_exact"]
    out.print(f"every dp-free attention layer with a linear read-out, any number of heads: error ≥ {exact} (paper: {paper})")
    out.print(
        f"one dot-product layer with {dp['heads']} heads: {number(dp['witness'])} ≤ {number(dp['certified'])} ≤ {number(dp['bound'])}"
    )

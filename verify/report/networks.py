"""Networks: weights from elsewhere, spectra of their logits, and what training made of a construction."""

from typing import Any

from analyzer.numbers.exact import decimal_above
from verify.report.comparisons import show_compared
from verify.report.console import console, show_places, table
from verify.report.words import number


def network_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """A network in a few rows: what it is for, its sizes, its slots, and the chain that its card claims."""
    sizes, chain = data["sizes"], data["chain"] or {}
    rows = [("network", data["theorem"] or data["origin"]), ("target", data["target"] or "none"), ("arithmetic", data["dtype"])]
    rows.append(("sizes", ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in sizes.items())))
    rows.append(("slots", ", ".join(f"{name} {places}" for name, places in data["slots"].items())))
    known = [f"{name} {number(chain[name])}" for name in ("witness", "certified", "bound") if isinstance(chain.get(name), int | float)]
    how = " in mean square" if data["norm"] == "mean-square" else ""
    rows.append(("chain", (" ≤ ".join(known) + how + f": {chain.get('verdict')}") if known else "not certified"))
    return rows


def show_imported(result: dict[str, Any]) -> None:
    """What was found in foreign weights, layer by layer."""
    out, sizes = console(), result["sizes"]
    rows = []
    for index, layer in enumerate(result["structure"]):
        counts = {kind: layer["rpe"].count(kind) for kind in dict.fromkeys(layer["rpe"])}
        rows.append([index, layer["kind"], layer["window"], ", ".join(f"{count} {kind}" for kind, count in counts.items())])
    out.print(table("", ["layer", "attention", "window", "heads"], rows))
    out.print(f"{sizes['parameters']} weights in {result['dtype']}, model dimension {sizes['model_dim']}, at most {sizes['width']} neurons")
    if result["target"] is None:
        out.print("no target: the network runs and shows its spectra; compare and verify need a [target] in the TOML file", soft_wrap=True)
    out.print(f"written to {result['out']}", soft_wrap=True)


def show_gallery(result: dict[str, Any]) -> None:
    """One row per network: its sizes, its chain and the roles of its heads."""
    out, rows = console(), []
    for row in result["networks"]:
        roles = ", ".join(f"{count} {role}" for role, count in row["roles"].items())
        rows.append([row["theorem"], row["target"], row["sizes"]["layers"], roles, decimal_above(row["certified"], 3), row["verdict"]])
    out.print(table("", ["theorem", "target", "layers", "heads", "certified ≤", "verdict"], rows))
    out.print(f"written to {result['out']}: a bundle and its mechanism for each", soft_wrap=True)


FORMS = {
    "heads": "head by head",
    "kernels": "heads added up into kernels: their weights cancel to more digits than floats have",
    "lags": "heads added up into one kernel for every lag: their weights cancel to more digits than floats have",
}


def show_exported(result: dict[str, Any]) -> None:
    """What was written for another program, and how far its outputs are from the network's own."""
    out = console()
    if result.get("form") in FORMS:
        out.print(FORMS[result["form"]], soft_wrap=True)
    tokens = f" of {result['length']} tokens" if "length" in result else ""
    on = f" on {result['sequences']} random sequences{tokens}" if "sequences" in result else ""
    where = f", at the {100 * result['decided']:.0f} % of positions where rounding decides nothing" if result.get("decided", 1) < 1 else ""
    word = "certified" if result["certified"] else "not certified"
    found = "no output has a tolerance on random sequences"
    if result["difference"] is not None:
        found = f"difference {number(result['difference'])} (measured{on}), tolerance {number(result['tolerance'])} (derived){where}"
    out.print(f"{word}: {found}", soft_wrap=True)
    if result.get("why"):
        covered = "the certificate's rounding analysis covers it" if result["covered"] else "the certificate does not cover it:"
        out.print(f"{covered} {result['why']}", soft_wrap=True)
    out.print(f"written to {result['place']}", soft_wrap=True)


def show_spectrum(result: dict[str, Any]) -> None:
    """Spectra of the logits of every head, as they are and as softmax sees them."""
    out = console()
    rows = []
    for h in result["heads"]:
        plain, centred = h, h["centred"]
        for kind, found in (("plain", plain), ("centred", centred)):
            first = found["singular_values"][0] if found["singular_values"] else 0.0
            place = [f"{h['layer']}.{h['head']}", h["dk"]] if found is plain else ["", ""]
            counts = [found["numerical_rank"], f"{found['effective_rank']:.3f}", found["values_for_99_percent"]]
            rows.append([*place, kind, f"{first:.4g}", *counts, _decay(found), _tail(found, h["dk"])])
    columns = ["head", "dk", "logits", "σ₁", "rank", "effective", "99 %", "α", "tail"]
    out.print(f"{result['source']}: logits on {result['tokens']} tokens", soft_wrap=True)
    out.print(table("", columns, rows))
    out.print("effective rank: exp of the entropy of σ²/Σσ²; 99 %: how many values hold so much of Σσ²; α: σ_k ~ k^-α;", soft_wrap=True)
    out.print("tail: share of Σσ² beyond dk/2; centred: each row's mean over keys removed, which softmax does not see", soft_wrap=True)
    out.print(result["note"], soft_wrap=True)
    show_places(result)


def _decay(found: dict[str, Any]) -> str:
    return "-" if found["decay_exponent"] is None else f"{found['decay_exponent']:.3g} ± {found['decay_error']:.2g}"


def _tail(found: dict[str, Any], dk: int) -> str:
    """Share of the energy that half of the head's dimensions would miss."""
    shares, half = found["tail_shares"], dk // 2
    return f"{shares[half - 1]:.2g}" if 1 <= half <= len(shares) else "-"


def show_arms(result: dict[str, Any]) -> None:
    """The comparison of all arms, and what became of the mechanism."""
    show_compared(result)
    out = console()
    arms = result["arms"]
    rows = [["steps", *(row["steps"] for row in arms)]]
    rows += [[name, *(f"{row[key]:.3g}" for row in arms)] for name, key in _LOSSES]
    rows.append(["mean square error", *("-" if row["mean_square"] is None else f"{row['mean_square']:.3g}" for row in arms)])
    rows.append(["weights moved", *(number(row["moved"]) for row in arms)])
    rows += [[name, *(number(row["mechanism"][key]) for row in arms)] for name, key in _FROM]
    rows.append(["mechanism", *(row["mechanism"]["kind"] for row in arms)])
    out.print(table("training (sampled; distances relative to the target's kernel)", ["", *(row["arm"] for row in arms)], rows))
    out.print(result["sentence"], soft_wrap=True)
    out.print(f"written to {result['out']}", soft_wrap=True)


_LOSSES = (("first loss", "first_loss"), ("highest loss", "highest_loss"), ("last loss (with slots, if taught)", "loss"))


_FROM = (("kernel off the construction's", "from_constructed"), ("kernel off the target's", "from_target"))

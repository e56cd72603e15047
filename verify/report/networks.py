"""Networks: weights from elsewhere, spectra of their logits, and what training made of a construction."""

from typing import Any

from verify.report.comparisons import show_compared
from verify.report.console import console, show_places, table
from verify.report.words import number


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

"""A device: hypotheses of certificates, facts, and which certificates apply."""

from typing import Any

from verify.report.console import console, table

FUSED = {True: "ab + c is fused into one rounding", False: "no ab + c was seen fused"}
FLUSHED = {
    (True, True): "operands and results below the least normal number become 0",
    (False, True): "results below the least normal number become 0",
    (True, False): "operands below the least normal number count as 0, results are kept",
    (False, False): "numbers below the least normal one are kept",
}


def show_diagnosis(result: dict[str, Any]) -> None:
    """One table of hypotheses per float type, then the certificates."""
    out, device = console(), result["device"]
    out.print(f"{device['platform']} ({device['kind']}), JAX {device['jax']}; errors in shares of what is allowed, on directed operands:")
    for found in result["dtypes"]:
        if not found["available"]:
            out.print(f"there is no {found['dtype']} here: {found['reason']}", soft_wrap=True)
            continue
        rows = [[check["name"], _share(check), "holds" if check["holds"] else "[red]violated[/]"] for check in found["checks"]]
        out.print(table(found["dtype"], ["hypothesis", "worst", "verdict"], rows))
        out.print(_facts(found["facts"]), soft_wrap=True)
        for check in found["checks"]:
            if not check["holds"]:
                out.print(f"{check['name']}: {check['hypothesis']}", soft_wrap=True, markup=False)
                out.print(f"  not at {', '.join(check['operands'])}", soft_wrap=True, markup=False)
    _show_certificates(result["certificates"])
    colour, verdict = ("green", "all hypotheses hold") if result["holds"] else ("red", f"violated: {'; '.join(result['violated'])}")
    out.print(f"[{colour}]{verdict}[/] in {result['seconds']:.1f} s; operands are many, not all: nothing is proved of the device")


def _show_certificates(rows: list[dict[str, Any]]) -> None:
    """One row per family, one column per float type; reasons below."""
    out, types = console(), list(dict.fromkeys(row["dtype"] for row in rows if row["dtype"]))
    said = {(row["what"], row["dtype"]): "yes" if row["applies"] else "[red]no[/]" for row in rows if row["dtype"]}
    families = list(dict.fromkeys(what for what, _ in said))
    out.print(table("", ["certificates of", *types], [[what, *(said[what, dtype] for dtype in types)] for what in families]))
    for row in rows:
        if row["dtype"] is None or not row["applies"]:
            where = f", {row['dtype']}" if row["dtype"] else ""
            out.print(f"{row['what']}{where}: {'apply' if row['applies'] else 'do not apply'} ({row['why']})", soft_wrap=True, markup=False)


def _share(check: dict[str, Any]) -> str:
    """Nothing where no error is allowed and none was seen."""
    return "wrong" if check["worst"] is None else "exact" if check["worst"] == 0 else f"{check['worst']:.4f}"


def _facts(facts: dict[str, Any]) -> str:
    rounded = [name for name, nearest in facts["correctly_rounded"].items() if nearest]
    correct = f"correctly rounded: {', '.join(rounded)}" if rounded else "no operation is correctly rounded"
    return f"{FUSED[facts['fused']]}; {FLUSHED[facts['flushes_inputs'], facts['flushes_outputs']]}; {correct}"

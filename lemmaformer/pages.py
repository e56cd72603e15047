"""Answers that are mostly text: theorem pages, trees of memories, what was written where."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from analyzer.errors import InputError
from analyzer.families import Rpe
from analyzer.statements.registry import THEOREMS
from lemmaformer.results.base import Plain, Shown, reporter
from verify.report import pages as report

if TYPE_CHECKING:
    from analyzer.targets.adaptive import AdaptiveMemory
    from constructions.files.broken import Change
    from lemmaformer.network import Network
    from verify.chain.certificate import Certificate

Form = Literal["page", "latex", "graph", "dot"]


def listing() -> Shown:
    """All theorems and limits."""
    rows = [{"id": theorem.id, "title": theorem.title} for theorem in THEOREMS.values()]
    return Shown({"theorems": rows}, report.listed(rows))


def page(name: str, form: Form, target: Path | None, rpe: Rpe, bank: str) -> Shown:
    """The page of a theorem or limit, its formula, or its proof as a graph; with a target, the proof for its memories."""
    theorem = THEOREMS[name]
    if theorem.is_limit:
        if form != "page" or target is not None:
            raise InputError(f"{name} is a limit, with its proof as text; formulas and graphs are for theorems")
        text = theorem.page.strip()
        return Shown({"id": theorem.id, "title": theorem.title, "page": text}, report.wrapped(text))
    from analyzer.statements.latex import latex
    from analyzer.statements.proof import dot, tree_lines

    assert theorem.lemmas is not None and theorem.expression is not None
    if target is None:
        proof = theorem.lemmas(rpe, bank, "spline", (4,) if name == "thm-3.1" else (2, 4))
    else:
        proof = _proof_of_target(name, theorem.title, adaptive_target(target), rpe, bank)
    formula = latex(theorem.expression(rpe, bank))
    keys = ("title", "relation", "budget")
    nodes = [{"name": lemma, **{key: str(data[key]) for key in keys}} for lemma, data in proof.nodes(data=True)]
    data: Plain = {"id": name, "title": theorem.title, "statement": theorem.formulas[rpe], "latex": formula}
    data |= {"lemmas": nodes, "uses": [list(edge) for edge in proof.edges]}
    match form:
        case "page":
            return Shown(data, report.wrapped(theorem.page.strip()))
        case "latex":
            return Shown(data, (formula,))
        case "dot":
            return Shown(data, (dot(proof),))
        case "graph":
            return Shown(data, tuple(tree_lines(proof)))


def adaptive_target(path: Path) -> "AdaptiveMemory":
    """A target that must be of the adaptive kind."""
    from analyzer.targets.adaptive import AdaptiveMemory
    from analyzer.targets.files import target_of_kind
    from analyzer.toml import read_toml

    return target_of_kind(read_toml(path), str(path), AdaptiveMemory)


def memories(path: Path, as_dot: bool) -> Shown:
    """Who depends on whom in an adaptive target."""
    target = adaptive_target(path)
    rows = [
        {"name": n, "level": target.levels[n], "parents": target.parents[n], "lags": target.occurring(k)}
        for k, n in enumerate(target.names)
    ]
    data: Plain = {"memories": rows, "levels": target.depth, "layers": target.depth + 1, "situations": len(target.situations)}
    return Shown(data, (target.dot(),) if as_dot else tuple(target.tree_lines()))


def _proof_of_target(name: str, title: str, target: "AdaptiveMemory", rpe: Rpe, bank: str) -> Any:
    from analyzer.theorems.positions import table_lags
    from analyzer.theorems.thm_4_4 import target_graph, theorem_of

    if name == table_lags.ID:
        return table_lags.target_graph(target, "spline")
    fitting = sorted({theorem_of(target, attention, deep) for attention in ("dp", "tmx") for deep in (False, True)})
    if name not in fitting:
        raise InputError(f"{name} does not speak of this target, but {' or '.join(fitting)} does")
    return target_graph(target, rpe, bank, "spline", name, title)


@dataclass(frozen=True, repr=False)
class Written(Shown):
    """A network that was written, with its chain."""

    certificates: "tuple[Certificate, ...]" = ()
    after: tuple[str, ...] = ()
    good: bool = True

    @property
    def holds(self) -> bool:
        return self.good

    def show(self) -> None:
        super().show()
        for certificate in self.certificates:
            reporter("certificates:show_certificate")(certificate)
        reporter(self.shown_by)(self.after)

    @classmethod
    def built(cls, net: "Network", out: Path, figure: Path | None = None) -> "Written":
        """A constructed network."""
        certificate, card = net.certificate, cast("dict[str, Any]", net.card)
        data: Plain = {"out": str(out), **certificate.as_dict(), "seeds": card["seeds"]}
        after = [f"written to {out}"]
        if "barron" in (card["ffn"], card.get("encode")):
            after.insert(0, report.drawn(card["seeds"]))
        if figure is not None:
            data["figure"] = str(figure)
            after.append(f"figure written to {figure}")
        assert net.target is not None
        return cls(data, tuple(net.target.tree_lines()), (certificate,), tuple(after), certificate.verdict.value != "violated")

    @classmethod
    def trained(cls, net: "Network", out: Path) -> "Written":
        """A trained network; what it does is no claim that could be violated."""
        run = cast("dict[str, Any]", net.card["training"])
        summary = {name: value for name, value in run.items() if name != "recipe"}
        data: Plain = {"out": str(out), "origin": "trained", **net.certificate.as_dict(), "training": summary}
        return cls(
            data,
            (report.trained(summary, "mean square loss" if net.transformer.outputs == 1 else "cross-entropy"),),
            (net.certificate,),
            (f"written to {out}",),
        )

    @classmethod
    def broken(cls, net: "Network", change: "Change", after: "Certificate", out: Path) -> "Written":
        """Two chains side by side."""
        before = net.verify()
        data: Plain = {"out": str(out), "change": change.as_dict(), "before": before.as_dict(), "after": after.as_dict()}
        rows = report.chains({"before": before, "after": after})
        return cls(data, (str(change), "", *rows, "", after.advice, f"written to {out}"))

"""Formulas of pages: every theorem's LaTeX becomes MathML with its symbols in it."""

import xml.etree.ElementTree as ElementTree

import pytest

from analyzer.statements.latex import latex
from analyzer.statements.registry import THEOREMS
from verify.report.web.mathematics import mathml

NAMES = [name for name, theorem in THEOREMS.items() if not theorem.is_limit]


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("name", NAMES)
def test_every_bound_becomes_mathml(name: str, rpe: str) -> None:
    expression = THEOREMS[name].expression
    assert expression is not None
    drawn = mathml(latex(expression(rpe, "tuned")), display=True)
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("math") and root.attrib["display"] == "block"
    assert "\\" not in "".join(root.itertext())

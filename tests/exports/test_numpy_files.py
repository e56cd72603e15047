"""numpy: the file runs where there is nothing but numpy, its literals are the weights, and it agrees within the tolerance."""

import ast
import doctest
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.exports import numpy_files
from constructions.exports.agreement import prepared
from constructions.exports.plain_rounding import tolerance
from constructions.run.execute import run as evaluate
from tests.exports.gallery import KINDS, SLOTS, built, random_one, tokens_of

NAMES = tuple("-".join(case) for case in KINDS)
ALONE = """
import sys
for name in ("lemmaformer", "constructions", "analyzer", "verify", "jax", "torch", "scipy"):
    sys.modules[name] = None
import numpy as np, net
outputs, stream = net.forward(np.load("tokens.npy"))
np.savez("found.npz", outputs=outputs, **{f"stream{i}": held for i, held in enumerate(stream)})
"""


def alone(folder: Path, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """What the file computes in a process without us."""
    np.save(folder / "tokens.npy", tokens)
    subprocess.run(
        [sys.executable, "-c", ALONE],
        check=True,
        cwd=folder,
        capture_output=True,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return dict(np.load(folder / "found.npz"))


@pytest.mark.deep(keep="contrast")
@pytest.mark.parametrize("name", ["contrast", "product", "nested", "pair", "shift-chain-1"])
def test_the_file_agrees_without_us(name: str, tmp_path: Path) -> None:
    net = built(name)
    found = net.to_numpy(tmp_path / "net.py")
    tokens = tokens_of(net, 20)
    seen = alone(tmp_path, tokens)
    exported = prepared(net.transformer, net.slots, tokens_of(net, 64, seed=0)).network
    assert found.as_dict()["form"] == exported.form
    limit = tolerance(net.transformer, exported, tokens)[..., 0]
    assert (np.abs(seen["outputs"] - net(tokens)) <= limit).all() and np.isfinite(limit).mean() > 0.5
    settled = net.target.settled  # type: ignore[union-attr]
    if net.dtype == "float32":
        return  # `trace` reads the decays in float64, not the ratios that were rounded to float32
    for number, slots in enumerate(list(net.trace(tokens).values())[:-1]):
        for slot, held in slots.items():
            np.testing.assert_allclose(seen[f"stream{number}"][:, settled:, net.slots[slot][0]], held[:, settled:], atol=2e-3)


@pytest.mark.deep(keep=("lin-dp-free-finite", "lin-dp-infinite"))
@pytest.mark.parametrize(("rpe", "kind", "window"), KINDS, ids=NAMES)
def test_every_kind_of_layer(rpe: str, kind: str, window: str, tmp_path: Path) -> None:
    """The writer compares; in this process, with the functions that are copied into files."""
    network, tokens = random_one(rpe, kind, window), np.random.default_rng(3).uniform(-1, 1, (4, 20, 2))
    found = numpy_files.write(network, SLOTS, tmp_path / "net.py", tokens=tokens)
    assert found["certified"] is False and float(found["difference"]) <= float(found["tolerance"]) < 1e-12  # type: ignore[arg-type]


@pytest.mark.deep
def test_literals_are_the_weights_to_the_last_bit(tmp_path: Path) -> None:
    network = random_one("log", "dp", "infinite", "float32")
    numpy_files.write(network, SLOTS, tmp_path / "net.py")
    text = (tmp_path / "net.py").read_text()
    tree = ast.parse(text)
    (weights,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WEIGHTS"]
    assert isinstance(weights, ast.Dict)
    found = {
        ast.literal_eval(key): np.array(ast.literal_eval(value.args[0])) for key, value in zip(weights.keys, weights.values, strict=True)
    }  # type: ignore[arg-type, attr-defined]
    np.testing.assert_array_equal(found["blocks.0.attn.W_V"], np.swapaxes(network.layers[0].attention.value, 1, 2))
    np.testing.assert_array_equal(found["blocks.1.mlp.W_out"], network.layers[1].feedforward.outer.T)
    assert {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)} == {"math", "numpy"}
    assert "not certified" in text.lower() and "others       coordinates 1, 2" in text


def test_a_changed_literal_is_seen(tmp_path: Path) -> None:
    """One weight by a thousandth: outputs leave the tolerance."""
    net = lf.build(lf.fixed(lags=(2,)))
    limit = net.to_numpy(tmp_path / "net.py").tolerance
    tokens = tokens_of(net, 4)
    text = (tmp_path / "net.py").read_text()
    wanted = evaluate(net.transformer, tokens)
    assert np.abs(alone(tmp_path, tokens)["outputs"] - wanted).max() <= limit
    start = text.index("'blocks.0.attn.W_O'")
    number = max(re.findall(r"-?[0-9]+\.[0-9e+]+", text[start : text.index("float)", start)]), key=lambda n: abs(float(n)))
    (tmp_path / "net.py").write_text(text[:start] + text[start:].replace(number, repr(float(number) * 1.001), 1))
    assert np.abs(alone(tmp_path, tokens)["outputs"] - wanted).max() > limit


@pytest.mark.deep(keep="numpy")
@pytest.mark.parametrize("to", ["numpy", "jax"])
def test_bad_places_and_formats_are_one_line(to: str, run: Callable[..., Any], tmp_path: Path) -> None:
    lf.build(lf.fixed(lags=(1,))).save(tmp_path / "net")
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "folder").mkdir()
    bad = [
        [tmp_path / "net", "--to", to, "--out", tmp_path / "taken"],
        [tmp_path / "net", "--to", to, "--out", tmp_path / "folder"],
        [tmp_path / "net", "--to", to, "--out", tmp_path / "folder", "--force"],
        [tmp_path / "net", "--to", to, "--out", tmp_path / "nowhere" / "x"],
        [tmp_path / "nowhere", "--to", to, "--out", tmp_path / "x"],
        [tmp_path / "net", "--to", "tensorflow", "--out", tmp_path / "x"],
        [tmp_path / "net", "--to", "numpy", "--length", 8, "--out", tmp_path / "x"],
        [tmp_path / "net", "--to", "jax", "--length", 0, "--out", tmp_path / "x"],
        [tmp_path / "net", "--to", to],
    ]
    for line in bad:
        found = run("export", *line)
        assert found.code == 2 and len(found.err.splitlines()) == 1 and not found.out, line
    assert (tmp_path / "taken").read_text() == "mine" and sorted(f.name for f in tmp_path.iterdir()) == ["folder", "net", "taken"]
    assert run("export", tmp_path / "net", "--to", to, "--out", tmp_path / "taken", "--force").code == 0
    with pytest.raises(lf.InputError, match="to is 'keras'; choose from torch, onnx, jax, numpy"):
        lf.export(tmp_path / "net", to="keras", out=tmp_path / "x")


def test_what_torch_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(lf.InputError, match="PyTorch is not installed"):
        lf.build(lf.fixed(lags=(1,))).to_torch()


@pytest.mark.deep
def test_the_page_about_exports_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent.parent / "docs" / "exports.md"
    (text,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    runner = doctest.DocTestRunner()
    found = runner.run(doctest.DocTestParser().get_doctest(text, {}, "exports.md", None, 0))
    assert found.attempted == 5 and found.failed == 0

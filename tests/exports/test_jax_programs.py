"""JAX: the program loads with jax alone, takes any batch of its length, and agrees within the tolerance."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lemmaformer as lf
from constructions.exports import jax_programs
from constructions.run.execute import run as evaluate
from tests.exports.gallery import KINDS, SLOTS, built, random_one, tokens_of

ALONE = """
import sys
for name in ("lemmaformer", "constructions", "analyzer", "verify", "torch"):
    sys.modules[name] = None
import jax, numpy as np
from jax import export
program = export.deserialize(bytearray(open("net.jax", "rb").read()))
tokens = np.load("tokens.npy")
with jax.enable_x64(tokens.dtype == np.float64):
    np.save("outputs.npy", np.asarray(program.call(jax.numpy.asarray(tokens))))
"""


@pytest.mark.deep
@pytest.mark.parametrize("name", ["product", "pair", "nested", "shift-chain-1"])
def test_the_program_agrees_without_us(name: str, tmp_path: Path) -> None:
    net = built(name)
    found = net.to_jax(tmp_path / "net.jax", length=40)
    assert found.as_dict()["shape"] == ["batch", 40, 1] and found.certified is False
    tokens = tokens_of(net, 7, seed=0)
    padded = np.pad(tokens, ((0, 0), (0, 40 - tokens.shape[1]), (0, 0)))  # causal: what follows does not matter
    np.save(tmp_path / "tokens.npy", padded.astype("float32" if net.dtype == "float32" else "float64"))
    subprocess.run([sys.executable, "-c", ALONE], check=True, cwd=tmp_path, capture_output=True)
    outputs = np.load(tmp_path / "outputs.npy")[:, : tokens.shape[1]]
    settled = net.target.settled  # type: ignore[union-attr]
    assert np.abs(outputs - net(tokens))[:, settled:].max() <= max(found.tolerance, 1e-12)


@pytest.mark.deep(keep="lin-dp-free-infinite")
@pytest.mark.parametrize(("rpe", "kind", "window"), KINDS, ids=["-".join(case) for case in KINDS])
def test_every_kind_of_layer(rpe: str, kind: str, window: str, tmp_path: Path) -> None:
    network, tokens = random_one(rpe, kind, window, "float32"), np.random.default_rng(3).uniform(-1, 1, (4, 20, 2))
    found = jax_programs.write(network, SLOTS, tmp_path / "net.jax", tokens=tokens)
    assert float(found["difference"]) <= float(found["tolerance"]) < 1e-3  # type: ignore[arg-type]
    assert found["dtype"] == "float32"


@pytest.mark.deep
def test_another_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that rounding cannot explain are not written."""
    network, tokens = random_one("lin", "dp", "finite"), np.random.default_rng(3).uniform(-1, 1, (4, 12, 2))
    real = jax_programs._floats
    monkeypatch.setattr(jax_programs, "_floats", lambda given: real(given).map(lambda w: w * (1 + 1e-9)))
    with pytest.raises(lf.Refusal, match="more than rounding can explain"):
        jax_programs.write(network, SLOTS, tmp_path / "net.jax", tokens=tokens)
    assert not (tmp_path / "net.jax").exists()
    assert evaluate(network, tokens).shape == (4, 12, 2)

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # For interpretability: a ground-truth network beside a trained one
#
# Tools that explain networks need networks whose mechanism is known. Here one is built from a proof, its error certified over all
# sequences, and every slot of its residual stream has a name. Then a network is trained on the same task: what did it learn?

# %%
import numpy as np
import torch
from IPython.display import SVG

import lemmaformer as lf

# %% [markdown]
# ## Ground truth: how far to look back is read off the token
#
# $y_t = x_t \cdot x_{t-g(x_t)}$ on the letters $\pm 1$ with $g(-1) = 1$ and $g(1) = 2$.

# %%
target = lf.adaptive([-1, 1], {"m1": [1, 2]}, readout="x0*m1")
net = lf.build(target, error=0.01)
net

# %%
assert net.theorem == "thm-4.1" and net.slots["m1"] == [1]
certificate = net.verify()
assert certificate.witness <= certificate.certified <= 0.01
certificate

# %% [markdown]
# The kernel with which its second layer reads the past, for either letter:

# %%
net.draw("letters.svg")
SVG("letters.svg")

# %% [markdown]
# ## Activations
#
# `trace` has the residual stream slot by slot after every attention, `patterns` the attention weights, and `draw` with tokens shows
# the stream as a table. The first layer writes the lag into its slot, the second one fetches the token:

# %%
tokens = [-1, 1, 1, -1, 1, -1, -1, 1]
held = net.trace(tokens)
held["layer 2"]["lag m1"], held["layer 2"]["m1"].round(3)

# %%
lag = {-1: 1, 1: 2}
for t in range(2, len(tokens)):
    assert abs(held["layer 2"]["m1"][t] - tokens[t - lag[tokens[t]]]) < 0.01
    assert abs(held["output"]["y"][t] - tokens[t] * tokens[t - lag[tokens[t]]]) <= certificate.certified
net.draw("stream.svg", tokens)
SVG("stream.svg")

# %% [markdown]
# ## In PyTorch
#
# `to_torch` is the same network as a module with TransformerLens' hook points, one more for every named slot. Its order of evaluation is
# another one, so the certificate does not cover it; `export` derives how far rounding can move it.

# %%
model = net.to_torch()
outputs, cache = model.run_with_cache(torch.tensor(tokens, dtype=torch.float64)[None, :, None])
assert abs(outputs[0, 2:].detach().numpy() - held["output"]["y"][2:]).max() < 1e-6
assert abs(cache["blocks.1.slots.hook_m1"][0, :, 0].detach().numpy() - held["layer 2"]["m1"]).max() < 1e-6
cache["blocks.1.attn.hook_pattern"].shape

# %% [markdown]
# A ground truth can be damaged on purpose, to see whether a tool notices. One output weight changed by a thousandth:

# %%
changed, change, after = net.broken("output", layer=2, head=1, by=1e-3)
assert after.verdict is lf.Verdict.VIOLATED
change

# %% [markdown]
# ## A trained network on a task of the same kind
#
# The token two steps back: constructed from Theorem 3.1 in float32, and trained with one head that has a learnt bias per distance.

# %%
last = lf.fixed(lags=(2,))
built = lf.build(last, error=0.05, dtype="float32")
learnt = lf.train(last, rpe="table", heads=1, linear=True, steps=800, length=16, batch=16, seed=1)
both = lf.compare(built, learnt, sequences=16)
both.draw("both.svg")
SVG("both.svg")

# %%
constructed, trained = both.networks
assert both.holds and constructed["certificate"]["certified"] <= 0.05
assert trained["sampled"]["rms"]["mean"] > 5 * constructed["sampled"]["rms"]["mean"]
trained["sampled"]["rms"]["mean"], trained["certificate"]["certified"]

# %% [markdown]
# Its mean error (sampled) looks as if it had learnt something, and its attention does peak two tokens back; the certificate says
# that in the worst case it has not: it is no better than a constant output.

# %%
pattern = learnt.patterns(np.eye(8)[0])["layer 1"][0, -1]
assert pattern.argmax() == len(pattern) - 1 - 2
assert learnt.certificate.verdict is lf.Verdict.VACUOUS
pattern.round(2)

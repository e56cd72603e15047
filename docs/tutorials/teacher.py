# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # For teachers: a lecture on lag 4
#
# Can one layer of attention that sees positions only fetch the token four steps back? It can, with four heads; three are not
# enough, whatever their weights; and floats make it harder than the theorem says. Each step is a picture.

# %%
from IPython.display import SVG

import lemmaformer as lf

target = lf.fixed(lags=(4,))
net = lf.build(target)
net

# %% [markdown]
# ## Four exponentials make a delta
#
# Head $h$ weighs the past with $e^{-p_h s}$. No single head singles out $s = 4$: each is largest at the nearest token. But a
# combination of four is zero at $s = 0, 1, 2, 3$ and one at $s = 4$.

# %%
net.draw("shares.svg")
SVG("shares.svg")

# %%
assert net.sizes["heads"] == 4
impulse = [1] + [0] * 7
answer = net(impulse)
assert abs(answer[4] - 1) <= net.certificate.certified and abs(answer[:4]).max() <= net.certificate.certified
answer.round(4)

# %% [markdown]
# ## What was promised, what is true
#
# The certificate says witness ≤ certified ≤ bound: an input that was run, an upper bound over *all* inputs from the stored weights,
# and the theorem's promise.

# %%
certificate = net.verify()
assert certificate.verdict is lf.Verdict.HOLDS
assert certificate.witness <= certificate.certified <= certificate.bound <= 0.01
certificate

# %% [markdown]
# ## Three heads are not enough
#
# The lag law: with fewer heads than the lag the error is at least that of answering zero. `lemmaformer theorems lag-law` has the
# proof.

# %%
law = lf.limits.lag(4, heads=3)
assert law.min_heads == 4 and law.as_dict()["least_error"] == 1.0
law

# %% [markdown]
# ## Break a weight
#
# The shares above are of the order of $10^{11}$ and cancel. Change one weight by a thousandth, and nothing is left:

# %%
changed, change, after = net.broken("output", head=2, by=1e-3)
assert after.verdict is lf.Verdict.VIOLATED and after.certified > 1e6
after

# %% [markdown]
# ## Floats
#
# So the weights must be stored well. float64 still holds lag 4, float32 does not, and the refusal says why and what would work:

# %%
assert lf.build(target, dtype="float64").certificate.certified <= 0.01
try:
    lf.build(target, dtype="float32")
    raise AssertionError("float32 cannot hold lag 4 at error 0.01 in one layer")
except lf.Refusal as refusal:
    assert {"depth": "auto"} in refusal.remedies
    print(refusal.reason)

# %%
limit = lf.limits.horizon("lin", bits=[8, 11], curves=True)
assert limit.horizon == {"8": 1, "11": 2}
limit.draw("horizon.svg")
SVG("horizon.svg")

# %% [markdown]
# ## Depth is the cure
#
# A chain of shifts goes four back in several steps, and float32 is enough:

# %%
deep = lf.build(target, dtype="float32", depth="auto")
assert deep.certificate.certified <= 0.01 and deep.sizes["layers"] > 1
deep

# %% [markdown]
# ## To take home
#
# * How many heads does lag 8 need, of one type and of both? `lf.limits.lag(8, rpe="mixed")`
# * Which lags do published schemes of positions resolve? `lf.limits.positions("all", longest=16)`
# * What does a network learn that is trained on lag 4? `lf.train(lf.fixed(lags=(4,)), heads=4)`

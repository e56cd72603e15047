# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # For theorists: what does a constant cost, and does my bound hold?
#
# Theorem 3.1 of Wang & E (2024) says that one layer of $H$ attention heads can recall the token $T$ steps back with an error of
# $C(n)/H^n$, for every rate $n$. What is $C(n)$, what do the free parameters of its proof cost, and what would be the best
# possible?

# %%
from IPython.display import SVG

import lemmaformer as lf

target = lf.fixed(lags=(4,))
lf.theorems["thm-3.1"].title

# %% [markdown]
# ## The bound, with every constant explicit

# %%
bound = lf.bound("thm-3.1", target, heads=256, bank="tuned", figure="rate.svg")
bound

# %%
assert 0.2 < bound.total < 0.22 and bound.heads == 256
SVG("rate.svg")

# %% [markdown]
# The formula itself is `bound.expression` for sympy and `bound.latex` for papers. Solved for the heads that an error of 0.01 needs,
# under the constants as they are printed, at their optimum, with the minimal bank that is built and certified here, and beside the
# lag law, which no layer of this kind can beat:

# %%
choices = lf.bounds("thm-3.1", target, error=1e-2)
choices

# %%
assert [row["heads"] for row in choices.rows] == [6653, 527, 4, 4]
choices.draw("choices.svg")
SVG("choices.svg")

# %% [markdown]
# So the print's choice of constants costs 6653 heads where 4 are enough, and 4 are needed.
#
# ## A claim of your own
#
# Suppose you conjecture that tuned banks have an error $e \le 3T^2/H$. `check` holds that against certified enclosures of $e$, from
# the weights of a network that is built at every point of a grid:

# %%
claim = lf.check("e <= 3*T**2/H", {"T": range(1, 7), "H": (8, 16)}, bank="tuned")
claim.draw("claim.svg")
claim

# %%
assert claim.verdict == "holds" and claim.counts["holds"] == 12
SVG("claim.svg")

# %% [markdown]
# A bolder claim is refuted, and the refutation is a network with tokens that show it:

# %%
bold = lf.check("e <= T/H", ["T=1:2", "H=8"], bank="tuned", out="refuting")
bold.verdict, bold.counterexample["why"]

# %%
assert bold.verdict == "refuted" and bold.counterexample["sizes"] == {"T": 2, "H": 8}
certificate = lf.verify("refuting")
assert certificate.witness > 2 / 8
certificate

# %% [markdown]
# Inequalities between formulas are decided for *all* real sizes of a box, in ball arithmetic:

# %%
box = lf.check("T**2 <= 9*T", box=["T=1:10"])
assert box.verdict == "refuted" and box.rows[0]["point"] == {"T": "10"}
box

# %% [markdown]
# ## What floats add
#
# Four heads are enough in exact arithmetic. The weights that single out a token are large, and storing them has a price: over all
# decays and any number of heads, the least error plus the price of rounding to float32 is

# %%
limit = lf.limits.lag(4, dtype="float32")
assert limit.min_heads == 4 and 0.10 < limit.lower <= limit.upper < 0.11
limit

"""What bundles cite beyond the papers: this software, and its own laws."""

SOFTWARE = """@software{lemmaformer,
  title   = {lemmaformer: theorems about Transformers as running, certified code},
  author  = {{The lemmaformer authors}},
  version = {0.1.0},
  year    = {2026},
  note    = {Apache-2.0}
}
"""


def _law(key: str, title: str, page: str) -> str:
    return f"""@misc{{{key},
  title  = {{{title}}},
  author = {{{{The lemmaformer authors}}}},
  year   = {{2026}},
  note   = {{Stated and proved in lemmaformer, `lemmaformer theorems {page}`}}
}}
"""


LAWS = {
    "minimal": _law("lemmaformer_lag_law", "The lag law: T heads see T tokens back, and no fewer do", "lag-law"),
    "balanced": _law("lemmaformer_budgeted_error", "The budgeted error: what a lag costs in an arithmetic", "budgeted-error"),
    "centred": _law("lemmaformer_coupling_rank", "The rank of a coupling modulo functions of the query", "coupling-rank"),
    "least-squares": _law("lemmaformer_least_squares", "Best weights in mean square for given decays", "least-squares"),
    "shift-chain": _law("lemmaformer_shift_chain", "Chains of shifts: L H >= T, and any lag in floats", "shift-chain"),
}
"""By bank or theorem: which of our own laws a network rests on."""


def own_citations(theorem: str | None, bank: str | None) -> str:
    """The software, and the laws behind a network of this theorem and bank."""
    return "\n".join([SOFTWARE, *(LAWS[name] for name in dict.fromkeys((bank, theorem)) if name in LAWS)])

"""How deep the tests go: `make test` takes minutes, `make test-all` has everything (LEMMAFORMER_TESTS=all)."""

import os

FULL = os.environ.get("LEMMAFORMER_TESTS") == "all"


def examples(count: int, quick: int | None = None) -> int:
    """Random cases of a property: `count` at full depth, `quick` or an eighth of them otherwise."""
    return count if FULL else quick or max(5, count // 8)

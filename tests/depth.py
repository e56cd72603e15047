"""How deep the tests go: `make test` takes minutes, `make test-all` has everything (LEMMAFORMER_TESTS=all)."""

import os

FULL = os.environ.get("LEMMAFORMER_TESTS") == "all"


def examples(count: int) -> int:
    """Random cases of a property: `count` at full depth, an eighth of them otherwise."""
    return count if FULL else max(5, count // 8)

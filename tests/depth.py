"""How deep the tests go: `make test` takes minutes, `make test-all` has everything (LEMMAFORMER_TESTS=all), `make test-rest` what the first
leaves to the second (LEMMAFORMER_TESTS=rest): deep tests, those that need extras, properties, and modules whose tests go deeper then."""

import os

ASKED = os.environ.get("LEMMAFORMER_TESTS")
FULL = ASKED in ("all", "rest")


def examples(count: int, quick: int | None = None) -> int:
    """Random cases of a property: `count` at full depth, `quick` or an eighth of them otherwise."""
    return count if FULL else quick or max(5, count // 8)

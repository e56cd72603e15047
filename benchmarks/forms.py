"""The three forms of the recurrence of lin heads, in one run on the device that JAX takes.

    python -m benchmarks.forms [--longest 65536] [--repeats 7] [--keep]

One layer of 16 lin heads and 32 neurons, as in `benchmarks.forward`, compiled whole. A device waits for steps that follow each other,
computes, and moves numbers; the columns say how much of each a form asks for: steps are turns of a loop, or windows, one after the other
(counted in the program), operations and bytes per token are what XLA counts of the compiled program. Nanoseconds per token are measured,
medians of several turns, the forms in turn. A device that is not a processor takes microseconds for a step, whatever it computes there, and
a processor nanoseconds: N steps of a scan are nothing to one, and all that counts to the other. The last column is the rounding that the
certificate counts, in units of u times a state, for a head that forgets a 512th from token to token.
"""

import argparse
import statistics
import time
from typing import Any

import jax
import numpy as np
from flint import arb

from analyzer.numbers.exact import UNIT, rational, upper, working_precision
from benchmarks.forward import network
from benchmarks.ratios import guard
from constructions.network.recurrences import BLOCK, FORMS, levels
from constructions.run import fast
from verify.chain.rounding import Arithmetic, Rounded

LENGTHS = (1024, 8192, 65536)
SLOW = 1 - 2.0**-9


def rounding(form: Any) -> float:
    """E(1−z)/u of the states of a slow head."""
    with working_precision(160):
        output = Arithmetic("float32").scan(rational(SLOW), rational(1.0), Rounded(arb(1), arb(0)), form=form)
        return upper(output.error * (1 - arb(rational(SLOW))) / arb(UNIT["float32"]))


def steps(form: str, length: int, slowest: float) -> int:
    """How many states, or windows, follow each other."""
    if form == "scan":
        return length
    base, count = (BLOCK, -(-length // BLOCK)) if form == "blocked" else (1, length)
    return (form == "blocked") + min(levels(slowest, "float32", base), (count - 1).bit_length())


def counted(compiled: Any, length: int) -> tuple[float, float]:
    """(operations, bytes) per token, as XLA counts them; a loop's body counts once, so scans are left out."""
    found = compiled.cost_analysis()
    found = found[0] if isinstance(found, list) else found
    return found.get("flops", float("nan")) / length, found.get("bytes accessed", float("nan")) / length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    asked, ratios = parser.parse_args(), {}
    net = network()
    print(f"{jax.devices()[0].device_kind:4}   tokens form          ns/token   steps  operations   bytes  E(1-z)/u")
    for length in (n for n in LENGTHS if n <= asked.longest):
        tokens = np.random.default_rng(0).uniform(-1, 1, (length, 1)).astype(np.float32)
        compiled, constants = {}, {}
        for form in FORMS:
            constants[form] = fast.network_constants(net, length, form)
            compiled[form] = fast.program.lower(net, constants[form], tokens).compile()
        times: dict[str, list[float]] = {form: [] for form in FORMS}
        for _ in range(asked.repeats + 1):
            for form in FORMS:
                start = time.perf_counter()
                jax.block_until_ready(compiled[form](net, constants[form], tokens))
                times[form].append(time.perf_counter() - start)
        slowest = float(max(constants["scan"][0]["ratio"]))
        for form in FORMS:
            median = statistics.median(times[form][1:])
            operations, moved = counted(compiled[form], length)
            known = f"{operations:11.0f} {moved:7.0f}" if form != "scan" else f"{'-':>11} {'-':>7}"
            print(
                f"{length:13} {form:12} {1e9 * median / length:9.1f} {steps(form, length, slowest):7} {known} {rounding(form):9.1f}",
                flush=True,
            )
            ratios[f"{length} tokens, {form}"] = statistics.median(times["scan"][1:]) / median
    guard("forms", {row: ratio for row, ratio in ratios.items() if "scan" not in row}, asked.keep)


if __name__ == "__main__":
    main()

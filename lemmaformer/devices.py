"""Is the arithmetic of this device what float certificates assume? `lf.doctor`."""

import time

from lemmaformer.progress import stepping
from lemmaformer.results.devices import Diagnosis


def doctor() -> Diagnosis:
    """Hold the hypotheses of float certificates against the device that JAX uses here, on directed operands, in exact arithmetic.

    >>> import lemmaformer as lf
    >>> found = lf.doctor()
    >>> found.holds, [row["dtype"] for row in found.dtypes]
    (True, ['float32', 'float64'])
    """
    from analyzer.numbers.exact import UNIT
    from constructions.network.precision import missing
    from verify.chain.device import diagnosis
    from verify.chain.operations import JaxOperations, device

    start = time.perf_counter()
    with stepping("computing exactly what the device computes") as step:
        given: dict[str, JaxOperations | str] = {}
        for dtype in UNIT:
            step(dtype)
            given[dtype] = missing(dtype, JaxOperations(dtype).add) or JaxOperations(dtype)
        found = diagnosis(given)
    return Diagnosis({"device": device(), **found, "seconds": time.perf_counter() - start})

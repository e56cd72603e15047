"""One set of range checks: what is outside is refused with its name, its value and what to give instead."""

from analyzer.errors import InputError


def check_range(
    name: str,
    value: float,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse a number unless least ≤ value ≤ most and above < value < below, as far as these are given; NaN is refused by each of them."""
    inside = (least is None or value >= least) and (most is None or value <= most)
    if inside and (above is None or value > above) and (below is None or value < below):
        return
    ends = [f"at least {least:g}" if least is not None else "", f"more than {above:g}" if above is not None else ""]
    ends += [f"at most {most:.12g}" if most is not None else "", f"less than {below:g}" if below is not None else ""]
    span = f"{least:g} to {most:.12g}" if least is not None and most is not None else " and ".join(end for end in ends if end)
    raise InputError(f"{name} {str(value)[:40]} is out of range; give {span}")

"""The chain witness ≤ certified ≤ bound as numbers and as bars on a logarithmic scale."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from analyzer.numbers.exact import decimal_above, decimal_below
from verify.chain.certificate import Certificate, Verdict

WIDTH, LEFT, RIGHT, STEP = 500, 92, 90, 28


def chain(certificate: Certificate) -> str:
    """The three numbers, their verdict, and bars."""
    rows = [("witness", certificate.witness, _below(certificate.witness))]
    if certificate.verdict is not Verdict.MEASURED:
        rows.append(("certified", certificate.certified, _above(certificate.certified)))
        if "arithmetic" not in certificate.details:  # no theorem speaks of other weights
            rows.append(("bound", certificate.bound, _above(certificate.bound)))
    rows.append(("constant", certificate.trivial, _below(certificate.trivial)))
    order = all(a[1] <= b[1] for a, b in pairwise(rows[:-1]))
    line = f" {'≤' if order else 'beside'} ".join(f"{name} {text}" for name, _, text in rows[:-1])
    unit = "mean square of the error" if certificate.norm == "mean-square" else "worst-case error over all token sequences"
    about = f"{unit}; constant is the error of the best constant output, from below."
    verdict = certificate.verdict.value
    said = f'<p><span class="verdict {verdict}">{verdict}</span> {escape(certificate.advice)}</p>'
    return f"<p><strong>{escape(line)}</strong></p>\n{said}\n{bars(rows, about)}"


def _above(value: float) -> str:
    return decimal_above(value, 6) if math.isfinite(value) else "∞"


def _below(value: float) -> str:
    return decimal_below(value, 6) if math.isfinite(value) else "∞"


def bars(rows: Sequence[tuple[str, float, str]], unit: str) -> str:
    """One bar per number, from a tenth of the least one that is not 0; all share a logarithmic scale."""
    shown = [value for _, value, _ in rows if 0 < value < math.inf]
    if not shown:
        return ""
    low = math.floor(math.log10(min(shown)) - 0.2)
    high = max(math.ceil(math.log10(max(shown)) + 0.05), low + 1)
    height = STEP * len(rows) + 34

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (min(max(math.log10(value), low), high) - low) / (high - low)

    label = "; ".join(f"{name} {text}" for name, _, text in rows)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">']
    stride = max(1, math.ceil((high - low) / 6))
    for power in range(low, high + 1, stride):
        at = x(10.0**power)
        parts.append(f'<line class="tick" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{height - 26}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 10}" text-anchor="middle">10<tspan dy="-4" font-size="8">{power}</tspan></text>')
    for k, (name, value, text) in enumerate(rows):
        top = 6 + STEP * k
        end = LEFT if value <= 0 else x(value) if math.isfinite(value) else WIDTH - RIGHT
        kind = "bar constant" if name == "constant" else "bar"
        parts.append(f'<text x="{LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top}" width="{max(end - LEFT, 1.5):.1f}" height="20" class="{kind}"/>')
        parts.append(f'<text x="{end + 6:.1f}" y="{top + 15}">{escape(text)}</text>')
    return "<figure>" + "".join(parts) + f"</svg><figcaption>Logarithmic scale: {escape(unit)}</figcaption></figure>"

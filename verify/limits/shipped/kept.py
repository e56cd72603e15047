"""Certificates that searches found, kept on disk between runs as hints like the shipped ones.

One file per question (type of heads, unit roundoff, bits of the decays, lag), named by the hash of the question: an entry as in
certificate files. `verify.limits.pairs` recomputes both sides in balls whenever it is used and searches anew where a file shows too little,
so a damaged one costs time and nothing else. They lie in the folder that LEMMAFORMER_CACHE names, otherwise in lemmaformer/limits of the
user's cache folder; with LEMMAFORMER_CACHE=off nothing is read or kept.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from flint import fmpq

from analyzer.errors import LemmaformerError
from analyzer.limits.budgeted_error import RpeSet
from analyzer.numbers.exact import to_text
from constructions.files.places import write_file
from verify.limits.shipped.table import DAMAGE, LagHint, read_hint

FORM = 1
"""Part of every question: files of another form have other names."""
MOST = 4096
"""Files that are kept: some hundred megabytes at most."""
LARGEST = 1 << 22
"""Bytes of a file that is read."""
OFF = "off"


def folder() -> Path | None:
    """Where certificates are kept; None if they are not."""
    named = os.environ.get("LEMMAFORMER_CACHE")
    if named == OFF:
        return None
    if named:
        return Path(named)
    own = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(own) if own else Path.home() / ".cache") / "lemmaformer" / "limits"
    except RuntimeError:  # no home
        return None


def place(rpe: RpeSet, unit: fmpq, decay_bits: int, lag: int) -> Path | None:
    """The file of a question."""
    kept = folder()
    question = json.dumps([FORM, rpe, to_text(unit), decay_bits, lag])
    return None if kept is None else kept / f"{hashlib.sha256(question.encode()).hexdigest()[:32]}.json"


def kept_hint(rpe: RpeSet, unit: fmpq, decay_bits: int, lag: int) -> LagHint | None:
    """What was kept for a question; None if nothing was, or if it cannot be read."""
    file = place(rpe, unit, decay_bits, lag)
    try:
        if file is None or not file.is_file() or file.stat().st_size > LARGEST:
            return None
        return read_hint(json.loads(file.read_text(encoding="utf-8")), rpe)
    except DAMAGE:
        return None


def keep(rpe: RpeSet, unit: fmpq, decay_bits: int, lag: int, entry: dict[str, Any]) -> None:
    """Keep the entry of a question, whole or not at all; a folder that cannot be written to is no fault."""
    file = place(rpe, unit, decay_bits, lag)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() and sum(1 for _ in file.parent.glob("*.json")) >= MOST:
            return
        write_file(file, json.dumps(entry, separators=(",", ":")).encode(), True)
    except (OSError, LemmaformerError):
        return

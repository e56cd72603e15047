"""One job and its row: what may be called, and how a call becomes plain data.

A job names a function of the library and gives it keywords that JSON can say. Its key is a hash of both and of the version, so a row that
is kept under the key is the row of this very job. A job that fails is a row too:

    done      the function returned; the other columns are what it returned
    refused   the input is malformed, or no network can do what is asked: `reason` says why
    failed    anything else went wrong: `reason` is the exception on one line
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import count
from typing import Any

from analyzer.errors import LemmaformerError

Row = dict[str, Any]

CALLS: Mapping[str, str] = {
    "bound": "lemmaformer.api:bound",
    "build": "lemmaformer.api:build",
    "verify": "lemmaformer.api:verify",
    "train": "lemmaformer.api:train",
    "limits.lag": "lemmaformer.limits:lag",
    "limits.horizon": "lemmaformer.limits:horizon",
    "limits.kernel": "lemmaformer.limits:kernel",
    "limits.architectures": "lemmaformer.limits:architectures",
    "limits.coupling": "lemmaformer.limits:coupling",
    "limits.rnn": "lemmaformer.limits:rnn",
    "limits.slopes": "lemmaformer.limits:slopes",
    "limits.positions": "lemmaformer.limits:positions",
    "limits.dp_free": "lemmaformer.limits:dp_free",
    "check.point": "lemmaformer.checking:point",
    "check.box": "lemmaformer.checking:box_point",
}
"""What a job may call: a function of keywords, which returns a mapping, something that knows its own (`as_dict`), or a network."""
INNER = ("check.point", "check.box")
"""What only the program itself calls: it gets its parameters as they are, while a `target` of the others is read from plain data."""
OWN = ("key", "status", "reason", "seconds")
"""The columns of every row; a result's columns of these names are left out."""
LONGEST_REASON = 500
REMEMBERED = 50
"""Jobs after which compiled programs are let go."""
_BEGUN = count(1)


@dataclass(frozen=True)
class Job:
    """One call: the name of a function in `CALLS` and its keywords as plain data.

    >>> from lemmaformer.sweeps.engine import Job
    >>> Job("limits.lag", {"lag": 4}).key == Job("limits.lag", {"lag": 4}).key != Job("limits.lag", {"lag": 5}).key
    True
    """

    call: str
    parameters: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """SHA-256 of call, parameters and version."""
        said = json.dumps([self.call, self.parameters, own_version()], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(said.encode()).hexdigest()


@cache
def own_version() -> str:
    """The version of the library, a part of every key."""
    from importlib.metadata import version  # here, as it loads a reader of e-mail

    return version("lemmaformer")


def run_job(job: Job) -> Row:
    """The row of one job; only an interruption gets out of here as an exception."""
    start = time.perf_counter()
    status, reason, columns = "done", None, {}
    try:
        _forget()
        columns = _result(job)
    except LemmaformerError as error:
        status, reason = "refused", one_line(str(error))
    except Exception as error:
        status, reason = "failed", one_line(f"{type(error).__name__}: {error}")
    row = {"key": job.key, "status": status, "reason": reason, "seconds": time.perf_counter() - start}
    return row | {name: value for name, value in columns.items() if name not in OWN}


def _forget() -> None:
    """A row must not depend on jobs that ran before it in the same process: searches that learn from each other start anew.

    Nor may jobs fill the memory: a network leaves a megabyte of compiled programs, which from time to time are let go.
    """
    pairs, jax = sys.modules.get("verify.limits.pairs"), sys.modules.get("jax")
    if pairs is not None:
        pairs.forget()
    if next(_BEGUN) % REMEMBERED == 0 and jax is not None:
        jax.clear_caches()


def failed(job: Job, reason: str) -> Row:
    """The row of a job that never came back."""
    return {"key": job.key, "status": "failed", "reason": reason, "seconds": 0.0}


def one_line(text: str) -> str:
    """A reason as a cell of a table."""
    return " ".join(text.split())[:LONGEST_REASON]


def called(name: str) -> Callable[..., Any]:
    """The function that a job calls."""
    module, _, function = CALLS[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _result(job: Job) -> Row:
    keywords = dict(job.parameters)
    if job.call not in INNER and isinstance(keywords.get("target"), Mapping):
        from analyzer.targets.files import target_from_dict

        keywords["target"] = target_from_dict(dict(keywords["target"]), "target")
    found = called(job.call)(**keywords)
    if not isinstance(found, Mapping):
        found = _of_network(found) if hasattr(found, "certificate") else found.as_dict()
    plain: Row = json.loads(json.dumps(found, default=_number))
    return plain


def _of_network(net: Any) -> Row:
    """A network: its certificate and, if it was trained, how that went."""
    run = net.card.get("training")
    summary = {} if run is None else {"training": {name: value for name, value in run.items() if name not in ("recipe", "seconds")}}
    return {"theorem": net.theorem, "origin": net.origin, **net.certificate.as_dict(), **summary}


def _number(value: Any) -> Any:
    """Numbers of numpy as Python's; anything else is no plain data."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a result of type {type(value).__name__} is no plain data")

"""A job that kills whoever runs it, for workers that load this file when they start."""

import os
import signal
from typing import Any

from lemmaformer.sweeps.jobs import CALLS


def die(**keywords: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CALLS["limits.dp_free"] = f"{__name__}:die"  # type: ignore[index]

"""Jobs on workers of Dask: processes of this machine, or a cluster that exists. Dask is loaded here and nowhere else.

A worker that dies in flight loses nothing: the scheduler gives its jobs to others, and a row is recorded here, by the process that asked.
A job may bring down every worker that it is given to. The scheduler then gives up, on it and perhaps on jobs that stood in the same queues,
so whatever it has given up is run again alone; a job that fails even so has failed.
"""

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError
from lemmaformer.sweeps.jobs import Job, Row, failed, one_line, own_version, run_job

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

ADDRESS = re.compile(r"(?:tcp|tls)://([^\s/:\[\]]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")
PATIENCE = 10.0
"""Seconds that a scheduler has to answer."""
REVIVAL = 20.0
"""Seconds that workers which died have to come back before the cluster is closed."""
WINDOW = 1000
"""Jobs that the scheduler knows of at a time."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NPROC": "1",
}
"""Workers share the cores: in each of them linear algebra and XLA (NPROC) have one thread."""


def check_dask(scheduler: str | None) -> None:
    """Refuse an address that is none or where nobody listens, and workers where Dask is not installed."""
    place = None if scheduler is None else ADDRESS.fullmatch(scheduler)
    if scheduler is not None and place is None:
        raise InputError(f"scheduler is {scheduler[:60]!r}; give the address of a Dask scheduler such as tcp://127.0.0.1:8786")
    if find_spec("distributed") is None:
        raise InputError("workers need Dask, which is not installed: pip install 'lemmaformer[cluster]'; one process needs nothing")
    if place is not None:
        try:
            socket.create_connection((place[1].strip("[]"), int(place[2])), timeout=PATIENCE).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise _silent(place[0], error) from None


def _silent(scheduler: str, error: Exception) -> InputError:
    return InputError(f"no Dask scheduler answers at {scheduler[:60]}: {' '.join(str(error).split())[:120]}")


def run_on_dask(jobs: Sequence[Job], workers: int, scheduler: str | None) -> Iterator[Row]:
    """The rows of jobs as they come."""
    with _client(workers, scheduler) as client:
        given_up: list[Job] = []
        for job, future in _finished(client, jobs, WINDOW):
            row = _row(job, future)
            if row is None:
                given_up.append(job)
            else:
                yield row
        for job, future in _finished(client, given_up, 1):
            yield _row(job, future) or failed(job, "its workers died, also when it ran alone: out of memory, or killed")


def _row(job: Job, future: "Future") -> Row | None:
    """The row of a job that has finished, or None if all workers died that it was given to."""
    from distributed.scheduler import KilledWorker

    try:
        row: Row = future.result()
        return row
    except KilledWorker:
        return None
    except CancelledError:  # by no one here
        raise InputError("the Dask scheduler went away; rows that were done are kept, and the same call goes on from there") from None
    except Exception as error:  # the worker could not even begin
        return failed(job, one_line(f"{type(error).__name__}: {error}"))


def _finished(client: "Client", jobs: Sequence[Job], window: int) -> "Iterator[tuple[Job, Future]]":
    """Every job with its future when that has finished; no more than `window` are with the scheduler."""
    from distributed import as_completed

    waiting = iter(jobs)
    known: dict[str, Job] = {}

    def submitted(job: Job) -> "Future":
        future = client.submit(run_job, job, pure=False)
        known[future.key] = job
        return future

    futures = as_completed([submitted(job) for job in islice(waiting, window)], loop=client.loop)
    for future in futures:
        yield known.pop(future.key), future
        for job in islice(waiting, 1):
            futures.add(submitted(job))


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """What goes wrong is said in one line, by us."""
    loggers = [logging.getLogger(known) for known in list(logging.root.manager.loggerDict) if known.split(".")[0] == name]
    loggers = [logger for logger in loggers if not logger.disabled]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def local_cluster(workers: int) -> "LocalCluster":
    """Processes of this machine, of one thread each. Dask's web server takes a free port: several clusters may run beside each other."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        silence_logs=logging.CRITICAL,
    )


@contextmanager
def _closing(cluster: "LocalCluster") -> "Iterator[LocalCluster]":
    """Dask cannot close a cluster at the moment in which it starts a worker again that died. Its processes end with this one."""
    try:
        yield cluster
    finally:
        with suppress(AssertionError):
            cluster.close()


@contextmanager
def _client(workers: int, scheduler: str | None) -> "Iterator[Client]":
    import dask
    from distributed import Client

    if scheduler is not None:
        with _silenced("distributed"):
            try:
                client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
            except (OSError, ValueError) as error:
                raise _silent(scheduler, error) from None
            with client:
                _check_workers(client)
                yield client
        return
    settings: dict[str, Any] = {"distributed.nanny.pre-spawn-environ": ONE_THREAD, "distributed.worker.profile.enabled": False}
    with (
        _silenced("distributed"),
        dask.config.set(settings),
        _closing(local_cluster(workers)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
        with suppress(TimeoutError):
            client.wait_for_workers(workers, timeout=REVIVAL)


def _check_workers(client: "Client") -> None:
    """Refuse a cluster without workers, or whose workers have another version of the library."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        versions = client.run(own_version)
    except TimeoutError:
        raise InputError(f"the cluster has no workers; start some, and ask again ({PATIENCE:g} s)") from None
    except ImportError as error:
        raise InputError(f"the workers of the cluster cannot load lemmaformer: {' '.join(str(error).split())[:120]}") from None
    strange = [f"{worker} has {found}" for worker, found in versions.items() if found != own_version()]
    if strange:
        raise InputError(f"the workers have another version of lemmaformer than {own_version()}: {strange[0]}")

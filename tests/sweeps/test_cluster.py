"""Jobs on workers of Dask: rows as in one process, whoever is killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import lemmaformer as lf
from lemmaformer.sweeps.cluster import local_cluster
from lemmaformer.sweeps.engine import Job, run_jobs

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of processes that were killed
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).parent.parent.parent
JOBS = [Job("limits.lag", {"lag": lag, "bits": bits}) for bits in range(3, 7) for lag in (1, 2, 3)] + [Job("limits.lag", {"lag": 0})]


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "seconds": None} for row in rows]


class Murderous(dict[str, dict[str, Any]]):
    """A store that kills one worker when the first row comes."""

    killed: int | None = None

    def put(self, row: dict[str, Any]) -> None:
        assert row["key"] not in self, "a row came twice"
        self[row["key"]] = row
        if self.killed is None:
            import psutil

            workers = [child for child in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
            assert len(workers) == 2
            self.killed = workers[0].pid
            os.kill(self.killed, signal.SIGKILL)


def test_a_worker_that_is_killed_in_flight_loses_nothing() -> None:
    store = Murderous()
    found = run_jobs(JOBS, store=store, workers=2)
    assert store.killed is not None and set(store) == {job.key for job in JOBS}
    assert timeless(found) == timeless(run_jobs(JOBS))


def test_a_job_that_kills_its_workers_fails_alone() -> None:
    with dask.config.set({"distributed.worker.preload": ["tests.sweeps.lethal"]}):
        found = run_jobs([Job("limits.dp_free", {}), *JOBS[-4:]], workers=2)
    assert [row["status"] for row in found] == ["failed", "done", "done", "done", "refused"]
    assert "its workers died" in found[0]["reason"]
    assert timeless(found[1:]) == timeless(run_jobs(JOBS[-4:]))


def test_a_cluster_that_exists_does_the_same(tmp_path: Path) -> None:
    spec = {"call": "limits.lag", "grid": {"bits": [3, 4], "lag": "0:2"}}
    with local_cluster(1) as cluster:
        lf.sweep(spec, out=tmp_path / "there.csv", scheduler=cluster.scheduler_address)
    lf.sweep(spec, out=tmp_path / "here.csv")
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_clusters_run_beside_each_other() -> None:
    """Also where another program has the port that Dask's web server would take: warnings are errors here."""
    with local_cluster(1) as one, local_cluster(1) as other:
        rows = [run_jobs(JOBS[-3:], scheduler=cluster.scheduler_address) for cluster in (one, other)]
    assert timeless(rows[0]) == timeless(rows[1]) == timeless(run_jobs(JOBS[-3:]))


def test_a_cluster_without_workers_or_with_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemmaformer.sweeps.cluster.PATIENCE", 1)
    with local_cluster(0) as cluster:
        with pytest.raises(lf.InputError, match="the cluster has no workers"):
            run_jobs(JOBS, scheduler=cluster.scheduler_address)
        address = cluster.scheduler_address
    with pytest.raises(lf.InputError, match="no Dask scheduler answers at"):
        run_jobs(JOBS, scheduler=address)
    with local_cluster(1) as cluster:
        cluster.wait_for_workers(1)
        monkeypatch.setattr("lemmaformer.sweeps.cluster.PATIENCE", 20)
        monkeypatch.setattr("distributed.Client.run", lambda self, function: {"tcp://one": "0.0.9"})
        with pytest.raises(lf.InputError, match=r"another version of lemmaformer than .*: tcp://one has 0\.0\.9"):
            run_jobs(JOBS, scheduler=cluster.scheduler_address)

"""Jobs and their rows, the journal that they are kept in, and the table that is made of them."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import lemmaformer as lf
from lemmaformer.sweeps import jobs as running
from lemmaformer.sweeps.design import design_of
from lemmaformer.sweeps.engine import CALLS, Job, run_jobs
from lemmaformer.sweeps.journal import Journal, journal_of
from lemmaformer.sweeps.tables import encoded, table
from verify.limits import pairs
from verify.report.progress import PROGRESS, counting_line

FIXED = {"kind": "fixed", "lags": [2]}
SPEC: dict[str, Any] = {"call": "limits.lag", "grid": {"lag": "1:6", "rpe": ["lin", "mixed"]}}


class Kept(dict[str, dict[str, Any]]):
    """A store in memory."""

    def put(self, row: dict[str, Any]) -> None:
        assert row["key"] not in self
        self[row["key"]] = row


def test_a_key_is_a_hash_of_call_parameters_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        Job("bound", {"theorem": "thm-3.1", "heads": 8}).key,
        Job("build", {"theorem": "thm-3.1", "heads": 8}).key,
        Job("bound", {"heads": 8}).key,
    }
    assert Job("bound", {"heads": 8, "theorem": "thm-3.1"}).key in keys and len(keys) == 3
    monkeypatch.setattr(running, "own_version", lambda: "another")
    assert Job("bound", {"heads": 8, "theorem": "thm-3.1"}).key not in keys


def test_rows_come_in_the_order_of_the_jobs_and_say_how_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**keywords: Any) -> dict[str, Any]:
        raise ZeroDivisionError("a line\nand another one")

    monkeypatch.setattr("lemmaformer.limits.dp_free", broken)
    calls = [
        Job("limits.lag", {"lag": 3}),
        Job("limits.lag", {"lag": 0}),
        Job("limits.dp_free", {}),
        Job("build", {"target": FIXED, "heads": 1}),
    ]
    rows = run_jobs([*calls, calls[0]])
    assert [row["key"] for row in rows] == [job.key for job in [*calls, calls[0]]]
    assert [row["status"] for row in rows] == ["done", "refused", "failed", "refused", "done"]
    assert rows[0]["min_heads"] == 3 and rows[0]["reason"] is None and rows[0]["seconds"] >= 0
    assert rows[1]["reason"] == "lag 0 is out of range; give 1 to 256"
    assert rows[2]["reason"] == "ZeroDivisionError: a line and another one"
    assert "1 heads cannot extract lag 2" in rows[3]["reason"]


def test_rows_are_what_the_library_says() -> None:
    net = lf.build(lf.fixed(lags=(2,)), error=0.1)
    bound = lf.bound("thm-3.1", lf.fixed(lags=(2,)), heads=64)
    built, bounded, slopes = run_jobs(
        [
            Job("build", {"target": FIXED, "error": 0.1}),
            Job("bound", {"theorem": "thm-3.1", "target": FIXED, "heads": 64}),
            Job("limits.slopes", {"slopes": "4,3", "longest": 2}),
        ]
    )
    assert (built["certified"], built["witness"], built["bound"]) == (
        net.certificate.certified,
        net.certificate.witness,
        net.certificate.bound,
    )
    assert (built["verdict"], built["sizes"], built["theorem"]) == ("holds", net.sizes, "thm-3.1")
    assert bounded["attention"] == bound.total and slopes["resolved"] == [1, 2]


def test_a_call_of_the_program_itself_gets_its_parameters_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLS, "check.point", f"{__name__}:echoed")  # type: ignore[arg-type]
    (row,) = run_jobs([Job("check.point", {"target": FIXED, "T": 3})])
    assert row["got"] == {"target": FIXED, "T": 3} and row["status"] == "done"


def echoed(**keywords: Any) -> dict[str, Any]:
    return {"got": keywords, "key": "not this one"}


def test_an_interruption_stops_the_sweep_and_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(lag: int) -> dict[str, Any]:
        if lag == 2:
            raise KeyboardInterrupt
        return {"lag": lag}

    monkeypatch.setattr("lemmaformer.limits.lag", interrupted)
    store, calls = Kept(), [Job("limits.lag", {"lag": lag}) for lag in (1, 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(calls, store=store)
    assert list(store) == [calls[0].key]
    monkeypatch.setattr("lemmaformer.limits.lag", lambda lag: {"lag": -lag})
    assert [row["lag"] for row in run_jobs(calls, store=store)] == [1, -2, -3]


@pytest.mark.deep
def test_a_row_does_not_depend_on_the_jobs_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for one lag goes on from what it found for others; a job begins with nothing."""
    forgotten: list[int] = []
    forget = pairs.forget
    monkeypatch.setattr(pairs, "forget", lambda: (forgotten.append(1), forget()))
    one, two = (Job("limits.lag", {"lag": lag, "bits": 4}) for lag in (1, 2))
    alone = run_jobs([two])[0]
    pairs.lag_limit("lin", 1, pairs.fmpq(1, 16), 4)
    assert pairs._balance.cache_info().currsize
    after = run_jobs([one, two])[1]
    assert len(forgotten) == 3 and {**after, "seconds": 0} == {**alone, "seconds": 0}


def test_compiled_programs_are_let_go_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    cleared: list[int] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    monkeypatch.setattr("lemmaformer.limits.lag", lambda lag: {})
    run_jobs([Job("limits.lag", {"lag": lag}) for lag in range(3 * running.REMEMBERED)])
    assert len(cleared) == 3


def test_jobs_show_nothing_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemmaformer.limits.lag", lambda lag: {"shown": PROGRESS.get()})
    token = PROGRESS.set(True)
    try:
        assert run_jobs([Job("limits.lag", {"lag": 1})])[0]["shown"] is False and PROGRESS.get()
    finally:
        PROGRESS.reset(token)


def test_progress_has_the_time_left() -> None:
    assert counting_line("jobs", 0, 10, 0, 0.0) == "jobs: 0 of 10"
    assert counting_line("jobs", 4, 10, 5, 120.0) == "jobs: 9 of 15, 3:00 left"


def _rows(*statuses: str) -> list[dict[str, Any]]:
    return [{"key": f"k{n}", "status": status, "reason": None, "seconds": 0.1, "x": n} for n, status in enumerate(statuses)]


def test_a_journal_keeps_rows_and_says_which_are_run_again(tmp_path: Path) -> None:
    place = tmp_path / "t.csv.jobs"
    with Journal(place) as journal:
        for row in _rows("done", "failed", "refused"):
            journal.put(row)
    with Journal(place) as journal:
        assert len(journal) == 3 and journal.get("k1") == _rows("done", "failed")[1] and journal.get("k9") is None
    with Journal(place, "failed") as journal:
        assert journal.get("k1") is None and len(journal) == 2
        journal.put({**_rows("done", "done")[1]})
    with Journal(place, "all") as journal:
        assert len(journal) == 0
    with Journal(place) as journal:
        assert journal.get("k1") == _rows("done", "done")[1]


def test_a_journal_that_was_cut_anywhere_goes_on_with_its_whole_lines(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jobs"
    with Journal(whole) as journal:
        for row in _rows("done", "done"):
            journal.put(row)
    content = whole.read_bytes()
    ends = [n + 1 for n, byte in enumerate(content) if byte == ord("\n")]
    for cut in {*range(0, len(content), 3), *ends, *(end - 1 for end in ends)}:
        place = tmp_path / "cut.jobs"
        place.write_bytes(content[:cut])
        with Journal(place) as journal:
            kept = max(sum(end <= cut for end in ends) - 1, 0)
            assert len(journal) == kept
            for row in _rows("done", "done")[kept:]:
                journal.put(row)
        assert place.read_bytes() == content, cut


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"lag,status\n1,done\n", "exists and is no journal of a sweep"),
        (b"\x00\xff", "exists and is no journal of a sweep"),
        (b'{"format": "lemmaformer sweep", "version": 2}\n', "exists and is no journal of a sweep"),
        (b'{"format": "lemmaformer sweep", "version": 1}\nnonsense\n', "line 2 of .* is no row of a sweep"),
        (b'{"format": "lemmaformer sweep", "version": 1}\n{"key": 3}\n', "line 2 of .* is no row of a sweep"),
        (b'{"format": "lemmaformer sweep", "version": 1}\n' + b"[" * 100000 + b"\n", "line 2 of .* is no row of a sweep"),
    ],
)
def test_a_foreign_journal_is_refused_and_stays(content: bytes, message: str, tmp_path: Path) -> None:
    place = journal_of(tmp_path / "t.csv")
    place.write_bytes(content)
    with pytest.raises(lf.InputError, match=message):
        lf.sweep(SPEC, out=tmp_path / "t.csv")
    assert place.read_bytes() == content and not (tmp_path / "t.csv").exists()


def test_places_that_are_no_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv.jobs").mkdir()
    os.mkfifo(tmp_path / "b.csv.jobs")
    for name in ("a.csv", "b.csv", "nowhere/c.csv"):
        with pytest.raises(lf.InputError) as caught:
            lf.sweep(SPEC, out=tmp_path / name)
        assert "\n" not in str(caught.value)


def test_two_sweeps_do_not_write_to_one_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "t.csv.jobs"), pytest.raises(lf.InputError, match="another sweep is writing to"):
        lf.sweep(SPEC, out=tmp_path / "t.csv")
    assert lf.sweep(SPEC, out=tmp_path / "t.csv").holds


def test_a_table_is_flat_and_every_row_has_every_column() -> None:
    points = [{"heads": 1, "x": 0}, {"heads": 2, "x": 0}, {"heads": 3, "x": 0}]
    rows = [
        {**_rows("done")[0], "heads": 7, "sizes": {"width": 3, "more": {"a": [1, 2], "seconds": 5}}},
        {"key": "k", "status": "refused", "reason": "no, 'never'", "seconds": 0.2},
        {**_rows("done")[0], "lower": 0.1, "nothing": {}},
    ]
    lines = table(points, rows)
    columns = ["heads", "x", "status", "reason", "result.heads", "sizes.width", "sizes.more.a", "key", "lower", "nothing"]
    assert [list(line) for line in lines] == [columns] * 3
    read = list(csv.DictReader(io.StringIO(encoded(lines, ".csv").decode())))
    assert read[0]["sizes.more.a"] == "[1, 2]" and read[0]["result.heads"] == "7" and read[1]["reason"] == "no, 'never'"
    assert read[1]["lower"] == "" and float(read[2]["lower"]) == 0.1


def test_a_parquet_file_has_the_same_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = lf.sweep({**SPEC, "grid": {"lag": [0, 3], "rpe": ["lin"]}}, out=tmp_path / "t.parquet")
    read = parquet.read_table(tmp_path / "t.parquet")
    assert read.column_names == found.columns
    assert [str(read.schema.field(name).type) for name in ("lag", "status", "min_heads")] == ["int64", "string", "int64"]
    assert read["min_heads"].to_pylist() == [None, 3] and read["status"].to_pylist() == ["refused", "done"]
    lines = [{"a": 1 << 70, "b": True, "c": 1}, {"a": 1, "b": None, "c": 0.5}]
    (tmp_path / "u.parquet").write_bytes(encoded(lines, ".parquet"))
    assert parquet.read_table(tmp_path / "u.parquet").to_pylist() == [
        {"a": str(1 << 70), "b": True, "c": 1.0},
        {"a": "1", "b": None, "c": 0.5},
    ]


def test_the_command_writes_a_table_and_goes_on_from_its_journal(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, out = tmp_path / "s.toml", tmp_path / "t.csv"
    spec.write_text('call = "limits.lag"\n[grid]\nlag = "0:4"\n')
    found = run("sweep", spec, "--out", out, "--json")
    assert found.code == 0 and {key: found.json[key] for key in ("jobs", "done", "refused", "failed", "from_journal")} == {
        "jobs": 5, "done": 4, "refused": 1, "failed": 0, "from_journal": 0,
    }  # fmt: skip
    table = out.read_bytes()
    assert [row["min_heads"] for row in csv.DictReader(out.read_text().splitlines())] == ["", "1", "2", "3", "4"]
    refused = run("sweep", spec, "--out", out)
    assert refused.code == 2 and "exists" in refused.err and len(refused.err.splitlines()) == 1
    monkeypatch.setattr(running, "called", lambda name: pytest.fail("a job ran twice"))
    again = run("sweep", spec, "--out", out, "--force", "--json")
    assert again.code == 0 and again.json["from_journal"] == 5 and out.read_bytes() == table
    shown = run("sweep", spec, "--out", out, "--force")
    assert (
        "5 jobs of limits.lag (5 of them before): 4 done, 1 refused, 0 failed" in shown.out
        and "1 refused: lag 0 is out of range" in shown.out
    )


def test_jobs_that_failed_are_run_again_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "t.csv"
    with monkeypatch.context() as broken:
        broken.setattr("lemmaformer.limits.lag", lambda lag: {"min_heads": 1 // (lag - 2)})
        assert lf.sweep({"call": "limits.lag", "grid": {"lag": [1, 2, 3]}}, out=out).data["failed"] == 1
    assert lf.sweep({"call": "limits.lag", "grid": {"lag": [1, 2, 3]}}, out=out, overwrite=True).data["failed"] == 1
    found = lf.sweep({"call": "limits.lag", "grid": {"lag": [1, 2, 3]}}, out=out, overwrite=True, again="failed")
    assert [row["min_heads"] for row in found.rows] == [-1, 2, 1] and found.data["from_journal"] == 2
    assert [
        row["min_heads"] for row in lf.sweep({"call": "limits.lag", "grid": {"lag": [1, 2, 3]}}, out=out, overwrite=True, again="all").rows
    ] == [1, 2, 3]


def test_a_violated_claim_is_bad_news(tmp_path: Path) -> None:
    net, place = lf.build(lf.fixed(lags=(2,)), error=0.1), tmp_path / "net"
    net.broken("output", by=0.5)[0].save(place)
    found = lf.sweep({"call": "verify", "grid": {"what": [str(place), str(tmp_path / "nowhere")]}})
    assert not found.holds and [row["status"] for row in found.rows] == ["done", "refused"] and found.rows[0]["verdict"] == "violated"


def test_a_sweep_is_shown_in_notebooks_and_written_when_asked(tmp_path: Path) -> None:
    found = lf.sweep({**SPEC, "grid": {"lag": "1:20"}})
    page = found._repr_html_() or ""
    assert "20 jobs of limits.lag" in page and "the first 12 rows" in page
    written = found.to_csv(tmp_path / "t.csv").read_bytes()
    assert written == encoded(table(*_table_of({**SPEC, "grid": {"lag": "1:20"}})), ".csv")
    with pytest.raises(lf.InputError, match="exists"):
        found.to_csv(tmp_path / "t.csv")
    with pytest.raises(lf.InputError, match=r"neither a \.csv nor a \.parquet"):
        found.to_csv(tmp_path / "t.xlsx")
    assert json.loads(json.dumps(found.as_dict()))["jobs"] == 20


def _table_of(spec: dict[str, Any]) -> tuple[Any, Any]:
    design = design_of(spec, "here")
    return design.points, run_jobs(design.jobs)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"workers": 0}, "workers 0 is out of range"),
        ({"workers": 10**9}, "workers 1000000000 is out of range"),
        ({"workers": 2, "scheduler": "tcp://127.0.0.1:8786"}, "give workers or a scheduler, not both"),
        ({"scheduler": "nonsense"}, "scheduler is 'nonsense'; give the address"),
        ({"again": "never"}, "again is 'never'; choose from failed, all"),
        ({"again": "all"}, "again needs a place for the table"),
    ],
)
def test_workers_that_cannot_be_had_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(lf.InputError, match=message):
        lf.sweep(SPEC, **keywords)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("cluster", "tables"):
        monkeypatch.setattr(f"lemmaformer.sweeps.{module}.find_spec", lambda name: None)
    with pytest.raises(lf.InputError, match=r"workers need Dask.*lemmaformer\[cluster\]"):
        lf.sweep(SPEC, workers=2)
    with pytest.raises(lf.InputError, match=r"Parquet needs pyarrow.*lemmaformer\[cluster\]"):
        lf.sweep(SPEC, out=tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []

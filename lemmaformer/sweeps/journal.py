"""The journal of a sweep: rows by key, one line of JSON each, appended as jobs are done.

A row is one write to a file opened for appending, so a process that is killed leaves whole lines and at most one torn one at the end, which
the next process cuts off: only a job whose row was never whole is run again. The first line says what the file is. One process writes at a
time; it holds a lock as long as it lives.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from analyzer.errors import InputError
from constructions.files.places import place_of
from lemmaformer.sweeps.jobs import OWN, Row

HEADER = {"format": "lemmaformer sweep", "version": 1}
LARGEST = 1 << 32
"""Bytes of a journal: 40 kB for each of the most jobs of a sweep."""
SYNC = 1.0
"""Seconds after which rows are brought to the disk. A process may be killed at any time; if the machine stops, these rows are run again."""

Again = Literal["failed", "all"]


def journal_of(out: Path) -> Path:
    """The journal of a table, beside it."""
    return out.with_name(f"{out.name}.jobs")


class Journal:
    """The store of a sweep in a file; `again` says which of the rows that it has do not count."""

    def __init__(self, path: Path, again: Again | None = None) -> None:
        self.path, self.again = path, again
        self._rows: dict[str, Row] = {}
        self._empty = True
        self._synced = time.monotonic()

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        try:
            self._file = os.open(place_of(self.path), flags, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {str(self.path)[:80]}: {error.strerror}") from None
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            if self._empty:
                place_of(self.path).unlink()  # nothing was done: nothing is left behind
            else:
                os.fsync(self._file)
        os.close(self._file)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Row | None:
        """The row of a job that was done before."""
        return self._rows.get(key)

    def put(self, row: Row) -> None:
        """Keep a row; it is in the file when this returns."""
        self._append(row)
        self._empty = False
        self._rows[row["key"]] = row

    def _append(self, data: Any) -> None:
        line = json.dumps(data, ensure_ascii=False).encode() + b"\n"
        try:
            while line:  # a full disk or a signal may cut a write short
                line = line[os.write(self._file, line) :]
            if time.monotonic() - self._synced > SYNC:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise InputError(f"cannot write {str(self.path)[:80]}: {error.strerror}") from None

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # a system without such locks
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another sweep is writing to {str(self.path)[:80]}; wait for it, or choose another place") from None
        except OSError:  # a file system without locks
            return

    def _read(self) -> None:
        """The rows of the file; what was torn off at its end is removed."""
        import stat

        about = os.fstat(self._file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise self._foreign()
        with open(self._file, "rb", closefd=False) as file:
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        header = json.dumps(HEADER).encode() + b"\n"
        if not whole and header.startswith(content):  # new, or killed at the first line
            os.ftruncate(self._file, 0)
            self._append(HEADER)
            return
        if not whole.startswith(header):
            raise self._foreign()
        for number, line in enumerate(whole.splitlines()[1:], 2):
            row = self._row(line, number)
            self._rows[row["key"]] = row
        os.ftruncate(self._file, len(whole))
        self._empty = not self._rows
        if self.again is not None:
            self._rows = {key: row for key, row in self._rows.items() if self.again == "failed" and row["status"] != "failed"}

    def _row(self, line: bytes, number: int) -> Row:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not set(OWN) <= set(row) or not isinstance(row["key"], str):
            raise InputError(f"line {number} of {str(self.path)[:80]} is no row of a sweep; remove that line, or the file")
        return row

    def _foreign(self) -> InputError:
        return InputError(f"{str(self.path)[:80]} exists and is no journal of a sweep; choose another place for the table")

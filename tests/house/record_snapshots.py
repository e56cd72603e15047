"""Record the JSON of commands (`snapshots/commands.toml`): `python -m tests.house.record_snapshots [FAMILY …]`, all by default."""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import cli
from tests.conftest import Result
from tests.house.test_snapshots import FAMILIES, FOLDER, answer, write_inputs


def call(*arguments: object) -> Result:
    """The command line as the fixture `run` calls it."""
    sys.argv, code = ["lemmaformer", *map(str, arguments)], 0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def record(family: str) -> str:
    """One line per command, so that a change of the file names the commands that changed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_inputs(Path(folder))
        found = {name: answer(call, line) for name, line in FAMILIES[family].items()}
    rows = (f"{json.dumps(name)}: {json.dumps(data, ensure_ascii=False)}" for name, data in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or FAMILIES:
        (FOLDER / f"{name}.json").write_text(record(name), encoding="utf-8")

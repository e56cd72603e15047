"""Nothing that exists is overwritten unasked, and what replaces it does so in one step, whenever the process is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from constructions.files import places
from constructions.files.card import check_new_folder, check_output, new_folder, read_files, write_files
from constructions.files.places import check_place, write_file

ROOT = Path(__file__).parent.parent.parent
CONTENT = {"one": b"1" * 999, "two": b"2" * 5000}
TWO_STEPS = "from constructions.files import places\nplaces.exchange = lambda one, other: False\n"
ONE_STEP = "from constructions.files import places\n"
WAYS = pytest.mark.parametrize("way", [ONE_STEP, TWO_STEPS], ids=["exchange", "two steps"])


def put(place: Path, name: str, overwrite: bool = False) -> None:
    write_files(place, {"dtype": "exact", "name": name}, CONTENT[name], name, overwrite)


def held(place: Path) -> str:
    """Which bundle a place holds, whole."""
    files = read_files(place)
    name = str(files.card["name"])
    assert files.weights == CONTENT[name] and (place / "citation.bib").read_text() == name
    assert sorted(os.listdir(place)) == ["card.json", "citation.bib", "exact.json"]
    return name


def test_a_bundle_is_replaced_only_if_asked(tmp_path: Path) -> None:
    place = tmp_path / "net"
    put(place, "one")
    with pytest.raises(InputError, match="exists; choose another place, or overwrite it"):
        put(place, "two")
    with pytest.raises(InputError, match="exists"):
        check_output(place)
    assert held(place) == "one"
    put(place, "two", overwrite=True)
    assert held(place) == "two" and os.listdir(tmp_path) == ["net"]


def test_an_empty_folder_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "net"
    place.mkdir()
    put(place, "one")
    assert held(place) == "one"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="the folder you work in"):
        put(Path("."), "one")


@pytest.mark.parametrize("overwrite", [False, True])
def test_strangers_files_are_safe(tmp_path: Path, overwrite: bool) -> None:
    folder, littered, file, link = (tmp_path / name for name in ("folder", "littered", "file", "link"))
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    put(littered, "one")
    (littered / "notes").write_text("mine")
    file.write_text("mine too")
    link.symlink_to(tmp_path / "nothing")
    for place in (folder, littered, file, link):
        with pytest.raises(InputError, match="choose another place"):
            put(place, "two", overwrite)
    assert (folder / "thesis.tex").read_text() and (littered / "notes").read_text() and file.read_text() and link.is_symlink()
    assert read_files(littered).card["name"] == "one"


def test_a_link_goes_on_pointing_to_what_replaces_its_target(tmp_path: Path) -> None:
    put(tmp_path / "net", "one")
    (tmp_path / "latest").symlink_to("net")
    put(tmp_path / "latest", "two", overwrite=True)
    assert (tmp_path / "latest").is_symlink() and held(tmp_path / "net") == "two"


def test_somebody_who_comes_first_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that appears between the last look and the move."""
    place = tmp_path / "net"
    move = places.put_folder

    def late(fresh: Path, where: Path, overwrite: bool) -> None:
        monkeypatch.setattr("constructions.files.card.put_folder", move)
        put(place, "one")
        move(fresh, where, overwrite)

    monkeypatch.setattr("constructions.files.card.put_folder", late)
    with pytest.raises(InputError, match="cannot write"):
        put(place, "two")
    assert held(place) == "one" and os.listdir(tmp_path) == ["net"]


def test_without_an_exchange_two_steps_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "exchange", lambda one, other: False)
    put(tmp_path / "net", "one")
    put(tmp_path / "net", "two", overwrite=True)
    assert held(tmp_path / "net") == "two" and os.listdir(tmp_path) == ["net"]


@pytest.mark.skipif(sys.platform != "linux", reason="file systems that are known to exchange")
def test_names_are_exchanged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert places.exchange(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["b"] and os.listdir(tmp_path / "b") == ["a"]
    assert not places.exchange(tmp_path / "a", tmp_path / "c")


def test_folders_of_the_killed_are_swept_but_not_those_of_the_living(tmp_path: Path) -> None:
    place = tmp_path / "net"
    put(place, "one")

    def left(name: str, *parts: str, age: float = 2 * places.OLD_AGE) -> Path:
        folder = tmp_path / name
        for part in parts:
            (folder / part).mkdir(parents=True)
            (folder / part / "card.json").touch()
        os.utime(folder, (time.time() - age,) * 2)
        return folder

    dead = left(".net.lemmaformer.dead", "new")
    young = left(".net.lemmaformer.young", "new", age=1)
    sole = left(".net.lemmaformer.sole", "old", "new")
    others = left(".net.backup", "new"), left(".network.lemmaformer.x", "new")
    littered = left(".net.lemmaformer.littered", "new")
    (littered / "new" / "thesis.tex").write_text("years of work")
    os.utime(littered, (0, 0))
    living = left(".net.lemmaformer.living", "new")
    lock = places._lock(living)
    assert lock is not None
    put(place, "two", overwrite=True)
    assert not dead.exists() and (littered / "new" / "thesis.tex").exists()
    for folder in (young, sole, living, *others):
        assert (folder / "new" / "card.json").exists(), folder
    os.close(lock)
    put(place, "one", overwrite=True)
    assert not living.exists() and young.exists() and sole.exists()


@pytest.mark.parametrize("use", [held, check_output, lambda place: put(place, "two"), lambda place: put(place, "one", overwrite=True)])
def test_a_gap_is_closed_by_the_next_reader_or_writer(tmp_path: Path, use: Callable[[Path], object]) -> None:
    """Between the two steps of a replacement nothing has the name; the old bundle comes back before anything else is done."""
    place, folder = tmp_path / "net", tmp_path / ".net.lemmaformer.killed"
    (folder / "new").mkdir(parents=True)
    put(folder / "old", "one")
    with suppress(InputError):
        use(place)
    assert held(place) == "one" and not (folder / "old").exists()


def start(way: str, code: str, *arguments: object) -> subprocess.Popen[str]:
    script = f"import os, signal, sys\nfrom pathlib import Path\n{way}from tests.house.test_nothing_lost import held, put\n{code}"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


STEPS = """
import itertools
place = Path(sys.argv[1])
EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.scandir", "os.listdir", "open", "tempfile.mkdtemp")
seen = {"one": 0, "two": 0}
for step in itertools.count():
    put(place, "one", overwrite=True)
    child = os.fork()
    if not child:
        left = step
        def count(event, arguments):
            global left
            if event in EVENTS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        put(place, "two", overwrite=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    seen[held(place)] += 1
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
print(seen["one"], seen["two"])
"""


@WAYS
def test_killed_before_any_of_its_steps(tmp_path: Path, way: str) -> None:
    """Every call that touches the file system is the last one of some child."""
    process = start(way, STEPS, tmp_path / "net")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    old, new = map(int, out.split())
    assert old >= 10 and new >= 4


LOOP = """
if sys.argv[2] == "fast":
    os.fsync = lambda descriptor: None
put(Path(sys.argv[1]), "one", overwrite=True)
print("ready", flush=True)
while True:
    put(Path(sys.argv[1]), "two", overwrite=True)
    put(Path(sys.argv[1]), "one", overwrite=True)
"""


@pytest.mark.deep(keep="synchronous-exchange")
@WAYS
@pytest.mark.parametrize("disk", ["fast", "synchronous"])
def test_killed_at_random_moments(tmp_path: Path, way: str, disk: str) -> None:
    place, rng, seen = tmp_path / "net", random.Random(0), set()
    for _ in range(30 if disk == "fast" else 5):
        process = start(way, LOOP, place, disk)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        seen.add(held(place))
    assert seen == set(CONTENT) or disk != "fast"


def test_files_are_replaced_only_if_asked(tmp_path: Path) -> None:
    place = tmp_path / "y.npy"
    write_file(place, b"one")
    with pytest.raises(InputError, match="exists; choose another place, or overwrite it"):
        write_file(place, b"two")
    assert place.read_bytes() == b"one"
    write_file(place, b"two", overwrite=True)
    assert place.read_bytes() == b"two" and os.listdir(tmp_path) == ["y.npy"]
    for name, overwrite in (
        (tmp_path, True),
        (tmp_path / "no" / "y", True),
        (place / "y", True),
        (Path("/dev/null"), True),
        (place, False),
    ):
        with pytest.raises(InputError):
            check_place(name, overwrite)


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "y.npy"
    write = places.write_through

    def late(path: Path, content: bytes) -> None:
        place.write_bytes(b"theirs")
        write(path, content)

    monkeypatch.setattr(places, "write_through", late)
    with pytest.raises(InputError, match="exists"):
        write_file(place, b"ours")
    assert place.read_bytes() == b"theirs" and os.listdir(tmp_path) == ["y.npy"]


def test_new_folders_take_empty_places_only(tmp_path: Path) -> None:
    place = tmp_path / "arms"
    place.mkdir()
    with new_folder(place) as folder:
        put(folder / "first", "one")
    assert held(place / "first") == "one" and os.listdir(tmp_path) == ["arms"]
    with pytest.raises(InputError, match="exists"):
        check_new_folder(place)
    with pytest.raises(KeyError), new_folder(tmp_path / "more") as folder:
        put(folder / "first", "one")
        raise KeyError
    assert os.listdir(tmp_path) == ["arms"]


COMMANDS: list[list[str]] = [
    ["build", "fixed", "--lags", "1", "--error", "0.2", "--out", "OUT"],
    ["build", "fixed", "--lags", "4", "--depth", "2", "--error", "0.2", "--out", "OUT"],
    ["build", "adaptive", "--target", str(ROOT / "examples" / "pair.toml"), "--out", "OUT"],
    ["build", "kernel", "--kernel", "exp(-s)", "--error", "0.2", "--out", "OUT"],
    ["build", "coupling", "--rho", "u*v", "--length", "4", "--error", "0.2", "--out", "OUT"],
    ["train", "--lags", "1", "--heads", "1", "--steps", "40", "--out", "OUT"],
]


@pytest.mark.deep(only=("build coupling", "train --lags"))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_commands_replace_a_bundle_only_if_forced(tmp_path: Path, run: Callable[..., Any], command: list[str]) -> None:
    place = tmp_path / "net"
    put(place, "one")
    arguments = [place if word == "OUT" else word for word in command]
    refused = run(*arguments)
    assert refused.code == 2 and "exists" in refused.err and held(place) == "one"
    assert run(*arguments, "--force").code == 0
    assert "name" not in read_files(place).card and os.listdir(tmp_path) == ["net"]


@pytest.mark.deep
def test_certificates_and_outputs_are_replaced_only_if_forced(tmp_path: Path, run: Callable[..., Any]) -> None:
    import numpy as np

    assert run("build", "fixed", "--lags", "1", "--error", "0.2", "--out", tmp_path / "net").code == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 1)))
    for command, place in (
        (["run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output"], tmp_path / "y.npy"),
        (["limits", "lag", "--lag", "1", "--dtype", "float32", "--certificate"], tmp_path / "lag.json"),
        (["limits", "kernel", "--kernel", "exp(-s)", "--heads", "1", "--certificate"], tmp_path / "kernel.json"),
        (["limits", "slopes", "--slopes", "alibi:1", "--lags", "1", "--certificate"], tmp_path / "slopes.json"),
    ):
        place.write_text("mine")
        assert run(*command, place).code == 2 and place.read_text() == "mine"
        assert run(*command, place, "--force").code == 0 and place.read_bytes() != b"mine"

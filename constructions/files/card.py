"""Cards: the files of a bundle, before anything is made of them. No JAX here, so damaged bundles are refused at once.

    card.json             format version, theorem, target, structure, sizes, dtype, chain, seeds, versions, integrity
    weights.safetensors   float networks            exact.json   exact networks (numbers as strings)
    citation.bib          what the network rests on
    tokens.npy            where the network refutes a claim: an input that shows it, no part of the network

`integrity` is the SHA-256 of the card's content (without that entry) and of the other files: any change but white space in the card is
noticed. Folders appear whole or not at all, and a bundle is replaced in one step, if at all (`constructions.files.places`).
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from constructions.files.places import NEW, is_empty, place_of, put_folder, recover, staging, sync_folder, try_staging, write_through

FORMAT = "lemmaformer-bundle"
VERSION = 1
CARD, FLOATS, EXACT, CITATION, TOKENS = "card.json", "weights.safetensors", "exact.json", "citation.bib", "tokens.npy"
NAMES = (CARD, FLOATS, EXACT, CITATION, TOKENS)
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Files:
    """A card whose integrity was checked, and the bytes of the weights beside it."""

    path: Path
    card: dict[str, Any]
    weights: bytes


def _digest(card: dict[str, Any], files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    bare = {key: value for key, value in card.items() if key != "integrity"}
    digest.update(json.dumps(bare, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass"))
    for name in sorted(files):
        digest.update(name.encode() + hashlib.sha256(files[name]).digest())
    return digest.hexdigest()


def weights_name(dtype: str) -> str:
    return EXACT if dtype == "exact" else FLOATS


def check_output(path: Path, overwrite: bool = False) -> None:
    """Refuse a place for a bundle unless it is free, an empty folder or, with `overwrite`, a bundle and nothing else."""
    place = place_of(path)
    try:
        recover(place)
        _check_taken(path, place, overwrite)
        try_staging(place)
    except OSError as error:
        raise InputError(f"cannot use {str(path)[:80]}: {error.strerror}") from None


def _check_taken(path: Path, place: Path, overwrite: bool) -> None:
    if not os.path.lexists(place):
        if path.is_symlink():
            raise InputError(f"{path} is a link to nothing; choose another place")
        if not place.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist; create it first")
        return
    if place == Path.cwd() or os.path.ismount(place):
        raise InputError(f"{path} is the folder you work in, or a mounted one, which cannot be moved; choose a place inside")
    if is_empty(place):
        return
    if not is_bundle(place):
        raise InputError(f"{path} exists and is not a lemmaformer bundle; choose another place")
    strangers = sorted(p.name for p in place.iterdir() if p.name not in NAMES)
    if strangers:
        raise InputError(f"{path} is a bundle that also holds {strangers[0]!r}; move that away or choose another place")
    if not overwrite:
        raise InputError(f"{path} exists; choose another place, or overwrite it")


def check_new_folder(path: Path) -> None:
    """Refuse a place for a folder of bundles that is taken by anything but an empty folder, or in no folder."""
    if os.path.lexists(path) and (path.is_symlink() or not is_empty(path) or path.resolve() == Path.cwd()):
        raise InputError(f"{str(path)[:80]} exists; choose another place")
    if not path.absolute().parent.is_dir():
        raise InputError(f"the folder {str(path.parent)[:80]} does not exist; create it first")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write bundles into, which takes its place when all are written, or never."""
    check_new_folder(path)
    place = path.absolute()
    try:
        with staging(place, NAMES) as folder:
            fresh = folder / NEW
            fresh.mkdir()
            yield fresh
            sync_folder(fresh)
            put_folder(fresh, place, overwrite=False)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def is_bundle(path: Path) -> bool:
    """Whether a folder has one of our cards in it."""
    try:
        return json.loads((path / CARD).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def write_files(path: Path, card: dict[str, Any], weights: bytes, citation: str, overwrite: bool = False) -> None:
    """Write a bundle in one step; a bundle that is there is refused unless `overwrite`, and then stays until the new one is whole."""
    check_output(path, overwrite)
    files = {weights_name(card["dtype"]): weights, CITATION: citation.encode()}
    card = {"format": FORMAT, "version": VERSION, **card}
    card["integrity"] = _digest(card, files)
    files[CARD] = (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode()
    place = place_of(path)
    try:
        with staging(place, NAMES) as folder:
            fresh = folder / NEW
            fresh.mkdir()
            for name, content in files.items():
                write_through(fresh / name, content)
            sync_folder(fresh)
            _check_taken(path, place, overwrite)  # writing took a while: somebody may have put something there
            put_folder(fresh, place, overwrite)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_files(path: Path) -> Files:
    """Read a bundle's files and check format, version and integrity."""
    recover(place_of(path))
    if not path.is_dir():
        raise InputError(f"{path} is not a bundle folder")
    try:
        card = json.loads(_read(path / CARD))
    except (ValueError, RecursionError):
        raise InputError(f"{path / CARD} is not valid JSON: the bundle is damaged") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InputError(f"{path / CARD} is not the card of a lemmaformer bundle")
    if type(card.get("version")) is not int or card["version"] != VERSION:
        raise InputError(f"{path} has bundle version {card.get('version')!r}; this program reads version {VERSION}")
    name = weights_name(str(card.get("dtype")))
    files = {file_name: _read(path / file_name) for file_name in (name, CITATION)}
    if card.get("integrity") != _digest(card, files):
        raise InputError(f"{path} fails its integrity check: a file was changed or damaged after it was written")
    return Files(path, card, files[name])

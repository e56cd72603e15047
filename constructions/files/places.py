"""Putting folders and files in their place: whole or not at all, so that nothing that exists is lost. No JAX here.

What is written is prepared in a folder of ours beside its place, `.NAME.lemmaformer.XXXXXXXX`, brought to the disk, and moved:

    the place is free, or an empty folder     rename new → place                       one step; refused if something came in between
    the place holds what may be replaced      exchange new ↔ place                     one step: renameat2 (Linux), renamex_np (macOS)
    … on a file system that cannot do that    rename place → old, then new → place     two steps

A process that is killed at any moment leaves the old or the new content under the name. In the last line it may leave nothing there, but
then, and only then, our folder holds both `old` and `new`, `old` is whole, and the next reader or writer of the place puts it back
(`recover`). Everything else that killed processes leave behind is superfluous; the next writer to the same place removes what is older
than an hour and has no owner any more: owners hold a lock on their folder for as long as they live. Only files of the names that we write
are ever removed.
"""

import ctypes
import errno
import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analyzer.errors import InputError

OLD_AGE = 3600
"""Seconds after which a folder of ours without an owner is taken for one that was left behind."""
ATTEMPTS = 100
"""So often two writers to one place may come between each other's two steps."""
NEW, OLD = "new", "old"


def place_of(path: Path) -> Path:
    """Where a path leads: absolute, links followed, so that a link goes on pointing to what replaces its target."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise InputError(f"{str(path)[:80]!a} is no name of a file or folder") from None


def _prefix(place: Path) -> str:
    return f".{place.name}.lemmaformer."


def _ours(place: Path) -> list[Path]:
    """Our folders beside a place."""
    try:
        return sorted(entry for entry in place.parent.iterdir() if entry.name.startswith(_prefix(place)) and entry.is_dir())
    except OSError:
        return []


@contextmanager
def staging(place: Path, names: Collection[str]) -> Iterator[Path]:
    """A folder beside the place to prepare its content in; at the end files of these `names` in it are removed, and folders of them."""
    _sweep(place, names)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        remove(folder, names)
        if lock is not None:
            os.close(lock)


def try_staging(place: Path) -> None:
    """Fail now, not after hours of work, if nothing can be written beside the place."""
    os.rmdir(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))


def _lock(folder: Path) -> int | None:
    """A descriptor that locks a folder until it is closed or the process ends; None if it is locked, or where there are no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    import fcntl  # where folders can be opened there is this module

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(place: Path, names: Collection[str]) -> None:
    """Remove what killed processes left beside a place; never a folder with both `old` and `new`, which may be all there is."""
    for folder in _ours(place):
        try:
            old = time.time() - folder.stat().st_mtime > OLD_AGE
        except OSError:
            continue
        lock = _lock(folder) if old else None
        if lock is not None:
            if not ((folder / NEW).exists() and (folder / OLD).exists()):
                remove(folder, names)
            os.close(lock)


def remove(folder: Path, names: Collection[str]) -> None:
    """Remove a folder as far as it holds files of these names and folders of such files; anything else stays."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                remove(Path(entry.path), names)
            elif entry.name in names:
                with suppress(OSError):
                    os.unlink(entry.path)
        os.rmdir(folder)


def write_through(path: Path, content: bytes) -> None:
    """Write a new file and bring it to the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def put_folder(fresh: Path, place: Path, overwrite: bool) -> None:
    """Move the folder `new` of a staging folder into its place; with `overwrite` what was there is in the staging folder afterwards."""
    old = fresh.with_name(OLD)
    try:
        for attempt in range(ATTEMPTS):
            if _renamed(fresh, place, overwrite) or exchange(fresh, place):
                break
            if old.exists():  # another writer has replaced it meanwhile; while it is being removed it must not be recovered
                os.rename(old, fresh.with_name(f"gone{attempt}"))
            with suppress(FileNotFoundError):
                os.rename(place, old)
        else:
            raise OSError(errno.EBUSY, "others keep writing there")
    except OSError:
        if old.exists() and not place.exists():
            os.rename(old, place)
        raise
    sync_folder(place.parent)  # before what was there is removed


def _renamed(fresh: Path, place: Path, overwrite: bool) -> bool:
    """Move a folder where there is nothing, or an empty folder; False if there is something that may be replaced."""
    try:
        os.rename(fresh, place)
        return True
    except OSError as error:
        taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST)
        if not taken or not (overwrite or is_empty(place)):  # there are systems that do not rename onto empty folders
            raise
        return False


def is_empty(folder: Path) -> bool:
    """Whether this is a folder with nothing in it."""
    return folder.is_dir() and not any(folder.iterdir())


def exchange(one: Path, other: Path) -> bool:
    """Exchange what two names mean in one step; False where that cannot be done."""
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        return hasattr(libc, "renamex_np") and libc.renamex_np(*names, ctypes.c_uint(2)) == 0  # RENAME_SWAP
    if libc is None or not hasattr(libc, "renameat2"):
        return False
    here = ctypes.c_int(-100)  # AT_FDCWD
    return bool(libc.renameat2(here, names[0], here, names[1], ctypes.c_uint(2)) == 0)  # RENAME_EXCHANGE


def recover(place: Path) -> None:
    """If there is nothing in a place, put back what a process that was killed between the two steps of a replacement took away."""
    if os.path.lexists(place):
        return
    for folder in _ours(place):
        if (folder / OLD).is_dir() and (folder / NEW).is_dir():
            with suppress(OSError):
                os.rename(folder / OLD, place)
                return


def check_place(path: Path, overwrite: bool = False) -> None:
    """Refuse a place for one file that is a folder, in none, or taken; with `overwrite` a file may be there."""
    place = place_of(path)
    if place.is_dir() or not place.parent.is_dir():
        raise InputError(f"cannot write {str(path)[:80]}: not a file in an existing folder")
    if os.path.lexists(place):
        if not place.is_file():
            raise InputError(f"{str(path)[:80]} exists and is no ordinary file; choose another place")
        if not overwrite:
            raise InputError(f"{str(path)[:80]} exists; choose another place, or overwrite it")


def write_file(path: Path, content: bytes, overwrite: bool = False) -> None:
    """Write a file whole or not at all; one that exists is refused unless `overwrite`, which replaces it in one step."""
    check_place(path, overwrite)
    place = place_of(path)
    try:
        with staging(place, (NEW,)) as folder:
            fresh = folder / NEW
            write_through(fresh, content)
            if overwrite or not _linked(fresh, place):
                os.replace(fresh, place)
            sync_folder(place.parent)
    except FileExistsError:
        raise InputError(f"{str(path)[:80]} exists; choose another place, or overwrite it") from None
    except OSError as error:
        raise InputError(f"cannot write {str(path)[:80]}: {error.strerror}") from None


def _linked(fresh: Path, place: Path) -> bool:
    """Give a file its second name unless that is taken; False where files have one name only."""
    try:
        os.link(fresh, place)
        return True
    except FileExistsError:
        raise
    except OSError:
        return False

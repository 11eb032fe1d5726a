"""manifest.json lists the files of a run's or a model's folder, so that what is damaged or missing is found.

A file leaves the list before it is written anew and comes back when all is written. After a kill in between the same
command lists it. What is listed stays as it is: it is compared when it is read (`files.read_checked`), and all of it by
`problems`. That shows damage. It does not show who made a file.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adamatch.base.errors import reason
from adamatch.base.files import MANIFEST, checksum, listed, sealed, write_atomically
from adamatch.base.regular_files import opened

# They may be made anew, get more, or be filled in, at any time; manifests are those of folders inside.
CHANGING = ("report.html", "README.md", "questions.json", "answers.csv", MANIFEST)
PLAIN = {"outputs", "events", "seeds"}


def forget(folder: Path, *names: str) -> None:
    """Before these files are written anew."""
    files = listed(folder)
    if files.keys() & {*names}:
        _write(folder, {name: known for name, known in files.items() if name not in names})


def complete(folder: Path, *names: str) -> None:
    """List these files, or all that the list does not have yet."""
    files = listed(folder)
    new = {name: _measured(folder / name) for name in names or _files(folder) if name not in files}
    if new:
        _write(folder, files | new)


def problems(folder: Path) -> Iterator[str]:
    """A line for every file that is damaged or missing, in folders inside, too."""
    files = listed(folder)
    if not files:
        what = "is damaged" if (folder / MANIFEST).exists() else "is missing (the run is not finished?)"
        yield f"{folder / MANIFEST} {what}: run the same command again, or copy the folder anew"
    for name, known in files.items():
        path = folder / name
        try:
            if not path.is_relative_to(folder) or ".." in path.parts or path.resolve() != folder.resolve() / name:
                raise ValueError("it is a link, or outside of the folder")
            with opened(path, None, own=True) as file:
                size = os.fstat(file.fileno()).st_size
                if known and (size != known[0] or _measured(path) != known):  # a hole of terabytes is not read
                    yield f"{path} was changed since it was written"
        except FileNotFoundError:
            yield f"{path} is missing"
        except (OSError, ValueError) as error:
            yield f"{path} cannot be read ({reason(error)})"
        else:
            if path.name == MANIFEST:
                yield from problems(path.parent)


def _measured(path: Path) -> list[Any] | None:
    """Size and SHA-256; None of what may change."""
    known = [path.stat().st_size, checksum(path)]
    return None if path.name in CHANGING else known


def _files(folder: Path) -> Iterator[str]:
    """What is to be listed."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith((".", "lease-")):
            continue
        if path.name in PLAIN or (path / MANIFEST).is_file():  # of other runs, which may be under way, the list alone
            inside = _files(path) if path.name in PLAIN else [MANIFEST]
            yield from (f"{path.name}/{name}" for name in inside)
        elif path.is_file() and path.name != MANIFEST:
            yield path.name


def _write(folder: Path, files: dict[str, Any]) -> None:
    write_atomically(folder / MANIFEST, json.dumps(sealed({"version": 1, "files": files}), indent=1))

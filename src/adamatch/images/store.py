"""Images and labels in memory-mapped files: the one form in which training sees data.

A store is a folder of `images.npy` (uint8, count x size x size x 3), `labels.npy` (int64, only where there are labels)
and `store.json` (class names, checksums, where it came from). It appears under its name only when it is complete.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adamatch.base import system
from adamatch.base.errors import InputError, reason
from adamatch.base.files import checksum, read_sealed, sealed, sync, write_atomically, writing
from adamatch.base.regular_files import mapped

VERSION = 1
Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Store:
    """images (n, size, size, 3) uint8; labels (n,) int64 or None; classes in the order of the labels."""

    images: Pixels
    labels: Labels | None
    classes: tuple[str, ...]
    info: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def size(self) -> int:
        return int(self.images.shape[1])

    @classmethod
    def open(cls, path: str | Path, *, whole: bool = False) -> Self:
        """Map a finished store. Header and labels are compared with their checksums; the images too if `whole`."""
        path = Path(path)
        try:
            head = read_sealed(path / "store.json")
            if head["version"] != VERSION:
                raise ValueError("it was written by another version")
            images = mapped(path / "images.npy")
            labels = np.array(mapped(path / "labels.npy")) if head["labelled"] else None
            _, height, width, channels = images.shape
            if (height, channels, images.dtype) != (width, 3, np.uint8):
                raise ValueError(f"images.npy holds no images, but {images.shape} of {images.dtype}")
            if images.offset + images.nbytes != (path / "images.npy").stat().st_size:
                raise ValueError("images.npy has another size than it says")
        except Exception as error:  # NumPy raises errors of all kinds when a header is damaged
            if not os.path.exists(path / "store.json"):
                raise InputError(f"{path} is not a store: make one with `adamatch data prepare`") from None
            raise _damaged(path, reason(error)) from None
        state = (path / "images.npy").stat()
        seen = (path.absolute(), state.st_ino, state.st_size, state.st_mtime_ns)
        for name, known in head["sha256"].items():
            if (name == "labels.npy" or (whole and seen not in _seen)) and checksum(path / name) != known:
                raise _damaged(path, f"{name} was changed since it was written")
        if whole:
            _seen.add(seen)
        return cls(images, labels, tuple(head["classes"]), head["info"])


_seen: set[tuple[Path, int, int, int]] = set()  # images.npy whose checksum was right: read once in a process


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged ({why}): delete it and prepare it again")


class Writer:
    """Makes a store beside its final name: set `images`, then `commit`. Until then, nothing has that name."""

    def __init__(self, path: str | Path, *, count: int, size: int) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        shutil.rmtree(self.partial, ignore_errors=True)
        file = self.partial / "images.npy"
        with writing(self.path):
            self.partial.mkdir(parents=True)
            np.lib.format.open_memmap(file, "w+", np.uint8, (count, size, size, 3)).flush()
            system.fill(file)
        self.images: Pixels = mapped(file, "r+")

    def commit(self, labels: Labels | None, classes: Sequence[str], info: Mapping[str, Any]) -> Store:
        """Write labels and header, with checksums, and give the folder its final name."""
        self.images.flush()  # type: ignore[attr-defined]  # a memmap
        del self.images  # Windows renames no folder with an open file
        names = ["images.npy"]
        if labels is not None:
            np.save(self.partial / "labels.npy", labels.astype(np.int64))
            names.append("labels.npy")
        for name in names:
            sync(self.partial / name)
        head = {"version": VERSION, "classes": list(classes), "labelled": labels is not None, "info": dict(info)}
        head["sha256"] = {name: checksum(self.partial / name) for name in names}
        write_atomically(self.partial / "store.json", json.dumps(sealed(head), indent=1))
        shutil.rmtree(self.path, ignore_errors=True)  # a damaged one
        os.replace(self.partial, self.path)
        sync(self.path.parent)
        return Store.open(self.path)

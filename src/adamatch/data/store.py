"""Images and labels in memory-mapped files: the one form in which training sees data.

A store is a folder of `images.npy` (uint8, count x size x size x 3), `labels.npy` (int64, only where there are
labels) and `store.json` (class names, checksums, where it came from). It appears under its name only when it is complete.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adamatch import system
from adamatch.errors import InputError

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
    def open(cls, path: str | Path) -> Self:
        """Map a finished store; nothing but its header is read."""
        path = Path(path)
        try:
            head = json.loads((path / "store.json").read_text())
        except FileNotFoundError:
            raise InputError(f"{path} is not a store: it has no store.json (make one with `adamatch data prepare`)") from None
        except ValueError:
            raise InputError(f"{path}/store.json is damaged: delete {path} and prepare it again") from None
        if not isinstance(head, dict) or not {"classes", "labelled", "info"} <= head.keys():
            raise InputError(f"{path}/store.json is damaged: delete {path} and prepare it again")
        if head.get("version") != VERSION:
            raise InputError(f"{path} was written by another version ({head.get('version')}): delete it and prepare it again")
        try:
            images = np.load(path / "images.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(path / "labels.npy", allow_pickle=False) if head["labelled"] else None
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}): delete it and prepare it again") from None
        return cls(images, labels, tuple(head["classes"]), head["info"])


class Writer:
    """Fills a store in a folder beside its final name, and moves it there when it is complete.

    `done` has one byte per image, so that an interrupted preparation goes on where it stopped: set `images[i]`,
    `labels[i]`, then `done[i]`. A partial folder made from another `plan` is thrown away.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        count: int,
        size: int,
        classes: Sequence[str],
        labelled: bool = True,
        info: Mapping[str, Any] | None = None,
        plan: str = "",
    ) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.head: dict[str, Any] = {
            "version": VERSION,
            "classes": list(classes),
            "labelled": labelled,
            "info": dict(info or {}),
        }
        signature = json.dumps([count, size, self.head, plan], sort_keys=True, default=str)
        signature_file = self.partial / "plan.json"
        if not (signature_file.is_file() and signature_file.read_text() == signature):
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir(parents=True)
            _require_space(self.partial, count * size * size * 3)
            self._new("images", (count, size, size, 3), np.uint8)
            self._new("done", (count,), np.uint8)
            if labelled:
                self._new("labels", (count,), np.int64)
            signature_file.write_text(signature)  # last: its presence means that the arrays are there
        self.images: Pixels = np.load(self.partial / "images.npy", mmap_mode="r+")
        self.done: Pixels = np.load(self.partial / "done.npy", mmap_mode="r+")
        self.labels: Labels | None = np.load(self.partial / "labels.npy", mmap_mode="r+") if labelled else None

    def _new(self, name: str, shape: tuple[int, ...], dtype: type) -> None:
        path = self.partial / f"{name}.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()
        system.fill(path)

    def commit(self, **info: Any) -> Store:
        """Checksum, write the header and give the folder its final name."""
        if not self.done.all():
            raise InputError(f"{self.path} is not complete: {int((self.done == 0).sum())} images are missing")
        for array in (self.images, self.labels):
            if isinstance(array, np.memmap):
                array.flush()
        names = ["images.npy", "labels.npy"] if self.labels is not None else ["images.npy"]
        self.head["info"] |= info
        self.head["sha256"] = {name: checksum(self.partial / name) for name in names}
        (self.partial / "store.json").write_text(json.dumps(self.head, indent=1))
        del self.images, self.done, self.labels
        for leftover in ("done.npy", "plan.json"):
            (self.partial / leftover).unlink()
        if self.path.exists():
            shutil.rmtree(self.path)
        os.replace(self.partial, self.path)
        return Store.open(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self.partial.exists():
            self.commit()


def checksum(path: Path) -> str:
    """SHA-256 of a file, in bounded memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"{folder.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed: "
            "free some, or choose another folder"
        )

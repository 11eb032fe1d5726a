"""Images and labels in memory-mapped files: the one form in which training sees data.

A store is a folder of `images.npy` (uint8, count x size x size x 3), `labels.npy` (int64, only where there are
labels) and `store.json` (class names, checksums, where it came from). It appears under its name only when it is complete.
"""

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

from adamatch.base import system
from adamatch.base.errors import InputError, shortened
from adamatch.base.files import checksum, read_json, sealed, sync, unsealed, write_atomically

VERSION = 1
HEAD = {"classes": list, "labelled": bool, "info": dict}  # what store.json has, and of which kind
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
        """Map a finished store. Its header and labels are checked; its images, which may be very many, by `whole`."""
        path = Path(path)
        head = _head(path)
        try:
            images = np.load(path / "images.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(path / "labels.npy", allow_pickle=False) if head["labelled"] else None
            _check(images, labels, len(head["classes"]))
            if labels is not None:
                _check_sum(path, head, "labels.npy")
        except Exception as error:  # NumPy raises errors of all kinds, when a header is damaged
            why = str(error).partition("\n")[0]
            raise InputError(f"{path} is damaged ({why}): delete it and prepare it again") from None
        return cls(images, labels, tuple(head["classes"]), head["info"])

    @classmethod
    def whole(cls, path: str | Path) -> Self:
        """Map a finished store of which every byte is as it was written; in one process each is read for that once."""
        path = Path(path)
        store = cls.open(path)
        state = (path / "images.npy").stat()
        seen = (path.absolute(), state.st_ino, state.st_size, state.st_mtime_ns)
        if seen not in _seen:
            try:
                _check_sum(path, _head(path), "images.npy")
            except ValueError as error:
                raise InputError(f"{path} is damaged ({error}): delete it and prepare it again") from None
            _seen.add(seen)
        return store


_seen: set[tuple[Path, int, int, int]] = set()  # images.npy whose checksum was right


def _head(path: Path) -> dict[str, Any]:
    """What store.json says, checked."""
    try:
        found = read_json(path / "store.json")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{path} is not a store: it has no store.json (make one with `adamatch data prepare`)"
        ) from None
    except ValueError:
        found = None
    if isinstance(found, dict) and found.keys() >= HEAD.keys() and found.get("version") != VERSION:
        version = shortened(found.get("version"))
        raise InputError(f"{path} was written by another version ({version}): delete it and prepare it again")
    try:
        head = unsealed(found)
        sound = all(type(head.get(name)) is kind for name, kind in HEAD.items())
    except ValueError:
        sound = False
    if not sound or not all(isinstance(name, str) for name in head["classes"]):
        raise InputError(f"{path}/store.json is damaged: delete {path} and prepare it again")
    return head


def _check(images: NDArray[Any], labels: NDArray[Any] | None, classes: int) -> None:
    """That these are a store's arrays."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != images.shape[2] or images.shape[3] != 3:
        raise ValueError(f"images are {images.shape} of {images.dtype}")
    if labels is None:
        return
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise ValueError(f"labels are {labels.shape} of {labels.dtype}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels are not those of {classes} classes")


def _check_sum(path: Path, head: Mapping[str, Any], name: str) -> None:
    sums = head.get("sha256")
    if not isinstance(sums, dict) or checksum(path / name) != sums.get(name):
        raise ValueError(f"{name} was changed since it was written")


KINDS: dict[str, type] = {"images": np.uint8, "done": np.uint8, "labels": np.int64}  # of the arrays that a writer fills


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
        shapes: dict[str, tuple[int, ...]] = {"images": (count, size, size, 3), "done": (count,)}
        shapes |= {"labels": (count,)} if labelled else {}
        if not (signature_file.is_file() and signature_file.read_bytes() == signature.encode() and self._sound(shapes)):
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir(parents=True)
            _require_space(self.partial, count * size * size * 3)
            for name, shape in shapes.items():
                self._new(name, shape, KINDS[name])
            signature_file.write_text(signature)  # last: its presence means that the arrays are there
        self.images: Pixels = self._opened("images")
        self.done: Pixels = self._opened("done")
        self.labels: Labels | None = self._opened("labels") if labelled else None

    def _sound(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether the arrays of a store that was begun are what they were made as."""
        try:
            found = {name: self._opened(name) for name in shapes}
        except Exception:  # NumPy raises errors of all kinds, where a file is damaged
            return False
        return all(found[name].shape == shape and found[name].dtype == KINDS[name] for name, shape in shapes.items())

    def _opened(self, name: str) -> Any:
        return np.load(self.partial / f"{name}.npy", mmap_mode="r+", allow_pickle=False)

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
        for name in names:
            sync(self.partial / name)
        self.head["info"] |= info
        self.head["sha256"] = {name: checksum(self.partial / name) for name in names}
        write_atomically(self.partial / "store.json", json.dumps(sealed(self.head), indent=1))
        del self.images, self.done, self.labels
        old = self.path.with_name(f".{self.path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.path.exists():
            os.replace(self.path, old)
        os.replace(self.partial, self.path)
        sync(self.path.parent)
        shutil.rmtree(old, ignore_errors=True)
        for leftover in ("done.npy", "plan.json"):  # last: until the store has its name, they let its making go on
            (self.path / leftover).unlink()
        return Store.open(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.partial.exists():
            self.commit()


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"{folder.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed: "
            "free some, or choose another folder"
        )

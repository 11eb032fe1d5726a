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
from adamatch.base.errors import InputError, shortened
from adamatch.base.files import SEAL, checksum, read_json, sealed, sync, unsealed, write_atomically
from adamatch.base.regular_files import mapped, read_own

VERSION = 1
Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Kinds = dict[str, tuple[tuple[int, ...], type]]  # shapes and types of arrays


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
        """Map a finished store. Its header and labels are compared with their checksums; its images by `whole`."""
        path = Path(path)
        head = _head(path)
        try:
            if head["labelled"]:
                _compare(path, head, "labels.npy")
            images = mapped(path / "images.npy")
            labels = np.array(mapped(path / "labels.npy")) if head["labelled"] else None
            if images.offset + images.nbytes != (path / "images.npy").stat().st_size:
                raise ValueError("images.npy has another size than it says")
            _, height, width, channels = images.shape
            if (height, channels, images.dtype) != (width, 3, np.uint8):
                raise ValueError(f"images.npy holds no images, but {images.shape} of {images.dtype}")
        except InputError:
            raise
        except Exception as error:  # NumPy raises errors of all kinds, when a header is damaged
            raise _damaged(path, str(error).partition("\n")[0]) from None
        return cls(images, labels, tuple(head["classes"]), head["info"])

    @classmethod
    def whole(cls, path: str | Path) -> Self:
        """Map a finished store of which every byte is as it was written: read for that once in a process."""
        path = Path(path)
        store = cls.open(path)
        state = (path / "images.npy").stat()
        seen = (path.absolute(), state.st_ino, state.st_size, state.st_mtime_ns)
        if seen not in _seen:
            _compare(path, _head(path), "images.npy")
            _seen.add(seen)
        return store


_seen: set[tuple[Path, int, int, int]] = set()  # images.npy whose checksum was right


def _head(path: Path) -> dict[str, Any]:
    """The content of store.json."""
    try:
        found = read_json(path / "store.json")
        head = unsealed(found)
        if SEAL not in found:
            raise ValueError("no checksum")
    except (FileNotFoundError, NotADirectoryError):
        remedy = "make one with `adamatch data prepare`"
        raise InputError(f"{path} is not a store: it has no store.json ({remedy})") from None
    except ValueError:
        raise InputError(f"{path}/store.json is damaged: delete {path} and prepare it again") from None
    if head.get("version") != VERSION:
        version = shortened(head.get("version"))
        raise InputError(f"{path} was written by another version ({version}): delete it and prepare it again")
    return head


def _compare(path: Path, head: Mapping[str, Any], name: str) -> None:
    if checksum(path / name) != head["sha256"][name]:
        raise _damaged(path, f"{name} was changed since it was written")


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged ({why}): delete it and prepare it again")


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
        self.head: dict[str, Any] = {"version": VERSION, "classes": list(classes), "labelled": labelled}
        self.head["info"] = dict(info or {})
        signature = json.dumps([count, size, self.head, plan], sort_keys=True, default=str)
        kinds: Kinds = {"images": ((count, size, size, 3), np.uint8), "done": ((count,), np.uint8)}
        kinds |= {"labels": ((count,), np.int64)} if labelled else {}
        if not self._is_begun(signature, kinds):
            self._begin(signature, kinds)
        self.images: Pixels = self._map("images")
        self.done: Pixels = self._map("done")
        self.labels: Labels | None = self._map("labels") if labelled else None

    def _is_begun(self, signature: str, kinds: Kinds) -> bool:
        """Whether there is a partial folder of this plan, with whole arrays."""
        try:
            if read_own(self.partial / "plan.json") != signature.encode():
                return False
            arrays = {name: self._map(name) for name in kinds}
        except Exception:  # it is not there, or damaged, where NumPy raises errors of all kinds
            return False
        return all((array.shape, array.dtype) == kinds[name] for name, array in arrays.items())

    def _begin(self, signature: str, kinds: Kinds) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(parents=True)
        free, needed = shutil.disk_usage(self.partial).free, int(np.prod(kinds["images"][0]))
        if free < needed:
            raise InputError(
                f"{self.path.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed: "
                "free some, or choose another folder"
            )
        for name, (shape, dtype) in kinds.items():
            path = self.partial / f"{name}.npy"
            np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()
            system.fill(path)
        (self.partial / "plan.json").write_text(signature)  # last: its presence means that the arrays are there

    def _map(self, name: str) -> Any:
        return mapped(self.partial / f"{name}.npy", "r+")

    def commit(self) -> Store:
        """Checksum, write the header and give the folder its final name."""
        if not self.done.all():
            raise InputError(f"{self.path} is not complete: {int((self.done == 0).sum())} images are missing")
        arrays = ("images", "labels") if self.head["labelled"] else ("images",)
        for name in arrays:
            getattr(self, name).flush()
            sync(self.partial / f"{name}.npy")
        del self.images, self.done, self.labels
        self.head["sha256"] = {f"{name}.npy": checksum(self.partial / f"{name}.npy") for name in arrays}
        write_atomically(self.partial / "store.json", json.dumps(sealed(self.head), indent=1))
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

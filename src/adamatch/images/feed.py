"""Batches of a pool on the training device: from its own memory, the host's, or the disk, where the pool fits."""

import copy
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adamatch.base import ranks, system
from adamatch.base.errors import unknown
from adamatch.images.sampler import IndexStream
from adamatch.images.tasks import Labelled, Unlabelled

Place = Literal["auto", "device", "host", "disk"]


class Feed:
    """`next()` gives images uint8 [batch, 3, size, size] and labels [batch, k] (None for an unlabelled pool).

    If the pool holds features of frozen layers, they are float16 [batch, views, h, w, C]. Each rank gets its own rows.

    `place` is where the images are: on the "device", in page-locked memory of the "host", or on "disk" (mapped files).
    From the latter two a thread gathers the next batch, and the copy to the device is asynchronous.
    """

    def __init__(
        self,
        pool: Labelled | Unlabelled,
        *,
        batch: int,
        classes: int,
        seed: int,
        device: torch.device,
        place: Place = "auto",
    ) -> None:
        if place not in get_args(Place):
            raise unknown("place", place, get_args(Place))
        self.device = device
        self.place = choose_place(pool, device) if place == "auto" else place
        near = device if self.place == "device" else torch.device("cpu")
        drawn = getattr(pool, "drawn", None)
        self.drawn = None if drawn is None else torch.from_numpy(drawn).to(near)
        self.stream = IndexStream(len(pool) if drawn is None else len(drawn), batch, seed, near)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable.*")  # pools are only read
            self.parts = [torch.from_numpy(part) for part in pool.parts]
        if self.place == "device":
            self.parts = [_gathered([part.to(device) for part in self.parts])]
        elif self.place == "host" and device.type == "cuda":
            self.parts = [_gathered(self.parts).pin_memory()]
        self.starts = np.cumsum([0, *(len(part) for part in self.parts)])
        labels = getattr(pool, "labels", None)
        self.classes = classes
        self.labels = None if labels is None else torch.from_numpy(labels).to(device)
        self.taken = 0  # how many batches were handed out: all that is needed to resume
        self._prefetched: Future[tuple[Tensor, Tensor]] | None = None
        self._thread = ThreadPoolExecutor(1) if self.place != "device" else None

    def another(self, *, batch: int, seed: int) -> Self:
        """Other batches of the same images, which are kept once."""
        other = copy.copy(self)
        other.stream = IndexStream(self.stream.n, batch, seed, self.stream.device)
        other.taken, other._prefetched, other._thread = 0, None, None if self._thread is None else ThreadPoolExecutor(1)
        return other

    def next(self) -> tuple[Tensor, Tensor | None]:
        if self._thread is None:
            index = self._rows()
            images = self.parts[0][index]
        else:
            job = self._prefetched or self._thread.submit(self._collect)
            images, index = job.result()
            self._prefetched = self._thread.submit(self._collect)
            images, index = images.to(self.device, non_blocking=True), index.to(self.device, non_blocking=True)
        self.taken += 1
        images = images.permute(0, 3, 1, 2) if images.ndim == 4 else images
        return images, None if self.labels is None else self._probabilities(self.labels[index])

    def _rows(self) -> Tensor:
        """This rank's rows of the next batch."""
        index = ranks.share(self.stream.next())
        return index if self.drawn is None else self.drawn[index]

    def _probabilities(self, labels: Tensor) -> Tensor:
        """Class indices [batch] or probabilities [batch, k] -> probabilities; per batch, for k may be large."""
        return F.one_hot(labels, self.classes).float() if labels.ndim == 1 else labels.float()

    def seek(self, taken: int) -> None:
        """Go on after so many batches."""
        if self._prefetched is not None:
            self._prefetched.result()
        self._prefetched, self.taken, self.stream.taken = None, taken, taken

    def _collect(self) -> tuple[Tensor, Tensor]:
        """Gather the next batch on the host."""
        index = self._rows()
        if len(self.parts) == 1:
            images = self.parts[0][index]
        else:
            rows = index.numpy()
            part = np.searchsorted(self.starts, rows, side="right") - 1
            images = torch.stack([self.parts[p][row - self.starts[p]] for p, row in zip(part, rows, strict=True)])
        if self.device.type == "cuda":
            images, index = images.pin_memory(), index.pin_memory()
        return images, index


def choose_place(pool: Labelled | Unlabelled, device: torch.device) -> Literal["device", "host", "disk"]:
    """On the device if it takes less than half of the free memory there, else likewise on the host, else on disk."""
    size = sum(part.nbytes for part in pool.parts)
    if device.type != "cuda":
        return "device" if size < free_host() / 2 else "disk"
    if size < torch.cuda.mem_get_info(device)[0] / 2:
        return "device"
    return "host" if size < free_host() / 2 else "disk"


def free_host() -> int:
    return system.free_memory() // ranks.on_this_machine()


def _gathered(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)

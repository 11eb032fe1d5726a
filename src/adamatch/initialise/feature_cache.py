"""Outputs of a network's frozen blocks for a problem's images, computed once: training then runs the blocks above them.

A few weak and a few strong views of every training image are made before the first step, from the run's seed: a resumed
run makes the same again, and its twin finds them cached. The first weak view is the image itself, for evaluations.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adamatch.augment.views import Views, normalise
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.images.feed import free_host
from adamatch.images.tasks import Problem, Unlabelled
from adamatch.networks.frozen import Lower, Upper
from adamatch.train.execution import Execution

BATCH = 8  # images at a time: with more, a CPU spends half of its time on memory
FULL = 0.7  # part of the free memory that the cache may take


class FeatureCache:
    """`cache(problem)`: the problem with float16 maps for images, [n, views, h, w, C], and [n, h, w, C] for tests."""

    def __init__(self, net: Upper, run: Run, execution: Execution) -> None:
        recipe, device = run.recipe, execution.machine.device
        self.count, self.size, self.seed, self.device = recipe.cached_views, recipe.size, run.seed, device
        self.made = execution.maps
        self.lower = Lower(net.net, net.frozen).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.views = Views(recipe.size, strong=recipe.strong, mirror=recipe.mirror).to(device)
        self.bar = execution.bar
        weights = b"".join(each.cpu().numpy().tobytes() for each in self.lower.state_dict().values())
        how = recipe.cached_views, recipe.size, recipe.strong, recipe.mirror, run.seed
        self.how = (hashlib.sha256(weights).digest(), *how)

    def __call__(self, problem: Problem, *, unlabelled: bool = True) -> Problem:
        """`unlabelled`: these images are trained on, in views; else evaluations alone need them."""
        pools: list[tuple[Sequence[Any], int]] = [(pool.parts, self.count) for pool in problem.labelled]
        pools.append((problem.unlabelled.parts, self.count if unlabelled else 0))
        pools += [((store.images,), 0) for store in problem.tests.values()]
        missing = [pool for number, pool in enumerate(pools) if self._cached(*pool, number) is None]
        total = sum(max(1, 2 * count) * len(part) for parts, count in missing for part in parts)
        self._check_room(total)
        with self.bar("preparing augmented images", total) as self.advance:
            maps = iter([self._maps(parts, count, number) for number, (parts, count) in enumerate(pools)])
        return replace(
            problem,
            labelled=tuple(replace(pool, parts=(next(maps),)) for pool in problem.labelled),
            unlabelled=Unlabelled((next(maps),)),
            tests={name: replace(store, images=next(maps)[:, 0]) for name, store in problem.tests.items()},
        )

    def _cached(self, parts: Sequence[Any], count: int, number: int) -> NDArray[Any] | None:
        """Maps of the same images that an earlier training made in the same way."""
        _, maps = self.made.get(self._key(parts, number), (None, np.empty((0, 0))))
        many = max(1, 2 * count)
        return maps[:, :many] if maps.shape[1] >= many else None

    def _key(self, parts: Sequence[Any], number: int) -> tuple[object, ...]:
        return number, *map(id, parts), self.how

    @torch.inference_mode()
    def _maps(self, parts: Sequence[Any], count: int, number: int) -> NDArray[Any]:
        """`count` weak and as many strong views of each image, or the image alone, through the frozen blocks."""
        if (cached := self._cached(parts, count, number)) is not None:
            return cached
        generator = torch.Generator().manual_seed(self.seed * 10 + number)
        maps = np.empty((sum(map(len, parts)), max(1, 2 * count), *self._shape()), np.float16)
        done = 0
        for part in parts:
            for start in range(0, len(part), BATCH):
                x = torch.from_numpy(np.array(part[start : start + BATCH])).to(self.device).permute(0, 3, 1, 2)
                for place, view in self._views_of(x, count, generator):
                    maps[done : done + len(x), place] = self._through(view).cpu().numpy()
                    self.advance(len(x))
                done += len(x)
        self.made[self._key(parts, number)] = parts, maps  # parts as well, so that no others get their ids
        return maps

    def _views_of(self, x: Tensor, count: int, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
        """Views of images uint8 [B, 3, H, W], with their places: first the weak ones, then the strong ones."""
        yield 0, normalise(x)
        for number in range(count):
            weak, strong = self.views(x, torch.rand(len(x), self.views.draws, generator=generator).to(self.device))
            if number > 0:
                yield number, weak
            yield count + number, strong

    def _through(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> float16 [B, h, w, C]."""
        y: Tensor = self.lower(x.contiguous(memory_format=torch.channels_last))
        return y.permute(0, 2, 3, 1).half()

    @torch.inference_mode()
    def _shape(self) -> tuple[int, ...]:
        """h, w, C of one map."""
        return tuple(self._through(torch.zeros(1, 3, self.size, self.size, device=self.device)).shape[1:])

    def _check_room(self, total: int) -> None:
        needed, free = total * int(np.prod(self._shape())) * 2, free_host()
        if needed > FULL * free:
            sizes = f"{needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are free"
            raise InputError(
                f"{total:,} views of the images take {sizes}: choose a smaller {argument('size')}, give fewer images, "
                f"or {argument('frozen', 0)} to train the whole network from the images"
            )

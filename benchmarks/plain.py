"""AdaMatch as it is usually written: a DataLoader whose workers augment with Pillow, float32, no compilation."""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from adamatch import nets
from adamatch.augment.ops import OPS
from adamatch.data.tasks import Problem
from adamatch.evaluate import Evaluation
from adamatch.methods import AdaMatch
from adamatch.methods.parts import Batch, Metrics
from adamatch.nets import WeightAverage, fused
from adamatch.train.optim import learning_rate
from adamatch.train.run import Recipe
from adamatch.train.speed import Machine

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from reference import pillow_ops  # the operations that the device's are tested against

CLASSES = 10
EVALUATIONS = 20  # of a curve
Row = dict[str, float]  # of a curve, named as in the metrics of a run


class Pairs(Dataset[tuple[Tensor, Tensor, int]]):
    """A weak and a strong view of each image, made one image at a time.

    Strong: two of CTAugment's operations at random levels, which are not learned, then cutout; or cutout alone.
    """

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], recipe: Recipe) -> None:
        self.images, self.labels, self.mirror = images, labels, recipe.mirror
        self.depth = 0 if recipe.strong == "cutout" else 2

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        weak, strong = _shift(self.images[index], self.mirror), _shift(self.images[index], self.mirror)
        for _ in range(self.depth):
            place = (random.random(), random.random())
            strong = pillow_ops.apply(strong, random.choice(OPS), random.random(), random.random(), place)
        hole = np.array(strong)
        side = len(hole)
        y, x = random.randrange(side), random.randrange(side)
        hole[max(0, y - side // 4) : y + side // 4, max(0, x - side // 4) : x + side // 4] = 127
        return _tensor(weak), _tensor(hole), int(self.labels[index])


def _shift(image: NDArray[np.uint8], mirror: bool) -> NDArray[np.uint8]:
    side, pad = len(image), len(image) // 8
    wide = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    y, x = random.randrange(2 * pad + 1), random.randrange(2 * pad + 1)
    crop = wide[y : y + side, x : x + side]
    return np.ascontiguousarray(crop[:, ::-1] if mirror and random.random() < 0.5 else crop)


def _tensor(image: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy((image.astype(np.float32) - 127.5) / 128).permute(2, 0, 1).contiguous()


def endless(loader: DataLoader[Any]) -> Any:
    while True:
        yield from loader


class Plain:
    """AdaMatch's training step, and the loaders that feed it."""

    def __init__(
        self, net: nn.Module, labelled: Pairs, unlabelled: Pairs, recipe: Recipe, device: torch.device, workers: int
    ) -> None:
        self.recipe, batch, uratio = recipe, recipe.batch, recipe.uratio
        common: dict[str, Any] = {"shuffle": True, "drop_last": True, "pin_memory": device.type == "cuda"}
        few = max(1, workers // 4)
        self.labelled = endless(DataLoader(labelled, batch, num_workers=few, persistent_workers=True, **common))
        self.unlabelled = endless(
            DataLoader(unlabelled, batch * uratio, num_workers=workers, persistent_workers=True, **common)
        )
        self.net, self.device = net.to(device).train(), device
        net.takes_groups = False  # type: ignore[assignment]  # two forwards, as everybody writes them
        fused.use(net, False)
        self.method = AdaMatch(CLASSES, tau=self.recipe.tau, release=self.recipe.release).to(device)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1 - recipe.average
        self.average = WeightAverage(net, self.recipe.average)
        self.optimiser = torch.optim.SGD(
            net.parameters(), lr=self.recipe.lr, momentum=self.recipe.momentum, weight_decay=self.recipe.weight_decay
        )

    def step(self, progress: float) -> Metrics:
        x_sl_w, x_sl_s, y = next(self.labelled)
        x_tu_w, x_tu_s, _ = next(self.unlabelled)
        lam = torch.rand(2 * len(y), CLASSES)
        tensors = (x_sl_w, x_sl_s, torch.eye(CLASSES)[y], x_tu_w, x_tu_s, torch.tensor(progress), lam)
        loss, metrics = self.method.loss(self.net, Batch(*(tensor.to(self.device, non_blocking=True) for tensor in tensors)))
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.recipe.lr, self.recipe.lr_end, progress)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.average.update(self.net)
        return metrics


def step_time(net: nn.Module, size: int, *, device: torch.device, batch: int, uratio: int, workers: int, steps: int) -> float:
    """Seconds per step, data loading included, after a few steps to warm up."""
    rng = np.random.default_rng(0)
    count = batch * uratio * 8
    recipe = Recipe(network="", size=size, images=10**9, weight_decay=5e-4, batch=batch, uratio=uratio)
    data = Pairs(rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8), rng.integers(0, CLASSES, count), recipe)
    plain = Plain(net, data, data, recipe, device, workers)
    for _ in range(5):
        plain.step(0.5)
    _wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        plain.step(0.5)
    _wait(device)
    return (time.perf_counter() - began) / steps


def train(recipe: Recipe, problem: Problem, evaluate: Evaluation, machine: Machine, seconds: float, workers: int) -> list[Row]:
    """Train for so many seconds of a run, as far as it gets; measured on the way, evaluations not counted."""
    pool, target = problem.labelled[0], np.concatenate([np.asarray(part) for part in problem.unlabelled.parts])
    labels = pool.labels.astype(np.int64)
    labelled = Pairs(np.concatenate([np.asarray(part) for part in pool.parts]), labels, recipe)
    unlabelled = Pairs(target, np.zeros(len(target), dtype=np.int64), recipe)
    plain = Plain(nets.build(recipe.network, CLASSES), labelled, unlabelled, recipe, machine.device, workers)
    curve: list[Row] = []
    spent, began = 0.0, time.perf_counter()
    for done in range(recipe.steps):
        metrics = plain.step(done / recipe.steps)
        now = spent + time.perf_counter() - began
        if now > seconds or now > (len(curve) + 1) * seconds / EVALUATIONS or done + 1 == recipe.steps:
            _wait(machine.device)
            spent += time.perf_counter() - began
            measured = {name: float(value) for name, value in metrics.items() if value.ndim == 0}
            curve.append({"step": done + 1, "seconds": spent, **measured, **evaluate(plain.average)})
            began = time.perf_counter()
            if spent > seconds:
                break
    return curve


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()

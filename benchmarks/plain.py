"""AdaMatch as it is usually written: a DataLoader whose workers augment with Pillow, float32, no compilation."""

import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from adamatch import networks
from adamatch.augment.ops import OPS
from adamatch.config.recipe import Recipe
from adamatch.evaluate import Evaluation
from adamatch.images.tasks import Problem
from adamatch.kernels import runtime
from adamatch.methods import AdaMatch
from adamatch.methods.contract import Batch, Metrics
from adamatch.networks import WeightAverage
from adamatch.train.optim import decay_weights, learning_rate
from adamatch.train.speed import Machine

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from reference import ctaugment, pillow_ops  # what the operations and rates on the device are tested against

CLASSES = 10
DEPTH = 2  # operations of a strong view
Row = dict[str, float]  # of a curve, named as in the metrics of a run
Chain = list[tuple[str, tuple[float, float]]]  # operations and their levels
Item = tuple[Tensor, Tensor, int, Tensor, Tensor]  # weak and strong view, label, probe and what was done to it


class Rates:
    """CTAugment's rates, in memory that the loaders' workers share."""

    def __init__(self) -> None:
        rates = ctaugment.Rates(OPS).rates
        self.shared = {name: [torch.from_numpy(each) for each in rates[name]] for name in OPS}
        for tensor in itertools.chain.from_iterable(self.shared.values()):
            tensor.share_memory_()  # type: ignore[no-untyped-call]

    def now(self) -> ctaugment.Rates:
        rates = ctaugment.Rates(OPS)
        rates.rates = {name: [each.numpy() for each in tensors] for name, tensors in self.shared.items()}
        return rates

    def chain(self) -> Chain:
        """Operations uniformly, their levels by what was learned."""
        rates, chain = self.now(), []
        for name in random.choices(OPS, k=DEPTH):
            level = [random.random(), random.random()]
            for parameter, _ in enumerate(rates.rates[name]):
                likely = rates.probabilities(name, parameter).tolist()
                level[parameter] = (random.choices(range(len(likely)), likely)[0] + level[parameter]) / len(likely)
            chain.append((name, (level[0], level[1])))
        return chain

    def learn(self, chains: Tensor, proximity: Tensor) -> None:
        """From probes: what was done to each, and how well it was recognised."""
        rates = self.now()
        for chain, value in zip(chains.tolist(), proximity.tolist(), strict=True):
            rates.update([(OPS[int(op)], (level, level2)) for op, level, level2 in chain], value)


class Pairs(Dataset[Item]):
    """A weak and a strong view of each image, made one image at a time; if `probes`, a probe for CTAugment as well."""

    def __init__(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64], rates: Rates | None, *, mirror: bool, probes: bool
    ) -> None:
        self.images, self.labels, self.rates, self.mirror, self.probes = images, labels, rates, mirror, probes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Item:
        image = self.images[index]
        strong = _shift(image, self.mirror)
        if self.rates is not None:
            strong = _apply(strong, self.rates.chain())
        probe, done = torch.empty(0), torch.empty(0)
        if self.probes:
            chain: Chain = [(name, (random.random(), random.random())) for name in random.choices(OPS, k=DEPTH)]
            probe = _tensor(_apply(_shift(image, self.mirror), chain))
            done = torch.tensor([[OPS.index(name), *levels] for name, levels in chain], dtype=torch.float64)
        return _tensor(_shift(image, self.mirror)), _tensor(_cutout(strong)), int(self.labels[index]), probe, done


def _apply(image: NDArray[np.uint8], chain: Chain) -> NDArray[np.uint8]:
    for name, (level, level2) in chain:
        image = pillow_ops.apply(image, name, level, level2, (random.random(), random.random()))
    return image


def _cutout(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    image, side = image.copy(), len(image)
    y, x = random.randrange(side), random.randrange(side)
    image[max(0, y - side // 4) : y + side // 4, max(0, x - side // 4) : x + side // 4] = 127
    return image


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
    """AdaMatch's training step with CTAugment (or cutout alone), and the loaders that feed it."""

    def __init__(
        self,
        net: nn.Module,
        recipe: Recipe,
        labelled: tuple[NDArray[np.uint8], NDArray[np.int64]],
        unlabelled: NDArray[np.uint8],
        device: torch.device,
        workers: int,
    ) -> None:
        self.recipe, batch = recipe, recipe.batch
        self.rates = Rates() if recipe.strong == "cta" else None
        nothing = np.zeros(len(unlabelled), dtype=np.int64)
        source = Pairs(*labelled, self.rates, mirror=recipe.mirror, probes=self.rates is not None)
        target = Pairs(unlabelled, nothing, self.rates, mirror=recipe.mirror, probes=False)
        common: dict[str, Any] = {"shuffle": True, "drop_last": True, "persistent_workers": True}
        common["pin_memory"] = device.type == "cuda"
        self.labelled = endless(DataLoader(source, batch, num_workers=max(1, workers // 4), **common))
        self.unlabelled = endless(DataLoader(target, batch * recipe.uratio, num_workers=workers, **common))
        self.net, self.device = net.to(device).train(), device
        net.takes_groups = False  # type: ignore[assignment]  # two forwards, as everybody writes them
        runtime.use(net, False)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1 - recipe.ema_decay
        self.method = AdaMatch(CLASSES, tau=recipe.tau, fade_out=recipe.fade_out).to(device)
        self.average = WeightAverage(net, recipe.ema_decay)
        groups = decay_weights(list(net.parameters()), recipe.weight_decay)
        self.optimiser = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)

    def step(self, progress: float) -> Metrics:
        x_sl_w, x_sl_s, labels, probes, chains = next(self.labelled)
        x_tu_w, x_tu_s, *_ = next(self.unlabelled)
        y_sl, lam = torch.eye(CLASSES)[labels], torch.rand(2 * len(labels), CLASSES)
        tensors = (x_sl_w, x_sl_s, y_sl, x_tu_w, x_tu_s, torch.tensor(progress), lam)
        loss, metrics = self.method.loss(
            self.net, Batch(*(tensor.to(self.device, non_blocking=True) for tensor in tensors))
        )
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.recipe.lr, self.recipe.lr_end, progress)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.average.update(self.net)
        if self.rates is not None:
            with torch.no_grad():
                predicted = self.average(probes.to(self.device)).softmax(1).cpu()
            self.rates.learn(chains, 1 - 0.5 * (predicted - y_sl).abs().sum(1))
        return metrics


def step_time(net: nn.Module, size: int, *, device: torch.device, batch: int, workers: int, steps: int) -> float:
    """Seconds per step, data loading included, after a few steps to warm up."""
    rng = np.random.default_rng(0)
    recipe = Recipe(network="", size=size, images=10**9, weight_decay=5e-4, batch=batch)
    count = batch * recipe.uratio * 8
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    plain = Plain(net, recipe, (images, rng.integers(0, CLASSES, count)), images, device, workers)
    for _ in range(5):
        plain.step(0.5)
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        plain.step(0.5)
    wait(device)
    return (time.perf_counter() - began) / steps


def train(
    recipe: Recipe, problem: Problem, evaluate: Evaluation, machine: Machine, seconds: float, workers: int
) -> Iterator[Row]:
    """Train for a run's steps, or so many seconds; a row at each of a run's evaluations, whose time is not counted."""
    pool = problem.labelled[0]
    labelled = (np.concatenate([np.asarray(part) for part in pool.parts]), pool.labels.astype(np.int64))
    unlabelled = np.concatenate([np.asarray(part) for part in problem.unlabelled.parts])
    plain = Plain(networks.build(recipe.network, CLASSES), recipe, labelled, unlabelled, machine.device, workers)
    spent, began = 0.0, time.perf_counter()
    for done in range(1, recipe.steps + 1):
        metrics = plain.step((done - 1) / recipe.steps)
        if done % recipe.evaluate_every == 0 or done == recipe.steps:
            wait(machine.device)
            spent += time.perf_counter() - began
            measured = {name: float(value) for name, value in metrics.items() if value.ndim == 0}
            yield {"step": done, "seconds": spent, **measured, **evaluate(plain.average)}
            if spent > seconds:
                break
            began = time.perf_counter()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()

"""A trainer that shares no code with the package: one process, float64, image by image where that is plainest.

It takes a run's settings as plain values, the initial weights and, step by step, the sampled images. Views, losses,
optimiser, schedules, averages, probes and CTAugment's rates are its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from reference import ctaugment, plain_losses, plain_views
from reference.pillow_ops import Picture
from reference.plain_losses import Memory, Shown
from reference.plain_net import Net, Values
from torch import Tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    method: str
    classes: int
    steps: int  # of the schedules
    batch: int
    lr: float
    lr_end: float
    momentum: float
    weight_decay: float
    average: float
    tau: float
    strong: str
    mirror: bool
    release: bool
    seed: int


class Drawn(NamedTuple):
    """What the sampler handed out for a step: pictures (n, side, side, 3), and probabilities (n, k) as labels."""

    labelled: Picture
    labels: Floats
    unlabelled: Picture
    probes: Picture
    probe_labels: Floats


class Update(NamedTuple):
    """One of a step's updates: its loss, and the names of what follows it."""

    loss: Callable[[Net, Shown], Tensor]
    trained: list[str]


class Trainer:
    """`weights` (MCD's other head is "second"), `running` statistics, averages, momenta, rates, class averages."""

    def __init__(self, settings: Settings, weights: Values, running: Values) -> None:
        self.settings = settings
        self.weights = {name: value.clone().requires_grad_() for name, value in weights.items()}
        self.running = {name: value.clone() for name, value in running.items()}
        kept = {name: value for name, value in weights.items() if not name.startswith("second.")}
        self.averaged = {name: value.clone() for name, value in (kept | running).items()}
        self.momenta: list[Values] = [{}, {}, {}]  # one for each update of a step
        self.memory = Memory.even(settings.classes)
        self.rates = ctaugment.Rates(plain_views.OPERATIONS) if settings.strong == "cta" else None
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.done = 0

    def step(self, drawn: Drawn) -> Shown:
        """One step; what its losses were shown."""
        given, count = self.settings, len(drawn.labelled) + len(drawn.unlabelled)
        u = self.uniforms(count + len(drawn.probes), plain_views.draws(given.strong)).numpy()
        lam = self.uniforms(2 * len(drawn.labelled), given.classes)
        shown = self.show(drawn, u[:count], lam)
        net = Net(self.weights, self.running, 1 - given.average)
        for number, update in enumerate(self.updates()):
            self.follow(update.loss(net, shown), update.trained, number)
        for name, average in self.averaged.items():
            now = (self.weights | self.running)[name].detach()
            self.averaged[name] = given.average * average + (1 - given.average) * now
        if self.rates is not None:
            self.learn(drawn.probes, drawn.probe_labels, u[count:])
        self.done += 1
        return shown

    def uniforms(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    @property
    def progress(self) -> float:
        return self.done / self.settings.steps

    def show(self, drawn: Drawn, u: Floats, lam: Tensor) -> Shown:
        """The views of the step: the first rows of u are the labelled images'."""
        weak, strong = [], []
        for image, row in zip([*drawn.labelled, *drawn.unlabelled], u, strict=True):
            views = plain_views.views(image, row, self.rates, self.settings.mirror)
            weak.append(torch.from_numpy(views[0]))
            strong.append(torch.from_numpy(views[1]))
        x_w, x_s, n_sl = torch.stack(weak), torch.stack(strong), len(drawn.labelled)
        labels = torch.from_numpy(drawn.labels)
        return Shown(x_w[:n_sl], x_s[:n_sl], labels, x_w[n_sl:], x_s[n_sl:], self.progress, lam)

    def updates(self) -> list[Update]:
        given, everything = self.settings, list(self.weights)
        heads = [name for name in everything if name.startswith(("head.", "second."))]
        features = [name for name in everything if name not in heads]
        match given.method:
            case "adamatch":
                return [Update(self.adamatch, everything)]
            case "fixmatch+":
                return [
                    Update(lambda net, shown: plain_losses.fixmatch(net, shown, self.memory, tau=given.tau), everything)
                ]
            case "mcd":
                return [
                    Update(plain_losses.classify, everything),
                    Update(plain_losses.disagree, heads),
                    Update(plain_losses.agree, features),
                ]
            case "baseline_bn":
                return [Update(plain_losses.baseline_bn, everything)]
        return [Update(plain_losses.supervised, everything)]

    def adamatch(self, net: Net, shown: Shown) -> Tensor:
        given = self.settings
        return plain_losses.adamatch(net, shown, self.memory, tau=given.tau, batch=given.batch, release=given.release)

    def follow(self, loss: Tensor, trained: list[str], number: int) -> None:
        """SGD with momentum; L2 on the weights of convolutions and linear layers, none in MCD."""
        given, momenta = self.settings, self.momenta[number]
        lr = given.lr * math.cos(math.acos(given.lr_end) * self.progress)
        gradients = torch.autograd.grad(loss, [self.weights[name] for name in trained], materialize_grads=True)
        with torch.no_grad():
            for name, gradient in zip(trained, gradients, strict=True):
                decayed = name.endswith(".weight") and "norm" not in name and given.method != "mcd"
                force = gradient + given.weight_decay * self.weights[name] if decayed else gradient
                momenta[name] = given.momentum * momenta[name] + force if name in momenta else force
                self.weights[name] -= lr * momenta[name]

    def learn(self, probes: Picture, labels: Floats, u: Floats) -> None:
        """CTAugment: how much of its label each probe still gets from the averaged network, as the step left it."""
        assert self.rates is not None
        views = [plain_views.probe(image, row, self.settings.mirror) for image, row in zip(probes, u, strict=True)]
        guesses = self.predict(torch.from_numpy(np.stack([seen for seen, _ in views])))
        for (_, chain), guess, label in zip(views, guesses, labels, strict=True):
            self.rates.update(chain, 1 - 0.5 * float(np.abs(guess - label).sum()))

    def predict(self, x: Tensor) -> Floats:
        """Probabilities, of the averaged network with the averaged statistics."""
        with torch.no_grad():
            return plain_losses.probabilities(Net(self.averaged, self.averaged, 0.0).logits(x, training=False)).numpy()

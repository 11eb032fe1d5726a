"""Pre-training without labels: the network learns which views are of one image (SimCLR, Chen et al., ICML 2020).

Labels can then be propagated along its features, where few images have one and there are no pretrained weights.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample, normalize

from adamatch.augment.views import normalise
from adamatch.base import ranks
from adamatch.base.errors import InputError, Interruption
from adamatch.base.files import make_folder
from adamatch.config.run import Run
from adamatch.images.feed import Feed
from adamatch.images.tasks import Unlabelled
from adamatch.methods import parts
from adamatch.train import checkpoint
from adamatch.train.execution import Execution, stop_agreed, stop_signals
from adamatch.train.optim import decay_weights, optimiser_state
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured, Machine

TIMES = 4  # images of a batch, for each labelled one of a later step
LR, RISE, WEIGHT_DECAY = 2e-3, 0.1, 1e-4  # of AdamW; the learning rate rises over a tenth of the steps, and falls to 0
TEMPERATURE = 0.2
WIDE, NARROW = 256, 64  # outputs of the projection's layers
SMALLEST = 0.5  # part of an image's area in a crop
GREY, INVERTED = 0.3, 0.5  # how often a view is
DRAWS = 11  # random numbers of a view
FOLDER = "without-labels"  # of its checkpoints, among the run's
ADAMW = ("step", "exp_avg", "exp_avg_sq")  # its state


class Pair(NamedTuple):
    """What changes from step to step."""

    x: Tensor  # uint8 [n, 3, h, w]
    u: Tensor  # [2 * n, DRAWS]: uniforms for two views of each
    lr: Tensor  # []


class Contrast:
    """One step: two views of each image are told from all others. `net` has `features` and a `head`."""

    def __init__(self, net: Any, machine: Machine) -> None:
        device, width = machine.device, net.head.in_features
        self.net = net.to(device, memory_format=torch.channels_last).train()
        self.projection = nn.Sequential(nn.Linear(width, WIDE), nn.ReLU(), nn.Linear(WIDE, NARROW)).to(device)
        heads = {id(parameter) for parameter in net.head.parameters()}
        self.trained = [each for each in (*net.parameters(), *self.projection.parameters()) if id(each) not in heads]
        self.machine, self.lr = machine, torch.zeros((), device=device)
        groups = [{**group, "lr": self.lr} for group in decay_weights(self.trained, WEIGHT_DECAY)]
        self.optimiser = torch.optim.AdamW(groups, capturable=device.type == "cuda")

    def __call__(self, pair: Pair) -> None:
        self.lr.copy_(pair.lr)
        x = normalise(pair.x).repeat(2, 1, 1, 1)
        both = view(x, pair.u).to(self.machine.device).contiguous(memory_format=torch.channels_last)
        with self.machine.autocast():
            z = self.projection(self.net.features(both))
            loss = contrast(torch.cat([ranks.gathered(half) for half in z.chunk(2)]))  # with the images of all ranks
        gradients = ranks.averaged(torch.autograd.grad(loss, self.trained))
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            parameter.grad = gradient
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on."""
        parts = {"net": self.net, "projection": self.projection}
        tensors = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
        for number, parameter in enumerate(self.trained):
            tensors |= {f"{key}.{number}": value for key, value in self.optimiser.state[parameter].items()}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, part in (("net", self.net), ("projection", self.projection)):
            part.load_state_dict({key: tensors[f"{name}.{key}"] for key in part.state_dict()})
        for number, parameter in enumerate(self.trained):
            saved = {key: optimiser_state(parameter, tensors[f"{key}.{number}"]) for key in ADAMW}
            self.optimiser.state[parameter].update(saved)


def pretrain(net: nn.Module, unlabelled: Unlabelled, run: Run, folder: RunFolder, execution: Execution) -> None:
    """Train all but the head, on as many images as the recipe says."""
    if not (hasattr(net, "features") and hasattr(net, "head")):
        raise InputError(f"{type(net).__name__} has no features and head of its own: leave simclr_images at 0")
    machine, seed = execution.machine, run.seed
    batch = max(2 * ranks.count(), min(TIMES * run.recipe.batch, len(unlabelled)) // ranks.count() * ranks.count())
    feed = Feed(unlabelled, batch=batch, classes=1, seed=seed, device=machine.images, place=execution.place)
    generator = torch.Generator(machine.images).manual_seed(seed)
    step, steps = Contrast(net, machine), max(1, run.recipe.simclr_images // batch)
    facts, checkpoints = {"steps": steps, "batch": batch, "ranks": ranks.count()}, folder.checkpoints / FOLDER
    start = 0

    found = ranks.from_first(lambda: checkpoint.load(checkpoints, execution.warn))
    if found is not None and facts.items() <= found[1].items():
        tensors, start = found[0], int(found[1]["step"])
        step.restore(tensors)
        feed.seek(start)
        if len(tensors["generator"]) == len(generator.get_state()):  # else another kind of device's
            generator.set_state(tensors["generator"])
        checkpoint.set_randoms(tensors, machine.device)
        execution.say(f"resuming from step {start} of {steps} without labels")

    def save(done: int) -> None:
        if ranks.rank() == 0:  # all ranks have the same state
            folder.check()
            make_folder(folder.checkpoints)
            tensors = step.state() | checkpoint.randoms(machine.device) | {"generator": generator.get_state()}
            checkpoint.save(checkpoints, done, tensors, facts)

    captured, last_saved = Captured(step, machine), time.monotonic()
    with execution.bar("pre-training without labels", steps) as advance, stop_signals() as signals:
        advance.at(start, steps)
        advance.restart()
        for done in range(start + 1, steps + 1):
            u = torch.rand(2 * batch, DRAWS, generator=generator, device=machine.images)
            lr = torch.full((), learning_rate((done - 1) / steps), device=machine.images)
            captured(Pair(feed.next()[0], ranks.share(u), lr))
            advance(1)
            stop = stop_agreed(signals, done, done == steps)
            if stop or time.monotonic() - last_saved > execution.seconds_per_checkpoint:  # by each rank's own clock
                save(done)
                last_saved = time.monotonic()
            if stop:
                line = f"stopped at step {done} of {steps} without labels, all of it saved in {folder.path}"
                raise Interruption(line)


def learning_rate(progress: float) -> float:
    return LR * min(1.0, progress / RISE) * math.cos(math.pi / 2 * progress)


def contrast(z: Tensor) -> Tensor:
    """NT-Xent of z [2n, d]: rows i and n + i are of one image."""
    z = normalize(parts.precise(z))
    similarity = z @ z.T / TEMPERATURE
    similarity = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), -math.inf)
    return cross_entropy(similarity, torch.arange(len(z), device=z.device).roll(len(z) // 2))


def view(x: Tensor, u: Tensor) -> Tensor:
    """A crop of each image [n, 3, h, w] in other colours."""
    scale = (SMALLEST + (1 - SMALLEST) * u[:, 0]).sqrt()
    place = torch.zeros(len(x), 2, 3, device=x.device, dtype=x.dtype)
    place[:, 0, 0] = place[:, 1, 1] = scale
    place[:, :, 2] = (1 - scale)[:, None] * (2 * u[:, 1:3] - 1)
    x = grid_sample(
        x, affine_grid(place, list(x.shape), align_corners=False), padding_mode="reflection", align_corners=False
    )
    gain, shift, grey, sign = (each[..., None, None] for each in torch.split(u[:, 3:], [3, 3, 1, 1], 1))
    x = torch.where(grey < GREY, x.mean(1, keepdim=True), x)
    return torch.where(sign < INVERTED, -x, x) * (0.5 + gain) + 0.6 * (shift - 0.5)

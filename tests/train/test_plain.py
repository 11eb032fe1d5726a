"""The plain implementation that speed is measured against does what the package does, step for step."""

import copy

import numpy as np
import plain
import torch
from train import tiny

from adamatch import networks
from adamatch.config.recipe import Recipe
from adamatch.methods import AdaMatch
from adamatch.methods.contract import Batch
from adamatch.train.optim import learning_rate
from adamatch.train.speed import Inputs
from adamatch.train.step import Step

# Strong enough that decay, momenta and averages all show within a few steps.
RECIPE = Recipe(
    network="wrn-tiny", size=8, images=1000, weight_decay=0.5, batch=4, uratio=2, lr=0.1, ema_decay=0.9, strong="cutout"
)
NOTHING = torch.empty(0)


def batch_of(step: int) -> Batch:
    torch.manual_seed(step)
    n, n_tu = RECIPE.batch, RECIPE.batch * RECIPE.uratio
    images = [torch.randn(count, 3, 8, 8) for count in (n, n, n_tu, n_tu)]
    labels = torch.eye(plain.CLASSES)[torch.arange(n) + step]
    torch.manual_seed(step)  # as the plain step finds it when it draws
    lam = torch.rand(2 * n, plain.CLASSES)
    return Batch(images[0], images[1], labels, images[2], images[3], torch.tensor(step / 10), lam)


def test_plain_steps_are_the_packages() -> None:
    torch.manual_seed(0)
    net = networks.build(RECIPE.network, plain.CLASSES)
    images = np.zeros((32, 8, 8, 3), dtype=np.uint8)
    ours = Step(copy.deepcopy(net), AdaMatch(plain.CLASSES), RECIPE, tiny.CPU, print)
    theirs = plain.Plain(net, RECIPE, (images, np.zeros(32, dtype=np.int64)), images, torch.device("cpu"), workers=1)
    for step in range(5):
        batch = batch_of(step)
        theirs.labelled = iter([(batch.x_sl_w, batch.x_sl_s, batch.y_sl.argmax(1), NOTHING, NOTHING)])
        theirs.unlabelled = iter([(batch.x_tu_w, batch.x_tu_s, NOTHING, NOTHING, NOTHING)])
        torch.manual_seed(step)
        theirs.step(step / 10)
        ours._view = lambda *_, made=batch: made
        lr = torch.tensor(learning_rate(RECIPE.lr, RECIPE.lr_end, step / 10))
        ours(Inputs(NOTHING, batch.y_sl, NOTHING, NOTHING, NOTHING, NOTHING, batch.lam, batch.progress, lr, NOTHING))
    torch.testing.assert_close(theirs.average.state_dict(), ours.average.state_dict(), rtol=1e-4, atol=1e-5)

"""Few labels and no source: does a contrastive beginning (SimCLR, Chen et al., ICML 2020) help AdaMatch on SVHN?

    python benchmarks/contrastive.py --data DIR --labels 5 --runs runs/contrastive --out results/contrastive.json

First the network learns, from unlabelled images alone, to tell two views of one image from all other images. Then the run of
`--budget fast` begins with these weights and a head fitted to neighbours' labels. What is printed on the way is how many test
images neighbours' labels have right. A study: it reads test labels.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample, normalize

from adamatch import experiment, nets
from adamatch.augment.views import normalise
from adamatch.data.tasks import Problem
from adamatch.train import head, neighbours, speed
from adamatch.train.execution import Execution
from adamatch.train.folder import RunFolder
from adamatch.train.run import Run

BATCH = 512  # images, of each two views
LOOKS = 5  # times that neighbours' labels are looked at on the way
TESTED = 4000  # test images that are looked at then


@dataclass(frozen=True)
class How:
    """Of the contrastive beginning."""

    images: int = 1_000_000
    lr: float = 2e-3
    temperature: float = 0.2
    least: float = 0.5  # of an image that a crop has
    inverted: float = 0.5  # how often colours are inverted


def view(x: Tensor, how: How) -> Tensor:
    """A crop of each image [B, 3, H, W] in other colours."""
    n, device = len(x), x.device
    scale = (how.least + (1 - how.least) * torch.rand(n, device=device)).sqrt()
    place = torch.zeros(n, 2, 3, device=device)
    place[:, 0, 0] = place[:, 1, 1] = scale
    place[:, :, 2] = (1 - scale)[:, None] * (2 * torch.rand(n, 2, device=device) - 1)
    x = grid_sample(x, affine_grid(place, list(x.shape), align_corners=False), padding_mode="reflection", align_corners=False)
    gain, shift = (torch.rand(n, 3, 1, 1, device=device) for _ in range(2))
    grey = x.mean(1, keepdim=True).expand_as(x)
    x = torch.where(torch.rand(n, 1, 1, 1, device=device) < 0.3, grey, x)
    sign = 1 - 2 * (torch.rand(n, 1, 1, 1, device=device) < how.inverted).float()
    return sign * x * (0.5 + gain) + 0.6 * (shift - 0.5)


def contrast(z: Tensor, temperature: float) -> Tensor:
    """NT-Xent of z [2B, d]: rows i and B + i are views of one image."""
    z = normalize(z.float())
    likeness = z @ z.T / temperature
    likeness.fill_diagonal_(-math.inf)
    return cross_entropy(likeness, torch.arange(len(z), device=z.device).roll(len(z) // 2))


def begin(net: Any, problem: Problem, how: How, machine: speed.Machine) -> Iterator[tuple[int, float, float]]:
    """Images seen, the loss, and how many percent of test images neighbours' labels have right, a few times."""
    images = torch.cat([torch.from_numpy(np.array(part)) for part in problem.unlabelled.parts]).to(machine.device)
    net.to(machine.device, memory_format=torch.channels_last)
    width = net.head.in_features
    above = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64)).to(machine.device)
    parameters = [*net.parameters(), *above.parameters()]
    search = torch.optim.AdamW(parameters, lr=how.lr, weight_decay=1e-4)
    steps = max(1, how.images // BATCH)
    plan = torch.optim.lr_scheduler.OneCycleLR(search, how.lr, total_steps=steps, pct_start=min(0.5, max(0.1, 2 / steps)))
    for step in range(1, steps + 1):
        net.train()
        x = normalise(images[torch.randint(len(images), (BATCH,), device=images.device)].permute(0, 3, 1, 2))
        both = torch.cat([view(x, how), view(x, how)]).contiguous(memory_format=torch.channels_last)
        with machine.autocast():
            loss = contrast(above(net.features(both)), how.temperature)
        search.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        search.step()
        plan.step()
        if step % max(1, steps // LOOKS) == 0 or step == steps:
            yield step * BATCH, float(loss.detach()), guessed(net, problem, machine)


def guessed(net: Any, problem: Problem, machine: speed.Machine) -> float:
    """How many percent of test images have the right label by their neighbours, a few of which are labelled."""
    net.eval()
    (pool,), test = problem.labelled, problem.tests["target"]
    x, x_t = (head.features(net, parts, machine) for parts in (pool.parts, (test.images[:TESTED],)))
    y = head.labels(pool, len(problem.classes), machine)
    found = neighbours.guess([(x, y)], x_t, head.classifier).argmax(1).cpu()
    return 100 * float((found == torch.as_tensor(test.labels[:TESTED])).float().mean())  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", type=json.loads, default={}, help="of the beginning, e.g. '{\"images\": 500000}'")
    parser.add_argument("--recipe", type=json.loads, default={}, help="what is different in the recipe of AdaMatch")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of AdaMatch")
    parser.add_argument("--only-begin", action="store_true", help="no AdaMatch")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    machine, how = speed.choose(), How(**given.how)
    run = Run(
        benchmark="digitfive",
        task="ssl",
        target="svhn",
        labels=given.labels,
        seed=given.seed,
        options=given.options,
        budget="fast",
    )
    problem = experiment.problem_of(run, given.data)
    torch.manual_seed(given.seed)
    net, began, looks = nets.build(run.recipe.network, len(problem.classes)), time.monotonic(), []
    for seen, loss, right in begin(net, problem, how, machine):
        looks.append({"images": seen, "loss": round(loss, 3), "right": round(right, 1), "seconds": time.monotonic() - began})
        print(looks[-1], flush=True)
    row: dict[str, Any] = {"labels": given.labels, "seed": given.seed, "how": vars(how), "looks": looks}
    row |= {"recipe": given.recipe, "options": given.options, "machine": str(machine), "versions": experiment.versions()}
    if not given.only_begin:
        weights = given.runs / "weights.safetensors"
        weights.parent.mkdir(parents=True, exist_ok=True)
        body = {name: value.contiguous().cpu() for name, value in net.state_dict().items() if not name.startswith("head.")}
        save_file(body, weights)
        recipe = replace(run.recipe, fitted_head=True, **given.recipe)
        folder = RunFolder(given.runs / "run")
        experiment.solve(replace(run, recipe=recipe, weights=str(weights)), problem, folder, Execution(machine, quiet=True))
        result = folder.result() or {}
        row |= {key: result[key] for key in ("accuracy", "seconds", "date")}
        row["curve"] = [round(each["target"], 2) for each in result["evaluations"]]
        print(f"{row['accuracy']:.1f}", flush=True)
    given.out.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()

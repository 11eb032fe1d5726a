"""Accuracy of a run's averaged network with its running batch-norm statistics, and with those of the test images themselves.

    python benchmarks/own_statistics.py runs/digits/NAME --data DIR --out results/own_statistics.json

RUN is the folder of a run of a benchmark, from its first checkpoint on. Far apart, the running statistics fit neither domain.
"""

import argparse
import datetime
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from adamatch import nets
from adamatch.augment.views import normalise
from adamatch.data import benchmarks
from adamatch.data.store import Store
from adamatch.errors import InputError
from adamatch.experiment import versions
from adamatch.nets.norm import unrecorded
from adamatch.train import checkpoint
from adamatch.train.run import Run

PREFIX = "average.net."
BATCH = 500


def network(run: Run, state: Path, classes: int) -> nn.Module:
    """The averaged network of a checkpoint, or of a finished run's model."""
    tensors = load_file(state)
    averaged = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    net = nets.build(run.recipe.network, classes)
    net.load_state_dict(averaged or tensors)
    return net


@torch.no_grad()
def accuracy(net: nn.Module, test: Store) -> float:
    right = 0
    assert test.labels is not None
    for start in range(0, len(test), BATCH):
        x = torch.as_tensor(np.array(test.images[start : start + BATCH])).permute(0, 3, 1, 2)
        y = np.array(test.labels[start : start + BATCH])
        right += int((net(normalise(x)).argmax(1).numpy() == y).sum())
    return 100 * right / len(test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    run = Run.from_json((given.run / "run.json").read_text())
    state = checkpoint.newest(given.run / "checkpoints") or given.run / "model.safetensors"
    if not state.exists():
        raise InputError(f"{given.run} has neither a checkpoint nor a model: train it first")
    problem = benchmarks.problem(
        run.benchmark, task=run.task, source=run.source, target=run.target, labels=run.labels, seed=run.seed, root=given.data
    )
    net = network(run, state, len(problem.classes))
    rows = {}
    for name, test in problem.tests.items():
        with unrecorded(net):
            rows[name] = {"running": accuracy(net.eval(), test), "own": accuracy(net.train(), test)}
        print(f"{name}: {rows[name]['running']:.1f} with running statistics, {rows[name]['own']:.1f} with its own")
    facts = {"run": run.name, "state": state.stem, "batch": BATCH, "accuracy": rows, "versions": versions()}
    given.out.write_text(json.dumps({**facts, "date": datetime.date.today().isoformat()}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Accuracy of a run's averaged network with its running batch-norm statistics, and with those of the test images themselves.

    python benchmarks/own_statistics.py runs/digits/NAME --data DIR --out results/own_statistics.json

RUN is the folder of a run of a benchmark, from its first checkpoint on. Far apart, the running statistics fit neither domain.
"""

import argparse
import datetime
import json
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.evaluate import BATCH, Evaluation
from adamatch.experiment import problem_of, versions
from adamatch.networks.norm import unrecorded
from adamatch.train import checkpoint, speed

PREFIX = "average.net."


def network(run: Run, state: Path, classes: int) -> nn.Module:
    """The averaged network of a checkpoint, or of a finished run's model."""
    tensors = load_file(state)
    averaged = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    net = networks.build(run.recipe.network, classes)
    net.load_state_dict(averaged or tensors)
    return net


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
    problem, machine = problem_of(run, given.data), speed.choose(precision="fp32")
    net = network(run, state, len(problem.classes)).to(machine.device)
    evaluation = Evaluation(problem.tests, machine)
    with unrecorded(net):
        found = {"running": evaluation(net.eval()), "own": evaluation(net.train())}
    for name in problem.tests:
        print(f"{name}: {found['running'][name]:.1f} with running statistics, {found['own'][name]:.1f} with its own")
    facts = {"run": run.name, "state": state.stem, "batch": BATCH, "accuracy": found, "versions": versions()}
    given.out.write_text(json.dumps({**facts, "date": datetime.date.today().isoformat()}, indent=1) + "\n")


if __name__ == "__main__":
    main()

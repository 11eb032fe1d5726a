"""Accuracy of a run's averaged network with its running batch-norm statistics, and with those of the test images.

    python benchmarks/own_statistics.py runs/digits/NAME --data DIR --out results/own_statistics.json

RUN is the folder of a run of a benchmark, from its first checkpoint on. Far apart, the running statistics fit neither
domain.
"""

from pathlib import Path

import evidence
from safetensors.torch import load_file

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.evaluate import BATCH, Evaluation
from adamatch.experiment import problem_of
from adamatch.networks.norm import unrecorded
from adamatch.train import checkpoint, speed

PREFIX = "average.net."  # of the averaged network in a checkpoint


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    run = Run.read(given.run / "run.json")
    state = checkpoint.newest(given.run / "checkpoints") or given.run / "model.safetensors"
    if not state.exists():
        raise InputError(f"{given.run} has neither a checkpoint nor a model: train it first")
    problem, machine = problem_of(run, given.data), speed.choose(precision="fp32")
    net = networks.build(run.recipe.network, len(problem.classes)).to(machine.device)
    tensors = load_file(state)
    averaged = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    net.load_state_dict(averaged or tensors)
    evaluation = Evaluation(problem.tests, machine)
    with unrecorded(net):
        found = {"running": evaluation(net.eval()), "own": evaluation(net.train())}
    print(found)
    evidence.write(given.out, evidence.dated({"run": run.name, "state": state.stem, "batch": BATCH, "accuracy": found}))


if __name__ == "__main__":
    main()

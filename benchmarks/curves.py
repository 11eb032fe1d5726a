"""Does the fast step compute the same training? The same run twice: compiled, captured, bf16 - and eager, float32.

    python benchmarks/curves.py --steps 1000 --out results/curves

Writes OUT.json (the losses) and OUT.png (the picture). Data: rendered digits -> handwriting at 32 x 32, WRN-28-2.
"""

import time
from pathlib import Path

import torch
from evidence import options, write
from matplotlib.figure import Figure
from plain import wait

from adamatch import methods, networks
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.datasets.rendered import handwritten, rendered
from adamatch.finalise import versions
from adamatch.images.tasks import make_problem
from adamatch.train import speed
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution
from adamatch.train.step import Step

CURVES = ("loss", "loss_source", "loss_target", "threshold", "mask")


def curve(machine: speed.Machine, steps: int, every: int, network: str) -> tuple[list[dict[str, float]], float]:
    """Means over `every` steps of what a step measures, and ms per step."""
    problem = make_problem("uda", [rendered(5000, 32, 0)], handwritten("train", 32), {})
    run = Run(benchmark="none", recipe=Recipe(network=network, size=32, images=steps * 64, weight_decay=5e-4))
    torch.manual_seed(0)
    net = networks.build(network, 10)
    method = methods.build("adamatch", classes=10, net=net, recipe=run.recipe, options={})
    step = Step(net, method, run.recipe, machine, print)
    captured = speed.Captured(step, machine)
    batches = Batches(run, problem, step, Execution(machine))
    rows, began = [], 0.0
    for done in range(steps):
        if done == 10:
            wait(machine.device)
            began = time.perf_counter()
        captured(batches.next(done))
        if (done + 1) % every == 0:
            means, bad = step.meter.read()
            assert bad < 0, f"the loss was not finite at step {bad}"
            rows.append({"step": done + 1, **{name: float(means[name]) for name in CURVES}})  # type: ignore[arg-type]
            step.meter.clear()
    wait(machine.device)
    return rows, 1000 * (time.perf_counter() - began) / max(1, steps - 10)


def main() -> None:
    parser = options(__doc__, out="results/curves")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--network", default="wrn-28-2")
    asked = parser.parse_args()
    machines = {
        "bf16, compiled, one CUDA graph": speed.choose(),
        "float32, eager": speed.choose(precision="fp32", compile=False),
    }
    found = {name: curve(machine, asked.steps, asked.every, asked.network) for name, machine in machines.items()}
    facts = {name: {"machine": str(machines[name]), "ms": ms, "rows": rows} for name, (rows, ms) in found.items()}
    write(asked.out.with_suffix(".json"), {"versions": versions(), "curves": facts})
    draw(found, asked.out.with_suffix(".png"))
    last = {name: sum(row["loss"] for row in rows[-10:]) / len(rows[-10:]) for name, (rows, _) in found.items()}
    print({name: (round(value, 4), round(found[name][1], 2)) for name, value in last.items()})


def draw(found: dict[str, tuple[list[dict[str, float]], float]], path: Path) -> None:
    figure = Figure(figsize=(13, 3.6))
    axes = figure.subplots(1, 3)
    for axis, name in zip(axes, ("loss", "threshold", "mask"), strict=True):
        for label, (rows, _) in found.items():
            axis.plot([row["step"] for row in rows], [row[name] for row in rows], label=label, lw=1.3)
        axis.set(title=name, xlabel="step")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

"""How long a training step takes, for every method and network, beside a plain implementation in the same run.

python benchmarks/step.py --out results/step.json            the whole table
python benchmarks/step.py --networks wrn-28-2:32 --methods adamatch
"""

import argparse
import functools
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence
import numpy as np
import torch
from plain import step_time, wait
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from adamatch import methods, networks
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.grid import cost
from adamatch.images.feed import Place
from adamatch.images.tasks import Labelled, Problem, Unlabelled
from adamatch.kernels import runtime
from adamatch.train import speed
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution
from adamatch.train.step import Step

CLASSES = 10
TERAFLOPS, TERABYTES = 790.0, 4.3  # of an H200: a large bf16 matrix product and a large copy, measured


def training(
    network: str, size: int, method: str, machine: speed.Machine, *,
    posed: Problem | None = None, place: Place = "auto", **recipe: Any,
) -> tuple[Step, Callable[[int], float]]:  # fmt: skip
    """A step on random images or those of `posed`, and what makes so many steps and gives their seconds."""
    torch.manual_seed(0)
    run = Run(benchmark="none", method=method, recipe=Recipe(network=network, size=size, weight_decay=5e-4, **recipe))
    net = networks.build(network, CLASSES)
    built = methods.build(method, classes=CLASSES, net=net, recipe=run.recipe, options={})
    step = Step(net, built, run.recipe, machine, print)
    captured = speed.Captured(step, machine)
    batches = Batches(run, posed or problem(size), step, Execution(machine, place=place))

    def go(count: int) -> float:
        wait(machine.device)
        start = time.perf_counter()
        for done in range(count):
            captured(batches.next(done))
        wait(machine.device)
        return time.perf_counter() - start

    return step, go


@functools.cache
def problem(size: int) -> Problem:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2048, size, size, 3), dtype=np.uint8)
    return Problem((Labelled((images,), rng.integers(0, CLASSES, 2048)),), Unlabelled((images,)), tuple("0123456789"))


def measure(network: str, size: int, method: str, steps: int, machine: speed.Machine, **recipe: Any) -> dict[str, Any]:
    """One row: seconds to the first step, ms per step, memory, share of the roofline."""
    if machine.device.type == "cuda":
        gc.collect()  # what the row before has left is not this one's
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    run = Run(benchmark="none", method=method, recipe=Recipe(network=network, size=size, weight_decay=5e-4, **recipe))
    began = time.perf_counter()
    _, go = training(network, size, method, machine, **recipe)
    go(1)
    first = time.perf_counter() - began
    go(speed.WARM_STEPS + 2)
    times = sorted(go(steps) / steps for _ in range(3))
    known = machine.device.type == "cuda" and method != "mcd"  # some of whose forwards have no backward
    floor = roofline(networks.build(network, CLASSES), cost.shape(run)) if known else None
    return {
        "network": network,
        "size": size,
        "method": method,
        "strong": run.recipe.strong,
        "batch": run.recipe.batch,
        "ms": 1000 * times[1],
        "ms_spread": 1000 * (times[2] - times[0]),
        "images_per_second": run.recipe.batch / times[1],
        "first_step_seconds": first,
        "peak_GiB": torch.cuda.max_memory_allocated() / 2**30 if machine.device.type == "cuda" else None,
        "roofline_ms": floor,
        "roofline_share": floor / (1000 * times[1]) if floor else None,
    }


def roofline(net: nn.Module, step: cost.Shape) -> float:
    """ms that the forwards and backwards need at least: their arithmetic, or the bytes that convolutions must move."""
    moved, images = 0, cost.images(step)

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal moved
        if isinstance(module, nn.Conv2d):  # forward: in, out; backward: in, 2 gradients of out and one of in; bf16
            moved += 2 * (3 * inputs[0].numel() + 2 * output.numel())

    for module in net.modules():
        module.register_forward_hook(count)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.zeros(1, 3, step.size, step.size))
    arithmetic: float = 3 * counter.get_total_flops() * images / (TERAFLOPS * 1e12)
    return 1000 * max(arithmetic, moved * images / (TERABYTES * 1e12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=["wrn-28-2:32", "wrn-34-2:64"], help="NETWORK:SIZE")
    parser.add_argument("--methods", nargs="*", default=list(methods.METHODS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--strong", default="cta")
    parser.add_argument("--images", type=int, default=10**9, help="of the run: a short one is not compiled")
    parser.add_argument("--no-kernels", action="store_true", help="without the Triton kernels")
    parser.add_argument("--no-plain", action="store_true", help="without the plain implementation")
    parser.add_argument("--plain-workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    machine = speed.choose(precision=given.precision, compile=False if given.no_compile else None)
    if given.no_kernels:
        runtime.AVAILABLE = False
    recipe = {"batch": given.batch, "strong": given.strong, "images": given.images}
    rows = []
    for text in given.networks:
        network, size = text.rsplit(":", 1)
        for method in given.methods:
            try:
                row = measure(network, int(size), method, given.steps, machine, **recipe)
            except Exception as error:  # one row that fails must not cost the others
                print(f"{text} {method}: {type(error).__name__}: {error}")
                continue
            rows.append(row)
            print(json.dumps(row), flush=True)
        if not given.no_plain:
            settings = {"batch": given.batch, "workers": given.plain_workers, "steps": max(5, given.steps // 5)}
            seconds = step_time(networks.build(network, CLASSES), int(size), device=machine.device, **settings)
            rows.append({"network": network, "size": int(size), "method": "plain adamatch", "ms": 1000 * seconds})
            print(json.dumps(rows[-1]), flush=True)
    if given.out:
        evidence.write(
            given.out, evidence.dated({"machine": str(machine), "kernels": not given.no_kernels, "rows": rows})
        )


if __name__ == "__main__":
    main()

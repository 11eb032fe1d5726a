"""What each Triton kernel brings: the time of an AdaMatch step with all, and with each replaced by plain PyTorch.

python benchmarks/kernel_table.py --out results/kernels.json

The step is captured as a CUDA graph, as in training. Each variant is timed in turns with the step that has all kernels,
in one process.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple
from unittest.mock import patch

import evidence
import torch
from step import training
from torch import Tensor
from torch.nn.functional import pad

from adamatch.kernels import conv_ops, depthwise_ops, norm_ops
from adamatch.networks import norm
from adamatch.networks.conv import same_conv2d
from adamatch.networks.norm import BatchNorm
from adamatch.train import speed
from adamatch.train import step as steps

OPS: Any = torch.ops.adamatch
LAST = torch.channels_last
ROUNDS, SECONDS = 5, 0.3  # how often a variant and all kernels take turns, and for how long each time
Variants = dict[str, list[Any]]  # what is replaced, by the name of what goes without its kernel
Function = Callable[..., Any]


class Case(NamedTuple):
    network: str
    size: int
    batch: int
    images: int = 10**9  # labelled images of the run: a short one is not compiled by torch

    @property
    def compiled(self) -> bool:
        return self.images // self.batch >= steps.WORTH_COMPILING

    def __str__(self) -> str:
        return f"{self.network} {self.size}px {self.batch}+{3 * self.batch}{'' if self.compiled else ', not compiled'}"


CASES = {
    "wrn-28-2": Case("wrn-28-2", 32, 64),
    "wrn-34-2": Case("wrn-34-2", 64, 64),
    "lite0": Case("efficientnet-lite0", 224, 32),
    "lite0-short": Case("efficientnet-lite0", 224, 32, 32_000),
    "resnetv2-101": Case("resnetv2-101", 224, 32),
}


def norm_then_activation(*given: Any, **added: Tensor) -> Any:
    *rest, slope, shared, ceiling = given
    y, stats, total = OPS.norm_act(*rest, 1.0, shared, None, branch=added.get("branch"))
    return norm.activate(y, slope, ceiling), stats, total


def convolution(forward: Function, input_grad: Function, weight_grad: Function) -> Function:
    class Convolution(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, *settings: Any) -> Any:
            ctx.save_for_backward(x, weight)
            ctx.settings = settings
            return forward(x, weight, *settings)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            given = (dy.contiguous(memory_format=LAST), *ctx.saved_tensors, *ctx.settings)
            return input_grad(*given), weight_grad(*given), *[None] * len(ctx.settings)

    return Convolution.apply


def plain_depthwise(x: Tensor, weight: Tensor, stride: int, _: object) -> Tensor:
    return same_conv2d(x, weight.to(x.dtype), None, stride, x.shape[1])


def plain_depthwise_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    """Of the input."""
    outside = [(out - 1) * stride + weight.shape[2] - side for out, side in zip(dy.shape[2:], x.shape[2:], strict=True)]
    after = [max(0, total - first) for total, first in zip(outside, before, strict=True)]
    padding, padded = before, x
    if after != before:
        padding, padded = [0, 0], pad(x, (before[1], after[1], before[0], after[0]))
    settings = ([stride] * 2, padding, [1, 1], False, [0, 0], x.shape[1])
    wanted = [True, False, False]
    found = torch.ops.aten.convolution_backward(dy, padded, weight.to(x.dtype), None, *settings, wanted)[0]
    lines, columns = (slice(a - b, a - b + side) for a, b, side in zip(before, padding, x.shape[2:], strict=True))
    return found[:, :, lines, columns]  # type: ignore[no-any-return]


def sum_then_norm(self: BatchNorm, a: Tensor, b: Tensor, groups: Any = None) -> tuple[Tensor, Tensor]:
    total = a + b
    return total, self(total, groups)


def off(module: Any, name: str) -> list[Any]:
    return [patch.object(module, name, lambda *_: False)]


def depthwise(*parts: Function) -> list[Any]:
    return [patch.object(depthwise_ops, "depthwise", convolution(*parts))]


SUMS_APART = [patch.object(BatchNorm, "add", sum_then_norm)]
NORM_OFF, CONV_OFF, DEPTHWISE_OFF = (
    off(norm_ops, "norm_runs_on"), off(conv_ops, "runs_on"), off(depthwise_ops, "runs_on"),
)  # fmt: skip
NORMS: Variants = {
    "norm: all": NORM_OFF,
    "norm: sum of two branches": SUMS_APART,
    "norm: activation": [patch.object(norm_ops, "norm_act", norm_then_activation)],
}
CONVS: Variants = {"3x3: weight gradient": CONV_OFF}
DEPTHWISE: Variants = {
    "depthwise: all": DEPTHWISE_OFF,
    "depthwise: forward": depthwise(plain_depthwise, OPS.depthwise_input_grad, OPS.depthwise_weight_grad),
    "depthwise: input gradient": depthwise(OPS.depthwise, plain_depthwise_grad, OPS.depthwise_weight_grad),
}


def variants(case: Case, only: Sequence[str]) -> Variants:
    found = {"nothing": [], **NORMS}
    if case.network.startswith("wrn"):
        found |= CONVS
    if case.network.startswith("efficientnet"):
        found |= DEPTHWISE
    found |= {"everything": [*NORM_OFF, *CONV_OFF, *DEPTHWISE_OFF]}
    return {name: patches for name, patches in found.items() if not only or any(part in name for part in only)}


class Timed:
    """A step, warmed up and captured while `patches` hold; afterwards its graph is as it is."""

    def __init__(self, case: Case, name: str, patches: list[Any], machine: speed.Machine) -> None:
        began, self.problems = time.perf_counter(), list[str]()
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each)
            recipe: dict[str, Any] = {"batch": case.batch, "strong": "cta", "images": case.images}
            self.step, self.go = training(case.network, case.size, "adamatch", machine, **recipe)
            for attribute in ("_loss", "_predict") if case.compiled and machine.compile else ():
                # Functions with code of their own: the compiler must not take what it made for another variant.
                plain = getattr(steps, attribute)
                own = FunctionType(plain.__code__.replace(co_name=f"{attribute}_{name}"), plain.__globals__)
                setattr(self.step, attribute, speed.compiled(own, machine, self.problems.append))
            self.go(speed.WARM_STEPS + 2)
        self.loss = self.step.meter.read()[0]["loss"]  # nearly the same of all variants
        self.seconds = time.perf_counter() - began


def measure(case: Case, machine: speed.Machine, only: Sequence[str]) -> dict[str, Any]:
    every = Timed(case, "every", [], machine)
    count = max(3, round(SECONDS / (every.go(3) / 3)))
    rows: list[dict[str, Any]] = []
    for name, patches in variants(case, only).items():
        other = Timed(case, name, patches, machine)
        pairs = [(1000 * every.go(count) / count, 1000 * other.go(count) / count) for _ in range(ROUNDS)]
        on, off = (sorted(times) for times in zip(*pairs, strict=True))
        percent = sorted(100 * (without / with_ - 1) for with_, without in pairs)
        row = {"without": name, "ms": statistics.median(off), "ms_all_on": on, "loss": other.loss}
        row |= {"percent_slower": statistics.median(percent), "percent_range": [percent[0], percent[-1]]}
        rows.append(row | {"seconds_to_capture": other.seconds, "problems": other.problems})
        print(case, json.dumps(rows[-1]), flush=True)
        del other
        gc.collect()
        torch.cuda.empty_cache()
    return {"loss_all_on": every.loss, "steps_each_time": count, "rounds": ROUNDS, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of what is replaced, such as 'norm'")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machine, cases = speed.choose(), {name: CASES[name] for name in options.networks}
    results: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": str(machine),
        "percent_slower": "median over rounds of: without it, over all on, timed right before",
        "networks": {},
    }
    for case in cases.values():
        results["networks"][str(case)] = measure(case, machine, options.only)
        if options.out:
            evidence.write(options.out, evidence.dated(results))


if __name__ == "__main__":
    main()

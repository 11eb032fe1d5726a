"""What each Triton kernel brings: the time of an AdaMatch step with all, and with each replaced by plain PyTorch.

python benchmarks/kernel_table.py --out results/kernels.json

The step is captured as a CUDA graph, as in training. Each variant is timed in turns with the step that has all kernels,
in one process. First, other processes compile the variants, several at once, into the caches of Inductor and Triton.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple
from unittest.mock import patch

if "--smoke" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are defined

import record
import torch
from step import training
from torch import Tensor
from torch.nn.functional import pad

from adamatch.kernels import conv_ops, depthwise_ops, norm_ops, runtime
from adamatch.networks import norm
from adamatch.networks.conv import same_conv2d
from adamatch.networks.norm import BatchNorm
from adamatch.train import speed
from adamatch.train import step as steps

OPS: Any = torch.ops.adamatch
LAST = torch.channels_last
ROUNDS, SECONDS = 5, 0.3  # how often a variant and all kernels take turns, and for how long each time
Groups = Sequence[int]
Variants = dict[str, list[Any]]  # what is replaced, by the name of what goes without its kernel
Function = Callable[..., Any]


class Case(NamedTuple):
    network: str
    size: int
    batch: int
    images: int = 10**9  # labelled images of the run: a short one is not compiled by torch
    chains: int = 4  # processes that compile its variants, as many as the GPU's memory holds

    @property
    def compiled(self) -> bool:
        return self.images // self.batch >= steps.WORTH_COMPILING

    def __str__(self) -> str:
        return f"{self.network} {self.size}px {self.batch}+{3 * self.batch}{'' if self.compiled else ', not compiled'}"


CASES = {
    "wrn-28-2": Case("wrn-28-2", 32, 64),
    "wrn-34-2": Case("wrn-34-2", 64, 64),
    "lite0": Case("efficientnet-lite0", 224, 32),
    "lite0-short": Case("efficientnet-lite0", 224, 32, 32_000, chains=1),
    "resnetv2-101": Case("resnetv2-101", 224, 32, chains=2),
}


def plain_norm(
    x: Tensor, weight: Tensor, bias: Tensor, groups: Groups, eps: float, slope: float, _: bool, ceiling: Any
) -> Any:
    """Activations, and means and variances [groups, 2, C]: as Inductor can fuse them."""
    found, stats = [], []
    for part in torch.split(x, list(groups)):
        var, mean = torch.var_mean(part.float(), (0, 2, 3), correction=0)
        scale = torch.rsqrt(var + eps) * weight
        z = (part.float() - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]
        found.append(norm.activate(z, slope, ceiling).to(x.dtype))
        stats.append(torch.stack([mean, var]))
    return torch.cat(found), torch.stack(stats)


def plain_norm_grad(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor,
    groups: Groups, eps: float, slope: float, _: bool, ceiling: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    found, dweight, dbias = [], torch.zeros_like(weight), torch.zeros_like(bias)
    for i, (part, seed) in enumerate(zip(torch.split(x, list(groups)), torch.split(dy, list(groups)), strict=True)):
        rstd = torch.rsqrt(stats[i, 1] + eps)
        xhat = (part.float() - stats[i, 0][:, None, None]) * rstd[:, None, None]
        z = xhat * weight[:, None, None] + bias[:, None, None]
        dz = torch.where(z > 0, seed.float(), slope * seed.float())
        dz = dz if ceiling is None else torch.where(z > ceiling, 0.0, dz)
        s1, s2, count = dz.sum((0, 2, 3)), (dz * xhat).sum((0, 2, 3)), dz.numel() / dz.shape[1]
        inner = dz - (s1 / count)[:, None, None] - xhat * (s2 / count)[:, None, None]
        found.append(((weight * rstd)[:, None, None] * inner).to(x.dtype))
        dweight, dbias = dweight + s2, dbias + s1
    return torch.cat(found), dweight, dbias


def without_norm(forward: Function, backward: Function) -> list[Any]:
    """The sums of branches are PyTorch's, too: compare with the variant that replaces these alone."""

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *settings: Any) -> Any:
            y, stats = forward(x, weight, bias, *settings)[:2]
            ctx.save_for_backward(x, stats, weight, bias)
            ctx.settings = settings
            ctx.mark_non_differentiable(stats)
            return y, stats

        @staticmethod
        def backward(ctx: Any, dy: Tensor, _: Tensor) -> Any:
            return *backward(dy.contiguous(memory_format=LAST), *ctx.saved_tensors, *ctx.settings), *[None] * 5

    apply: Any = Norm.apply
    return [patch.object(norm_ops, "norm_act", lambda *given: (*apply(*given), None)), *SUMS_APART]


def norm_grad(dy: Tensor, *rest: Any) -> Any:
    return OPS.norm_act_grad(dy, None, *rest)


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
PARTS: Variants = {  # in eager steps, where nothing fuses their plain ways, they tell nothing
    "norm: forward and sums": without_norm(plain_norm, norm_grad),
    "norm: backward and sums": without_norm(OPS.norm_act, plain_norm_grad),
}
CONVS: Variants = {"3x3: weight gradient": CONV_OFF}
DEPTHWISE: Variants = {
    "depthwise: all": DEPTHWISE_OFF,
    "depthwise: forward": depthwise(plain_depthwise, OPS.depthwise_input_grad, OPS.depthwise_weight_grad),
    "depthwise: input gradient": depthwise(OPS.depthwise, plain_depthwise_grad, OPS.depthwise_weight_grad),
}


def variants(case: Case, only: Sequence[str]) -> Variants:
    found = {"nothing": [], **NORMS, **(PARTS if case.compiled else {})}
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


def measure(case: Case, machine: speed.Machine, only: Sequence[str], rounds: int) -> dict[str, Any]:
    every = Timed(case, "every", [], machine)
    count = max(3, round(SECONDS / (every.go(3) / 3))) if rounds > 1 else 1
    rows: list[dict[str, Any]] = []
    for name, patches in variants(case, only).items():
        other = Timed(case, name, patches, machine)
        pairs = [(1000 * every.go(count) / count, 1000 * other.go(count) / count) for _ in range(rounds)]
        on, off = (sorted(times) for times in zip(*pairs, strict=True))
        percent = sorted(100 * (without / with_ - 1) for with_, without in pairs)
        row = {"without": name, "ms": statistics.median(off), "ms_all_on": on, "loss": other.loss}
        row |= {"percent_slower": statistics.median(percent), "percent_range": [percent[0], percent[-1]]}
        rows.append(row | {"seconds_to_capture": other.seconds, "problems": other.problems})
        print(case, json.dumps(rows[-1]), flush=True)
        del other
        gc.collect()
        torch.cuda.empty_cache()
    return {"loss_all_on": every.loss, "steps_each_time": count, "rounds": rounds, "rows": rows}


def compile_first(cases: Mapping[str, Case], only: Sequence[str], seconds: float) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    running, stop = [], time.monotonic() + seconds
    for name, case in cases.items():
        for number in range(case.chains):
            command = [sys.executable, __file__, "--networks", name, "--chain", str(number), "--only", *only]
            running.append(subprocess.Popen(command, env=environment))
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, stop - time.monotonic()))
        process.kill()
        process.wait()


def table(cases: Mapping[str, Any]) -> str:
    """Markdown: how much slower a step is without each."""
    lines = ["| without | " + " | ".join(cases) + " |", "| --- |" + " ---: |" * len(cases)]
    for name in dict.fromkeys(row["without"] for case in cases.values() for row in case["rows"]):
        found = [[row for row in case["rows"] if row["without"] == name] for case in cases.values()]
        cells = [f"{row[0]['ms']:.2f} ms, {row[0]['percent_slower']:+.1f} %" if row else "" for row in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of what is replaced, such as 'norm'")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile-seconds", type=float, default=200, help="for compiling beforehand; 0: not at all")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on the CPU, in Triton's interpreter")
    parser.add_argument("--chain", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    machine, cases = speed.choose(), {name: CASES[name] for name in options.networks}
    if options.chain is not None:
        (case,) = cases.values()
        for name, patches in list(variants(case, options.only).items())[options.chain :: case.chains]:
            Timed(case, name, patches, machine)
            gc.collect()
        return
    if options.smoke:
        runtime.DEVICES.append("cpu")
        small = {"wrn-28-2": ("wrn-tiny", 8), "wrn-34-2": ("wrn-tiny", 8), "resnetv2-101": ("resnetv2-50", 32)}
        cases = {name: Case(*small.get(name, (each.network, 32)), 1, each.images) for name, each in cases.items()}
    elif options.compile_seconds:
        compile_first(cases, options.only, options.compile_seconds)
    results: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": str(machine),
        "percent_slower": "median over rounds of: without it, over all on, timed right before",
        "networks": {},
    }
    for case in cases.values():
        results["networks"][str(case)] = measure(case, machine, options.only, 1 if options.smoke else ROUNDS)
        if options.out:
            record.write(options.out, record.dated(results))
    print(table(results["networks"]))


if __name__ == "__main__":
    main()

"""What each Triton kernel brings: the time of an AdaMatch step with all of them, and with each replaced by plain PyTorch.

python benchmarks/kernels.py --out results/kernels.json

The step is captured as a CUDA graph, as in training. Each variant is timed in turns with the step that has all kernels,
in one process. First, other processes compile the variants, several at once, into the caches of Inductor and Triton.
"""

import argparse
import datetime
import gc
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple
from unittest.mock import patch

if "--smoke" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are defined

import torch
from step import training
from torch import Tensor
from torch.nn.functional import conv2d

from adamatch.config.run import Recipe
from adamatch.kernels import fused_conv, fused_depthwise, fused_norm, runtime
from adamatch.networks import norm
from adamatch.networks.norm import BatchNorm
from adamatch.train import precompile, speed
from adamatch.train import step as steps
from adamatch.train.step import Step

OPS: Any = torch.ops.adamatch
LAST = torch.channels_last
ROUNDS, SECONDS = 5, 0.3  # how often a variant and all kernels take turns, and for how long each time
Groups = Sequence[int]


class Case(NamedTuple):
    network: str
    size: int
    batch: int
    images: int = 10**9  # labelled images of the run: a short one is not compiled by torch

    def __str__(self) -> str:
        compiled = "" if self.images // self.batch >= steps.WORTH_COMPILING else ", not compiled"
        return f"{self.network} {self.size}px {self.batch}+{3 * self.batch}{compiled}"


CASES = {
    "wrn-28-2": Case("wrn-28-2", 32, 64),
    "wrn-34-2": Case("wrn-34-2", 64, 64),
    "lite0": Case("efficientnet-lite0", 224, 32),
    "lite0-short": Case("efficientnet-lite0", 224, 32, 32000),
    "resnetv2-101": Case("resnetv2-101", 224, 32),
}


# The plain ways. Those of the norm's forward and backward alone are what Inductor can fuse, too.


def normalised(
    x: Tensor, weight: Tensor, bias: Tensor, groups: Groups, eps: float, slope: float, ceiling: float | None
) -> Any:
    """Activations, and means and variances [groups, 2, C]."""
    found, stats = [], []
    for part in torch.split(x, list(groups)):
        var, mean = torch.var_mean(part.float(), (0, 2, 3), correction=0)
        scale = torch.rsqrt(var + eps) * weight
        z = (part.float() - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]
        found.append(norm.activate(z, slope, ceiling).to(x.dtype))
        stats.append(torch.stack([mean, var]))
    return torch.cat(found), torch.stack(stats)


def gradients(
    dy: Tensor, extra: Tensor | None, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor,
    groups: Groups, eps: float, slope: float, shared: bool, ceiling: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """What OPS.norm_act_grad gives: of the input, the weight and the bias."""
    found, dweight, dbias = [], torch.zeros_like(weight), torch.zeros_like(bias)
    sizes = list(groups)
    for i, (part, seed) in enumerate(zip(torch.split(x, sizes), torch.split(dy, sizes), strict=True)):
        rstd = torch.rsqrt(stats[i, 1] + eps)
        xhat = (part.float() - stats[i, 0][:, None, None]) * rstd[:, None, None]
        z = xhat * weight[:, None, None] + bias[:, None, None]
        dz = torch.where(z > 0, seed.float(), slope * seed.float())
        dz = dz if ceiling is None else torch.where(z > ceiling, 0.0, dz)
        s1, s2, count = dz.sum((0, 2, 3)), (dz * xhat).sum((0, 2, 3)), dz.numel() / dz.shape[1]
        inner = dz - (s1 / count)[:, None, None] - xhat * (s2 / count)[:, None, None]
        found.append((weight * rstd)[:, None, None] * inner)
        dweight, dbias = dweight + s2, dbias + s1
    dx = torch.cat(found)
    return (dx if extra is None else dx + extra).to(x.dtype), dweight, dbias


def norm_function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A norm with its activation: x, weight, bias, groups, eps, slope, ceiling -> y, stats."""

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: Groups, eps: float, slope: float,
                    ceiling: float | None) -> Any:  # fmt: skip
            y, stats = forward(x, weight, bias, groups, eps, slope, ceiling)
            ctx.save_for_backward(x, stats, weight, bias)
            ctx.groups, ctx.eps, ctx.slope, ctx.ceiling = groups, eps, slope, ceiling
            ctx.mark_non_differentiable(stats)
            return y, stats

        @staticmethod
        def backward(ctx: Any, dy: Tensor, _: Tensor) -> Any:
            settings = (list(ctx.groups), ctx.eps, ctx.slope, False, ctx.ceiling)
            return (
                *backward(dy.contiguous(memory_format=LAST), None, *ctx.saved_tensors, *settings),
                None,
                None,
                None,
                None,
            )

    return Norm.apply


def kernel_forward(
    x: Tensor, weight: Tensor, bias: Tensor, groups: Groups, eps: float, slope: float, ceiling: float | None
) -> Any:
    return OPS.norm_act(x, weight, bias, list(groups), eps, slope, False, ceiling)


def replaced_norm(function: Callable[..., Any]) -> list[Any]:
    """In place of the three operators. Sums of branches are PyTorch's, too: compare with the variant of these alone."""

    def norm_act(x: Tensor, weight: Tensor, bias: Tensor, groups: Groups, eps: float, slope: float, shared: bool,
                 ceiling: float | None) -> Any:  # fmt: skip
        return function(x, weight, bias, tuple(groups), eps, slope, ceiling)

    return [patch.object(fused_norm, "_norm_act", norm_act), *SUMS_APART]


def conv_function(forward: Callable[..., Any], weight_grad: Callable[..., Any]) -> Callable[..., Any]:
    class Conv(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Any:
            ctx.save_for_backward(x, weight)
            return forward(x, weight)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            x, weight = ctx.saved_tensors
            dy = dy.contiguous(memory_format=LAST)
            return OPS.conv3x3_input_grad(dy, x, weight), weight_grad(dy, x, weight)

    return Conv.apply


def cudnn_weight_grad(dy: Tensor, x: Tensor, weight: Tensor) -> Any:
    settings = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return torch.ops.aten.convolution_backward(dy, x, weight, *settings, [False, True, False])[1]


def apart_from_activation(name: str) -> Any:
    """The norm's kernel without the activation, which comes after it."""
    kernel = getattr(fused_norm, name)

    def both(*given: Any) -> Any:
        *rest, slope, shared, ceiling = given
        out = kernel(*rest, 1.0, shared, None)
        if isinstance(out, tuple):
            return out[0], norm.activate(out[1], slope, ceiling)
        return norm.activate(out, slope, ceiling)

    return patch.object(fused_norm, name, both)


def sum_then_norm(self: BatchNorm, a: Tensor, b: Tensor, groups: Any = None) -> tuple[Tensor, Tensor]:
    total = a + b
    return total, self(total, groups)


def norm_then_sum(self: BatchNorm, x: Tensor, skip: Tensor, groups: Any = None) -> Tensor:
    return skip + self(x, groups)  # type: ignore[no-any-return]


def plain_recorded(self: BatchNorm, x: Tensor) -> Tensor:
    y = torch.nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
    return norm.activate(y, self.slope, self.ceiling)


def never(*_: object) -> bool:
    return False


SUMS_APART = [patch.object(BatchNorm, "add", sum_then_norm), patch.object(BatchNorm, "then_add", norm_then_sum)]
NORM_OFF = [patch.object(fused_norm, "norm_runs_on", never)]
CONV_OFF, DEPTHWISE_OFF = ([patch.object(module, "runs_on", never)] for module in (fused_conv, fused_depthwise))
NORMS: dict[str, list[Any]] = {
    "norm: all": NORM_OFF,
    "norm: sum of two branches": SUMS_APART,
    "norm: activation": [apart_from_activation(name) for name in ("norm_act", "add_norm_act", "norm_act_then_add")],
    "norm: evaluation": [patch.object(BatchNorm, "_recorded", plain_recorded)],
}
PARTS: dict[str, list[Any]] = {
    "norm: forward and sums": replaced_norm(norm_function(normalised, OPS.norm_act_grad)),
    "norm: backward and sums": replaced_norm(norm_function(kernel_forward, gradients)),
}
CONVS: dict[str, list[Any]] = {
    "3x3: all": CONV_OFF,
    "3x3: forward": [
        patch.object(
            fused_conv, "conv3x3", conv_function(lambda x, w: conv2d(x, w, padding=1), OPS.conv3x3_weight_grad)
        )
    ],
    "3x3: weight gradient": [patch.object(fused_conv, "conv3x3", conv_function(OPS.conv3x3, cudnn_weight_grad))],
}
DEPTHWISE: dict[str, list[Any]] = {
    "depthwise: all": DEPTHWISE_OFF,
    "depthwise: forward": [patch.object(fused_depthwise, "FORWARD", ())],
    "depthwise: input gradient": [patch.object(fused_depthwise, "INPUT_GRAD", ())],
    "depthwise: weight gradient": [patch.object(fused_depthwise, "WEIGHT_GRAD", ())],
}
ALL_OFF = {"everything": [*NORM_OFF, *CONV_OFF, *DEPTHWISE_OFF]}


def variants(case: Case) -> dict[str, list[Any]]:
    """What is replaced, by the name of what goes without its kernel. Parts of a norm in eager steps tell nothing."""
    found = NORMS if "not compiled" in str(case) else NORMS | PARTS
    if case.network.startswith("wrn"):
        return found | CONVS | ALL_OFF
    return found | DEPTHWISE | ALL_OFF if case.network.startswith("efficientnet") else found


@contextmanager
def replaced(patches: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


class Timed:
    """A step, warmed up and captured while `patches` hold; afterwards its graph is as it is."""

    def __init__(self, case: Case, name: str, patches: list[Any], machine: speed.Machine) -> None:
        began, self.problems = time.perf_counter(), list[str]()
        recipe = {"batch": case.batch, "strong": "cta", "images": case.images}
        with replaced(patches):
            self.step, self.go = training(case.network, case.size, "adamatch", machine, **recipe)
            self._compile_anew(name, machine)
            self.go(speed.WARM_STEPS + 2)
        self.loss = float(self.step.meter.read()[0]["loss"])
        self.first = time.perf_counter() - began

    def _compile_anew(self, name: str, machine: speed.Machine) -> None:
        """Functions with code of their own: the compiler must not take what it made for another variant."""
        step: Step = self.step
        for attribute in ("_loss", "_predict"):
            plain = getattr(steps, attribute)
            code = plain.__code__.replace(co_name=f"{attribute}_{name}")
            own = FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
            compiles = machine.compile and self.step_is_compiled(step)
            setattr(step, attribute, speed.compiled(own, machine, self.problems.append) if compiles else own)

    @staticmethod
    def step_is_compiled(step: Step) -> bool:
        return step._view is not steps._view


def kernel_times(timed: Timed) -> dict[str, float]:
    """ms of a step by kernel of ours, of all others together ("other"); empty where there is no profiler."""
    try:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            timed.go(3)
        found: dict[str, float] = {}
        own = ("_moments", "_combine_moments", "_apply", "_grad_sums", "_combine_grads", "_grad_input", "_convolve", "_spread",
               "_weight_grad", "_sum_parts", "_sum_rows")  # fmt: skip
        for event in profiler.key_averages():
            name = event.key if event.key in own else "other"
            found[name] = found.get(name, 0.0) + event.self_device_time_total / 3000
        return {name: round(value, 3) for name, value in sorted(found.items())}
    except Exception as problem:
        print(f"no profile: {problem!r}"[:300], flush=True)
        return {}


def measure(case: Case, machine: speed.Machine, names: Sequence[str], rounds: int) -> dict[str, Any]:
    every = Timed(case, "every", [], machine)
    quick = every.go(3) / 3
    count = max(3, round(SECONDS / quick)) if rounds > 1 else 1
    rows: list[dict[str, Any]] = []
    always: list[float] = []
    for name, patches in {"nothing": [], **variants(case)}.items():
        if names and not any(part in name for part in names):
            continue
        try:
            other = Timed(case, name, patches, machine)
            pairs = [(every.go(count) / count, other.go(count) / count) for _ in range(rounds)]
        except Exception as problem:
            print(f"{case} without {name}: {type(problem).__name__}: {str(problem)[:500]}", flush=True)
            continue
        on, off = (statistics.median(times) * 1000 for times in zip(*pairs, strict=True))
        ratios = sorted(100 * (second / first - 1) for first, second in pairs)
        always += [1000 * first for first, _ in pairs]
        row = {"without": name, "ms": off, "ms_all_on": on, "percent_slower": statistics.median(ratios),
               "percent_range": [ratios[0], ratios[-1]], "loss": other.loss, "seconds_to_capture": other.first}  # fmt: skip
        rows.append(row | ({"problems": other.problems} if other.problems else {}))
        print(f"{case!s:40} without {name:28} {off:8.3f} ms, all on {on:8.3f} ms: {row['percent_slower']:+6.1f} % "
              f"({ratios[0]:+.1f} to {ratios[-1]:+.1f}), loss {other.loss:.4f}, {other.first:.0f} s", flush=True)  # fmt: skip
        del other
        gc.collect()
        if machine.device.type == "cuda":
            torch.cuda.empty_cache()
    spread = [min(always), statistics.median(always), max(always)] if always else []
    profile = kernel_times(every) if machine.device.type == "cuda" else {}
    return {"all_on_ms": spread, "steps_each_time": count, "rounds": rounds, "loss_all_on": every.loss, "rows": rows,
            "kernels_ms": profile}  # fmt: skip


def compile_first(cases: Mapping[str, Case], names: Sequence[str], machine: speed.Machine, seconds: float) -> None:
    """Fill the caches: several processes for each network, as many as the GPU's memory holds."""
    chains = {"wrn-28-2": 4, "wrn-34-2": 4, "lite0": 4, "lite0-short": 1, "resnetv2-101": 2}
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    running, stop = [], time.monotonic() + seconds
    with ExitStack() as stack:
        for name, case in cases.items():
            recipe = Recipe(network=case.network, size=case.size, images=1, weight_decay=5e-4, batch=case.batch)
            stack.enter_context(precompile.compiled(recipe, ["adamatch"], machine.device))
            for number in range(chains[name]):
                chain = ["--networks", name, "--chain", f"{number}/{chains[name]}", "--only", *names]
                running.append(subprocess.Popen([sys.executable, __file__, *chain], env=environment))
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, stop - time.monotonic()))
            process.kill()
            process.wait()


def compile_chain(case: Case, machine: speed.Machine, names: Sequence[str], chain: str) -> None:
    number, count = map(int, chain.split("/"))
    todo = [
        each
        for each in {"nothing": [], **variants(case)}.items()
        if not names or any(part in each[0] for part in names)
    ]
    for name, patches in todo[number::count]:
        try:
            Timed(case, name, patches, machine)
        except Exception as problem:
            print(f"while compiling {case} without {name}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def table(results: dict[str, Any]) -> str:
    """Markdown: how much slower a step is without each."""
    cases = results["networks"]
    rows = {name: [row for case in cases.values() for row in case["rows"] if row["without"] == name] for name in
            dict.fromkeys(row["without"] for case in cases.values() for row in case["rows"])}  # fmt: skip
    lines = ["| without | " + " | ".join(cases) + " |", "| --- |" + " ---: |" * len(cases)]
    on = [
        f"{case['all_on_ms'][1]:.2f} ms ({case['all_on_ms'][0]:.2f} to {case['all_on_ms'][2]:.2f})"
        for case in cases.values()
    ]
    lines.append("| all on | " + " | ".join(on) + " |")
    for name in rows:
        cells = []
        for case in cases.values():
            row = next((row for row in case["rows"] if row["without"] == name), None)
            cells.append(f"{row['ms']:.2f} ms, {row['percent_slower']:+.1f} %" if row else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument(
        "--only", nargs="*", default=[], help="parts of names of what is replaced, such as 'norm' or 'forward'"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile-seconds", type=float, default=200, help="for compiling beforehand; 0: not at all")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on the CPU, in Triton's interpreter")
    parser.add_argument("--chain", help=argparse.SUPPRESS)
    options = parser.parse_args()
    began = time.perf_counter()
    machine = speed.choose()
    cases = {name: CASES[name] for name in options.networks}
    if options.smoke:
        runtime.DEVICES.append("cpu")
        small = {"wrn-28-2": ("wrn-tiny", 8), "wrn-34-2": ("wrn-tiny", 8), "resnetv2-101": ("resnetv2-50", 32)}
        cases = {name: Case(*small.get(name, (case.network, 32)), 1, case.images) for name, case in cases.items()}
    elif options.chain:
        compile_chain(cases[options.networks[0]], machine, options.only, options.chain)
        return
    elif options.compile_seconds:
        compile_first(cases, options.only, machine, options.compile_seconds)
        print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    results: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.date.today().isoformat(),
        "machine": str(machine),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "triton", "numpy")},
        "percent_slower": "median over rounds of: without it, over all on, timed right before",
        "networks": {},
    }
    for case in cases.values():
        results["networks"][str(case)] = measure(case, machine, options.only, 1 if options.smoke else ROUNDS)
        print(
            f"{case}: {results['networks'][str(case)]['kernels_ms']}; {time.perf_counter() - began:.0f} s so far",
            flush=True,
        )
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1))
    print(f"\n{results['machine']}; {results['versions']}\n{table(results)}\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

"""Checks the Triton kernels on a GPU against float64, and times them against PyTorch's own at the shapes of the wide resnets.

python benchmarks/kernels.py --out results/kernels.json
"""

import argparse
import importlib.metadata
import json
import statistics
import traceback
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d
from torch.nn.grad import conv2d_weight

from adamatch.kernels import conv_kernels, fused_norm, norm_kernels
from adamatch.kernels.layout import Plan
from adamatch.networks import norm
from adamatch.networks.conv import Conv
from adamatch.networks.norm import BatchNorm

NORMS = [  # images, channels, side: WRN-28-2 at 32x32, then WRN-34-2 at 64x64
    (640, 16, 32), (640, 32, 32), (640, 64, 16), (640, 128, 8), (640, 32, 64), (640, 64, 32), (640, 128, 16),
]  # fmt: skip
CONVS = [  # images, channels in, channels out, side
    (640, 16, 32, 32), (640, 32, 32, 32), (640, 64, 64, 16), (640, 16, 32, 64), (640, 32, 32, 64), (640, 64, 64, 32),
]  # fmt: skip
PLANS = [(4096, 4, 396), (4096, 4, 528), (2048, 4, 640), (8192, 8, 264), (4096, 8, 528)]  # tile, warps, programs
SPLITS: list[dict[str, Any]] = [
    {"pixels": 64, "warps": 4, "stages": 1},
    {"pixels": 64, "warps": 4, "stages": 2},
    {"pixels": 64, "warps": 4, "stages": 3},
    {"pixels": 64, "warps": 8, "stages": 2},
    {"pixels": 128, "warps": 4, "stages": 1},
    {"pixels": 128, "warps": 8, "stages": 2},
    {"pixels": 64, "warps": 4, "stages": 2, "carry": True},
    {"pixels": 64, "warps": 4, "stages": 2, "kys": 1},
    {"pixels": 64, "warps": 8, "stages": 2, "kys": 1},
    {"pixels": 128, "warps": 8, "stages": 2, "kys": 1},
    {"pixels": 64, "warps": 4, "stages": 2, "rows": 16},
]
TILES = [(64, 4), (128, 4), (256, 8)]  # pixels, warps of the convolution itself
EPS, SLOPE = 1e-6, 0.1


def images(n: int, c: int, side: int) -> Tensor:
    return torch.randn(n, c, side, side, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)


def error(out: Tensor, reference: Tensor) -> float:
    return float((out.detach().double() - reference.detach()).norm() / reference.detach().norm())


def microseconds(calls: list[Callable[[], object]]) -> float:
    """Median time of one call. The calls work on different data, lest the cache hold it, and replay as one graph."""
    for call in calls * 2:
        call()
    torch.cuda.synchronize()
    event: Any = torch.cuda.Event
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls * 4:
            call()
    times: list[float] = []
    for _ in range(12):
        start, stop = (event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1000 / len(calls * 4))
    return statistics.median(times[2:])


def sets(
    make: Callable[[], tuple[Any, ...]], call: Callable[..., object], copies: int = 3
) -> list[Callable[[], object]]:
    return [partial(call, *make()) for _ in range(copies)]


def copy_rate() -> float:
    """Bytes a microsecond, read and written."""
    a, b = (torch.empty(2**30, dtype=torch.uint8, device="cuda").random_() for _ in range(2))
    return 2 * 2**30 / microseconds([lambda: b.copy_(a)])


def check_norm(n: int, c: int, side: int, groups: tuple[int, ...]) -> dict[str, float]:
    """Relative errors of outputs and gradients against float64."""
    tensors = [
        images(n, c, side) * 2 + 1,
        images(n, c, side),
        torch.randn(c, device="cuda"),
        torch.randn(c, device="cuda"),
    ]
    seeds, settings = [images(n, c, side), images(n, c, side)], (None, None, groups, 0.0, EPS, SLOPE)
    ours = [t.clone().requires_grad_() for t in tensors]
    function: Any = fused_norm.add_norm_act
    outputs = function(*ours, *settings)
    torch.autograd.backward(outputs, seeds)
    twin = [t.double().requires_grad_() for t in tensors]
    total = (twin[0] + twin[1]).detach().bfloat16().double() - (twin[0] + twin[1]).detach() + (twin[0] + twin[1])
    references = (total, norm.norm_act(total, twin[2], twin[3], *settings))
    torch.autograd.backward(references, [s.double() for s in seeds])
    names = ["total", "y", "da", "db", "dweight", "dbias"]
    pairs = [*zip(outputs, references, strict=True), *((a.grad, b.grad) for a, b in zip(ours, twin, strict=True))]
    assert all(a is not None and b is not None for a, b in pairs)
    return {name: error(a, b) for name, (a, b) in zip(names, pairs, strict=True) if a is not None and b is not None}


def norms(n: int, c: int, side: int, rate: float) -> dict[str, Any]:
    groups = [n // 5, n - n // 5]
    errors = check_norm(n, c, side, tuple(groups))
    weight, bias = torch.randn(c, device="cuda"), torch.randn(c, device="cuda")
    size = n * c * side * side * 2

    def make(count: int) -> Callable[[], tuple[Tensor, ...]]:
        return lambda: tuple(images(n, c, side) for _ in range(count))

    parts: dict[str, dict[str, float]] = {}
    for tile, warps, programs in PLANS:
        Plan.tile, Plan.warps, Plan.programs = tile, warps, programs
        plan = Plan(images(n, c, side), groups)
        stats = norm_kernels.moments(plan, images(n, c, side))
        means = torch.zeros_like(stats)
        rest = (weight, bias, EPS, SLOPE)
        calls: dict[str, tuple[int, Callable[..., object]]] = {
            "moments": (1, partial(norm_kernels.moments, plan)),
            "add_moments": (3, partial(norm_kernels.moments, plan)),
            "apply": (2, partial(lambda plan, a, x, y: norm_kernels.apply(plan, x, y, *a), plan, (stats, *rest))),
            "grad_means": (
                2,
                partial(lambda plan, a, dy, x: norm_kernels.grad_means(plan, dy, x, *a), plan, (stats, *rest)),
            ),
            "grad_input": (
                4,
                partial(
                    lambda plan, a, *images: norm_kernels.grad_input(plan, *images, *a), plan, (stats, means, *rest)
                ),
            ),
        }
        for name, (count, call) in calls.items():
            try:
                took = microseconds(sets(make(count), call))
                parts.setdefault(name, {"floor": count * size / rate})[f"{tile}/{warps}/{programs}"] = took
            except Exception as problem:
                print(f"norm {(n, c, side)} {name} {tile}/{warps}/{programs}: {problem!r}")
    Plan.tile, Plan.warps, Plan.programs = PLANS[1]

    def whole(function: Callable[..., Tensor], sizes: tuple[int, ...]) -> Callable[..., object]:
        def both(x: Tensor, dy: Tensor) -> object:
            x = x.detach().requires_grad_()
            y = function(x, weight.requires_grad_(), bias.requires_grad_(), None, None, sizes, 0.0, EPS, SLOPE)
            return torch.autograd.grad(y, (x, weight, bias), dy)

        return both

    compiled = torch.compile(norm.norm_act, dynamic=False, fullgraph=True)
    versions = {
        "fused, two groups": whole(fused_norm.norm_act, tuple(groups)),
        "fused, one group": whole(fused_norm.norm_act, (n,)),
        "eager, one group": whole(norm.norm_act, (n,)),
        "inductor, one group": whole(compiled, (n,)),
        "inductor, two groups": whole(compiled, tuple(groups)),
    }
    return {"errors": errors, "parts": parts, "forward and backward": attempt(versions, make(2), floor=8 * size / rate)}


def attempt(
    versions: dict[str, Callable[..., object]], make: Callable[[], tuple[Any, ...]], floor: float
) -> dict[str, float]:
    times = {"floor": floor}
    for name, call in versions.items():
        try:
            times[name] = microseconds(sets(make, call))
        except Exception as problem:
            print(f"{name}: {problem!r}")
    return times


def convs(n: int, ci: int, co: int, side: int, rate: float) -> dict[str, Any]:
    weight = torch.randn(co, ci, 3, 3, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    settings = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)

    def make(n: int = n) -> tuple[Tensor, ...]:
        return images(n, ci, side), images(n, co, side)

    x, dy = make(70)  # float64 convolutions are slow
    reference = conv2d_weight(x.double(), weight.shape, dy.double(), padding=1)  # type: ignore[no-untyped-call]
    backward = torch.ops.aten.convolution_backward
    times = attempt(
        {
            "cudnn forward": lambda x, dy: conv2d(x, weight, padding=1),
            "cudnn data gradient": lambda x, dy: backward(dy, x, weight, *settings, [True, False, False]),
            "cudnn weight gradient": lambda x, dy: backward(dy, x, weight, *settings, [False, True, False]),
        },
        make,
        floor=n * side * side * (ci + co) * 2 / rate,
    )
    references = (
        conv2d(x.double(), weight.double(), padding=1),
        conv_transpose2d(dy.double(), weight.double(), padding=1),
    )
    errors = {"cudnn": error(backward(dy, x, weight, *settings, [False, True, False])[1], reference)}
    for options in SPLITS:
        name = ",".join(f"{key}={value}" for key, value in options.items())
        dw = torch.full_like(weight, float("nan"))
        try:
            conv_kernels.weight_grad(x, dy, dw, **options)
            errors[name] = error(dw, reference)
            times[name] = microseconds(
                sets(make, lambda x, dy, dw=dw, options=options: conv_kernels.weight_grad(x, dy, dw, **options))
            )
        except Exception as problem:
            print(f"conv {(n, ci, co, side)} {name}: {str(problem)[:300]}")
    for (block, warps), transposed in product(TILES, (False, True)):
        name = f"{'data gradient' if transposed else 'forward'} {block}/{warps}"
        out = torch.full_like(x if transposed else dy, float("nan"))
        try:
            call = partial(conv_kernels.convolve, weight=weight, transposed=transposed, block=block, warps=warps)
            call(dy if transposed else x, y=out)
            errors[name] = error(out, references[transposed])
            pairs = [make()[::-1] if transposed else make() for _ in range(3)]
            times[name] = microseconds([partial(call, into, y=out) for into, out in pairs])
        except Exception as problem:
            print(f"conv {(n, ci, co, side)} {name}: {str(problem)[:300]}")
    return {"errors": errors, "times": times}


class Blocks(nn.Module):
    """Four pre-activation residual blocks, each norm adding what the block before it left."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(BatchNorm(channels) for _ in range(9))
        self.convs = nn.ModuleList(Conv(channels, channels, 3) for _ in range(8))

    def forward(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        branch, skip = x, x * 0.5
        for i in range(0, 8, 2):
            first: Any = self.norms[i]
            skip, y = first.add(branch, skip, groups)
            branch = self.convs[i + 1](self.norms[i + 1](self.convs[i](y), groups))
        last: Any = self.norms[8]
        total, y = last.add(branch, skip, groups)
        out: Tensor = total + y
        return out


def blocks(n: int, c: int, side: int, rate: float) -> dict[str, Any]:
    """Forward and backward of four blocks, compiled: what the kernels bring where they are used."""
    groups, weights, results, grads = (n // 5, n - n // 5), None, {}, {}
    for name, on, sizes in (
        ("fused", True, groups),
        ("fused norm", True, groups),
        ("plain", False, groups),
        ("plain, one", False, None),
    ):
        torch._dynamo.reset()
        net: Any = Blocks(c).cuda()
        net = net.to(memory_format=torch.channels_last)
        weights = weights or net.state_dict()
        net.load_state_dict(weights)
        fused_norm.use(net, on)
        if name == "fused norm":
            fused_norm.use(net.convs, False)
        compiled = torch.compile(net, fullgraph=True, dynamic=False)

        def both(x: Tensor, compiled: Any = compiled, net: nn.Module = net, sizes: Any = sizes) -> list[Tensor]:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                y = compiled(x, groups=sizes)
            return list(torch.autograd.grad(y, list(net.parameters()), y.detach()))

        try:
            torch.manual_seed(0)
            grads[name] = both(images(n, c, side))
            results[name] = microseconds(sets(lambda: (images(n, c, side),), both))
        except Exception:
            print(f"blocks {name}: {traceback.format_exc()[-3000:]}")
    if "fused" in grads and "plain" in grads:
        results["difference"] = max(error(a, b.double()) for a, b in zip(grads["fused"], grads["plain"], strict=True))
    return results


def guarded(results: dict[str, Any], key: str, function: Callable[[], dict[str, Any]]) -> None:
    try:
        results[key] = function()
    except Exception:
        print(f"{key}: {traceback.format_exc()[-3000:]}", flush=True)
    torch.cuda.empty_cache()


def table(results: dict[str, Any]) -> None:
    for key, result in results.items():
        if key.startswith("norm"):
            print(f"{key}: worst error {max(result['errors'].values()):.1e}")
            for name, times in result["parts"].items():
                best = min((t, k) for k, t in times.items() if k != "floor")
                print(f"  {name:12} {best[0]:7.1f} us  floor {times['floor']:6.1f}  {best[1]}")
            print("  " + "  ".join(f"{k} {t:.0f}" for k, t in result["forward and backward"].items()))
        elif key.startswith("conv"):
            times = {k: t for k, t in result["times"].items() if not k.startswith(("cudnn", "floor"))}
            print(f"{key}: " + "  ".join(f"{k} {t:.0f}" for k, t in result["times"].items() if k not in times))
            for start in ("pixels", "forward", "data"):
                for t, k in sorted((t, k) for k, t in times.items() if k.startswith(start))[
                    : 3 if start == "pixels" else 1
                ]:
                    print(f"  triton {t:7.1f} us  error {result['errors'][k]:.1e}  {k}")
        elif key.startswith("blocks"):
            print(f"{key}: " + "  ".join(f"{k} {t:.4g}" for k, t in result.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of a name, such as 'conv' or 'norm (640, 32, 32)'")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    rate = copy_rate()
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton"),
        "copy, TB/s": rate / 1e6,
    }
    print(results, flush=True)
    jobs: list[tuple[str, Callable[..., dict[str, Any]], tuple[int, ...]]] = [
        *((f"norm {shape}", norms, shape) for shape in NORMS),
        *((f"conv {shape}", convs, shape) for shape in CONVS),
        *((f"blocks {shape}", blocks, shape) for shape in ((640, 32, 32), (640, 64, 16), (640, 128, 8))),
    ]
    for key, function, shape in jobs:
        if options.only in key:
            guarded(results, key, partial(function, *shape, rate))
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(results, indent=1))
    table(results)


if __name__ == "__main__":
    main()

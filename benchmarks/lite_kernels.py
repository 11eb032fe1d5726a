"""Checks and times the norm and depthwise kernels against PyTorch's own, at every shape of EfficientNet-Lite0.

python benchmarks/lite_kernels.py --out results/lite_kernels.json

Times are of one call, from the replay of a CUDA graph. `share`: of the rate at which memory is copied, had every image been
read and written as often as the kernels must. Several processes first compile the kernels, each its part.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from kernels import copy_rate, error, microseconds
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from adamatch.kernels import depthwise_kernels, fused_depthwise, layout
from adamatch.networks import norm
from adamatch.networks.conv import Depthwise, same_padding
from adamatch.networks.efficientnet_lite import EfficientNetLite, Inverted
from adamatch.networks.norm import BatchNorm

EPS = 1e-3
DEVICE = "cuda"
CACHE = 120e6  # bytes: more than the GPU's cache holds, so that calls on different data do not find each other's
OPS: Any = torch.ops.adamatch
Call = Callable[..., object]


class Shape(NamedTuple):
    """A layer: `what` is relu6, none or skip (a norm), or conv (depthwise: its side and stride)."""

    what: str
    channels: int
    height: int
    size: int = 0
    stride: int = 1

    def __str__(self) -> str:
        conv = f" {self.size}x{self.size}/{self.stride}" if self.what == "conv" else ""
        return f"{self.what} {self.channels}@{self.height}{conv}"


def shapes(pixels: int) -> Counter[Shape]:
    """How often each occurs in Lite0."""
    with torch.device("meta"):
        net = EfficientNetLite(10).eval()
        x = torch.empty(1, 3, pixels, pixels)
    skips = {id(module.bn3) for module in net.modules() if isinstance(module, Inverted) and module.skips}
    found: Counter[Shape] = Counter()

    def see(module: nn.Module, given: tuple[Any, ...]) -> None:
        if isinstance(module, BatchNorm):
            channels, height = given[0].shape[1:3]
            what = "skip" if id(module) in skips else "relu6" if module.ceiling else "none"
            found[Shape(what, channels, height)] += 1
        elif isinstance(module, Depthwise):
            channels, height = given[0].shape[1:3]
            found[Shape("conv", channels, height, module.kernel_size[0], module.stride[0])] += 1

    for module in net.modules():
        module.register_forward_pre_hook(see)
    net(x)
    return found


def images(n: int, c: int, side: int) -> Tensor:
    x = torch.empty(n, c, side, side, device=DEVICE, dtype=torch.bfloat16, memory_format=torch.channels_last)
    return x.normal_()


def timed(call: Call, make: Callable[[], tuple[Tensor, ...]]) -> float:
    given = make()
    bytes_ = sum(t.numel() * t.element_size() for t in given)
    copies = max(1, min(4, -(-int(CACHE) // bytes_)))
    return microseconds([partial(call, *given), *(partial(call, *make()) for _ in range(copies - 1))])


class Part(NamedTuple):
    """One thing to time: how many images are read and written by it, and by whom it is done. `eager_less` is taken off."""

    bytes: float
    ours: Call
    eager: Call
    eager_less: str = ""


def norm_parts(
    shape: Shape, n: int
) -> tuple[dict[str, Part], Callable[[], tuple[Tensor, ...]], Callable[[], dict[str, float]]]:
    groups = [n // 4, n - n // 4]
    slope, ceiling = (0.0, 6.0) if shape.what == "relu6" else (1.0, None)
    weight, bias = torch.rand(shape.channels, device=DEVICE) + 0.5, torch.randn(shape.channels, device=DEVICE)
    ours, twin = (groups, EPS, slope, False, ceiling), (None, None, tuple(groups), 0.0, EPS, slope, False, ceiling)
    size = n * shape.channels * shape.height**2 * 2
    skip = shape.what == "skip"
    stats = torch.ones(2, 2, shape.channels, device=DEVICE)

    def make() -> tuple[Tensor, ...]:
        return tuple(images(n, shape.channels, shape.height) for _ in range(2))

    def forward(x: Tensor, other: Tensor) -> Any:
        return OPS.norm_act_then_add(x, other, weight, bias, *ours) if skip else OPS.norm_act(x, weight, bias, *ours)

    def plain(x: Tensor, other: Tensor, weight: Tensor = weight, bias: Tensor = bias) -> Tensor:
        y = norm.norm_act(x, weight, bias, *twin)
        return other + y if skip else y

    def both(x: Tensor, dy: Tensor) -> object:
        inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
        return torch.autograd.grad(plain(inputs[0], dy, inputs[1], inputs[2]), inputs, dy)

    def check() -> dict[str, float]:
        x, other = make()
        dy, leaves = images(*x.shape[:3]), [t.detach().float().requires_grad_() for t in (x, weight, bias)]
        wanted = plain(leaves[0], other, leaves[1], leaves[2])
        grads = torch.autograd.grad(wanted, leaves, dy.float())
        y, found = forward(x, other)
        ours_grads = OPS.norm_act_grad(dy, None, x, found, weight, bias, *ours)
        names = ("y", "dx", "dweight", "dbias")
        return {k: error(a, b) for k, a, b in zip(names, (y, *ours_grads), (wanted, *grads), strict=True)}

    backward = partial(lambda x, dy: OPS.norm_act_grad(dy, None, x, stats, weight, bias, *ours))
    parts = {
        "forward": Part((4 if skip else 3) * size, forward, torch.no_grad()(plain)),
        "backward": Part(5 * size, backward, both, "forward"),
    }
    return parts, make, check


def conv_parts(
    shape: Shape, n: int
) -> tuple[dict[str, Part], Callable[[], tuple[Tensor, ...]], Callable[[], dict[str, float]]]:
    _, c, side, size, stride = shape
    before, after = same_padding(side, size, stride)
    out = -(-side // stride)
    weight = torch.randn(c, 1, size, size, device=DEVICE)
    given = (stride, [before, before])
    even = before == after
    settings = (None, [stride] * 2, [before if even else 0] * 2, [1, 1], False, [0, 0], c)
    bytes_ = n * c * (side**2 + out**2) * 2

    def make() -> tuple[Tensor, ...]:
        return images(n, c, side), images(n, c, out)

    def padded(x: Tensor) -> Tensor:
        return x if even else pad(x, (before, after, before, after))

    def plain(x: Tensor, weight: Tensor) -> Tensor:
        return conv2d(padded(x), weight, None, stride, before if even else 0, 1, c)

    def backward(x: Tensor, dy: Tensor, wanted: list[bool]) -> object:
        grads = torch.ops.aten.convolution_backward(dy, padded(x), weight.bfloat16(), *settings, wanted)
        return (
            grads[0][:, :, before : before + side, before : before + side].contiguous()
            if wanted[0]
            else grads[1].float()
        )

    def check() -> dict[str, float]:
        x, dy = make()
        leaves = [x.float().requires_grad_(), weight.clone().requires_grad_()]
        wanted = plain(*leaves)
        grads = torch.autograd.grad(wanted, leaves, dy.float())
        y, dx = OPS.depthwise(x, weight, *given), OPS.depthwise_input_grad(dy, x, weight, *given)
        found = (y, dx, OPS.depthwise_weight_grad(dy, x, weight, *given))
        return {k: error(a, b) for k, a, b in zip(("y", "dx", "dweight"), found, (wanted, *grads), strict=True)}

    parts = {
        "forward": Part(
            bytes_, lambda x, dy: OPS.depthwise(x, weight, *given), lambda x, dy: plain(x, weight.bfloat16())
        ),
        "input gradient": Part(
            bytes_,
            lambda x, dy: OPS.depthwise_input_grad(dy, x, weight, *given),
            lambda x, dy: backward(x, dy, [True, False, False]),
        ),
        "weight gradient": Part(
            bytes_,
            lambda x, dy: OPS.depthwise_weight_grad(dy, x, weight, *given),
            lambda x, dy: backward(x, dy, [False, True, False]),
        ),
    }
    return parts, make, check


@contextmanager
def changed(of: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)


def variants(shape: Shape, part: str) -> dict[str, tuple[Any, str, Any]]:
    """What else might be faster: a name, and what is changed."""
    if shape.what != "conv":
        whole = 1 << (shape.channels - 1).bit_length()
        widths = {w for w in (32, 64, 128, 256, whole) if w <= whole} - {layout.columns(shape.channels)}
        return {
            f"{w} columns": (layout, "columns", lambda c, w=w: w) for w in sorted(widths) if shape.channels != whole
        }
    if part == "weight gradient":
        return {f"{steps} steps": (depthwise_kernels, "STEPS", steps) for steps in (2, 8, 16)}
    if part == "input gradient" and shape.stride == 2:
        return {"tile of 2048": (depthwise_kernels, "SMALL_TILE", 2048)}
    return {"tile of 1024": (depthwise_kernels, "TILE", 1024)}


def attempt(where: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as problem:
        print(f"{where}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
        return None


def warm(todo: list[Shape], n: int, tune: bool) -> None:
    for shape in todo:
        parts, make, _ = (conv_parts if shape.what == "conv" else norm_parts)(shape, n)
        given = make()
        for name, part in parts.items():
            part.ours(*given)
            for how in variants(shape, name).values() if tune else ():
                with changed(*how):
                    attempt(f"{shape} {name} {how}", partial(part.ours, *given))
        torch.cuda.synchronize()
        del given
        torch.cuda.empty_cache()


def measure(shape: Shape, n: int, rate: float, tune: bool) -> dict[str, Any]:
    parts, make, check = (conv_parts if shape.what == "conv" else norm_parts)(shape, n)
    result: dict[str, Any] = {"errors": attempt(f"{shape} check", check)}
    torch.cuda.empty_cache()
    for name, part in parts.items():
        row: dict[str, Any] = {"floor": part.bytes / rate}
        for who, call in (("ours", part.ours), ("eager", part.eager)):
            row[who] = attempt(f"{shape} {name} {who}", partial(timed, call, make))
        if part.eager_less and row["eager"] and result[part.eager_less]["eager"]:
            row["eager"] -= result[part.eager_less]["eager"]
        for variant, how in variants(shape, name).items() if tune else ():
            with changed(*how):
                row[variant] = attempt(f"{shape} {name} {variant}", partial(timed, part.ours, make))
        result[name] = row
    return result


def table(results: dict[str, Any]) -> None:
    print(f"{'':22} {'':16} {'ours us':>9} {'eager us':>9} {'floor us':>9} {'share':>6} {'times':>6}  error")
    sums: dict[str, list[float]] = {}
    for key, result in results["layers"].items():
        worst = f"{max(result['errors'].values()):.1e}" if result["errors"] else "?"
        for name, row in result.items():
            if name in ("errors", "count"):
                continue
            ours, eager = row["ours"], row["eager"]
            said = [f"{v:9.1f}" if v else f"{'?':>9}" for v in (ours, eager, row["floor"])]
            gain = f"{eager / ours:6.2f}" if ours and eager else f"{'?':>6}"
            rest = "  ".join(f"{k} {v:.1f}" for k, v in row.items() if k not in ("ours", "eager", "floor") and v)
            share = f"{row['floor'] / ours:6.2f}" if ours else f"{'?':>6}"
            print(f"{key:22} {name:16} {' '.join(said)} {share} {gain}  {worst}  {rest}")
            total = sums.setdefault(f"{'conv' if key.startswith('conv') else 'norm'} {name}", [0.0, 0.0, 0.0])
            for i, value in enumerate((ours or 0, eager or 0, row["floor"])):
                total[i] += value * result["count"] / 1000
    print("all layers of one pass, ms: ours, eager, floor")
    for name, total in sums.items():
        print(f"{name:22} " + " ".join(f"{value:8.2f}" for value in total))
    results["totals, ms"] = sums


def compile_apart(processes: int, options: argparse.Namespace) -> None:
    """Triton keeps what it compiled in a folder that all processes share."""
    flags = ["--images", str(options.images), "--only", options.only, *["--tune"] * options.tune]
    command = [sys.executable, __file__, *flags, "--warm", str(processes)]
    running = [subprocess.Popen([*command, "--part", str(i)]) for i in range(processes)]
    for process in running:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--only", default="", help="part of a name, such as 'conv', 'relu6 96@112' or 'conv 144'")
    parser.add_argument("--tune", action="store_true", help="other tilings as well")
    parser.add_argument("--processes", type=int, default=8, help="that compile; 0: compile while measuring")
    parser.add_argument("--warm", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    began = time.perf_counter()
    found = {shape: count for shape, count in shapes(224).items() if options.only in str(shape)}
    if options.warm:
        todo = [shape for i, shape in enumerate(found) if i % options.warm == options.part]
        for shape in todo:
            attempt(str(shape), partial(warm, [shape], options.images, options.tune))
        return
    if options.processes:
        compile_apart(options.processes, options)
        print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rate = copy_rate()
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton"),
        "images": options.images,
        "switches": {name: getattr(fused_depthwise, name) for name in ("FORWARD", "INPUT_GRAD", "WEIGHT_GRAD")},
        "copy, TB/s": rate / 1e6,
        "layers": {},
    }
    for shape, count in found.items():
        result = attempt(str(shape), partial(measure, shape, options.images, rate, options.tune))
        attempt(str(shape), torch.cuda.empty_cache)
        if result:
            results["layers"][str(shape)] = {"count": count, **result}
            write(options.out, results)
    table(results)
    write(options.out, results)
    print(f"{time.perf_counter() - began:.1f} s in all")


def write(out: Path | None, results: dict[str, Any]) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

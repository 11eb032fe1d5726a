"""The Triton kernels, in Triton's interpreter where there is no GPU, against float64 autograd of their plain twins."""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, conv_transpose2d, relu6
from torch.nn.grad import conv2d_weight

from adamatch.kernels import fused_conv, fused_depthwise, fused_norm
from adamatch.kernels.layout import Plan, columns
from adamatch.networks import norm
from adamatch.networks.conv import Conv

triton = pytest.importorskip("triton", reason="Triton is not installed: the plain twins run instead")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NARROW = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies the bits of bfloat16
NETS = Path(fused_norm.__file__).parent
OURS: Any = fused_norm
CONV: Any = fused_conv
TWIN: Any = norm


def interpreted(name: str) -> ModuleType:
    """A second copy of a module of kernels: Triton decides when a kernel is defined whether it will be interpreted."""
    spec = importlib.util.spec_from_file_location(f"interpreted_{name}", NETS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            interpret(patch)
        yield


def interpret(patch: pytest.MonkeyPatch) -> None:
    """From now on the kernels run in Triton's interpreter."""
    patch.setenv("TRITON_INTERPRET", "1")
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    if isinstance(triton.language.sum, triton.JITFunction):  # Triton's own, defined before the setting above
        patch.setattr(triton.language, "sum", interpreter.InterpretedFunction(triton.language.sum.fn))
    patch.setattr(fused_norm, "norm_kernels", interpreted("norm_kernels"))
    patch.setattr(fused_conv, "conv_kernels", interpreted("conv_kernels"))
    patch.setattr(fused_depthwise, "depthwise_kernels", interpreted("depthwise_kernels"))


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype).contiguous(memory_format=torch.channels_last)


def error(out: Tensor, reference: Tensor) -> float:
    out = out.double()
    return float((out - reference).norm() / reference.norm())


def gradients(function: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], seeds: list[Tensor]) -> list[Tensor]:
    """Outputs, then the gradients of all inputs."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    outputs = function(*inputs)
    torch.autograd.backward(outputs, [seed.to(o.dtype) for seed, o in zip(seeds, outputs, strict=True)])
    grads = [t.grad for t in inputs]
    assert all(g is not None for g in grads)
    return [*(o.detach() for o in outputs), *(g for g in grads if g is not None)]


CASES = [  # images, channels, height, width, groups
    (4, 16, 4, 4, (4,)),
    (5, 16, 3, 5, (2, 3)),
    (9, 64, 7, 7, (8, 1)),
    (6, 32, 5, 1, (1, 5)),
    (2, 128, 8, 8, (1, 1)),
    (1, 256, 3, 3, (1,)),
    (5, 8, 3, 5, (2, 3)),
    (4, 13, 4, 3, (1, 3)),
    (4, 24, 5, 5, (4,)),
    (5, 96, 5, 4, (3, 2)),  # blocks of 32 channels
    (3, 200, 3, 3, (1, 2)),  # blocks of 32, the last one masked
    (2, 288, 2, 2, (1, 1)),  # blocks of 64, the last one masked
]


@pytest.mark.parametrize(("n", "c", "h", "w", "groups"), CASES)
@pytest.mark.parametrize("activation", [(0.1, None), (1.0, None), (0.0, 0.7)], ids=["leaky", "none", "cut"])
def test_norm_act_and_its_gradients(
    n: int, c: int, h: int, w: int, groups: tuple[int, ...], activation: tuple[float, float | None]
) -> None:
    slope, ceiling = activation
    inputs, dy = (
        [images(n, c, h, w) * 2 + 1, torch.randn(c, device=DEVICE), torch.randn(c, device=DEVICE)],
        images(n, c, h, w),
    )
    settings = (None, None, groups, 0.0, 1e-6, slope, False, ceiling)
    ours = gradients(lambda x, g, b: (OURS.norm_act(x, g, b, *settings),), inputs, [dy])
    twin = gradients(lambda x, g, b: (TWIN.norm_act(x, g, b, *settings),), [t.double() for t in inputs], [dy])
    for out, reference in zip(ours, twin, strict=True):
        assert error(out, reference) < 1e-5


@pytest.mark.parametrize("used", ["both", "activation"])
def test_add_norm_act_and_its_gradients(used: str) -> None:
    n, c, h, w, groups = 7, 32, 3, 5, (3, 4)
    inputs = [images(n, c, h, w), images(n, c, h, w), torch.randn(c, device=DEVICE), torch.randn(c, device=DEVICE)]
    seeds, settings = [images(n, c, h, w), images(n, c, h, w)], (None, None, groups, 0.0, 1e-6, 0.1)
    part = slice(0, 2) if used == "both" else slice(1, 2)

    def plain(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = (a + b, TWIN.norm_act(a + b, weight, bias, *settings))
        return outputs[part]

    ours = gradients(lambda *t: OURS.add_norm_act(*t, *settings)[part], inputs, seeds[part])
    for out, reference in zip(ours, gradients(plain, [t.double() for t in inputs], seeds[part]), strict=True):
        assert error(out, reference) < 1e-5


@pytest.mark.parametrize(("c", "groups"), [(16, (7,)), (24, (3, 4)), (144, (3, 4))])
@pytest.mark.parametrize("activation", [(1.0, None), (0.0, 0.7)], ids=["none", "cut"])
def test_norm_act_then_add_and_its_gradients(
    c: int, groups: tuple[int, ...], activation: tuple[float, float | None]
) -> None:
    slope, ceiling = activation
    inputs = [images(7, c, 3, 5), images(7, c, 3, 5), torch.randn(c, device=DEVICE), torch.randn(c, device=DEVICE)]
    seeds, settings = [images(7, c, 3, 5)], (None, None, groups, 0.0, 1e-3, slope, False, ceiling)

    def plain(x: Tensor, skip: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
        return (skip + TWIN.norm_act(x, weight, bias, *settings),)

    ours = gradients(lambda *t: (OURS.norm_act_then_add(*t, *settings),), inputs, seeds)
    for out, reference in zip(ours, gradients(plain, [t.double() for t in inputs], seeds), strict=True):
        assert error(out, reference) < 1e-5


@pytest.mark.parametrize(("n", "c", "h", "w", "groups"), CASES[::3])
@pytest.mark.parametrize("activation", [(0.1, None), (1.0, None), (0.0, 0.7)], ids=["leaky", "none", "cut"])
def test_norm_by_running_statistics(
    n: int,
    c: int,
    h: int,
    w: int,
    groups: tuple[int, ...],
    activation: tuple[float, float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = norm.BatchNorm(c, eps=1e-3, slope=activation[0], ceiling=activation[1]).to(DEVICE).eval()
    for values in (layer.weight, layer.bias, layer.running_mean):
        assert values is not None
        torch.nn.init.normal_(values)
    assert layer.running_var is not None
    layer.running_var.uniform_(0.5, 2)
    x = images(n, c, h, w) * 2 + 1
    seeds, inputs = [images(n, c, h, w)], [x, layer.weight.detach(), layer.bias.detach()]

    def output(layer: norm.BatchNorm, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
        return (torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x),)

    layer.fused = False
    twin = copy.deepcopy(layer).double()
    expected = gradients(partial(output, twin), [t.double() for t in inputs], seeds)
    layer.fused = True
    called = []
    plain = fused_norm.recorded_norm_act

    def noted(*given: Any) -> Tensor:
        called.append(1)
        return plain(*given)

    monkeypatch.setattr(fused_norm, "recorded_norm_act", noted)
    monkeypatch.setattr(fused_norm, "norm_runs_on", lambda x, groups: True)
    for out, reference in zip(gradients(partial(output, layer), inputs, seeds), expected, strict=True):
        assert error(out, reference) < 1e-5
    assert called


def test_channels_are_dealt_with_little_padding() -> None:
    assert [columns(2**i) for i in range(3, 12)] == [8, 16, 32, 64, 128, 256, 512, 1024, 256]
    assert [columns(c) for c in (13, 24, 40, 80)] == [16, 32, 64, 128]  # all of them, padded
    assert [columns(c) for c in (96, 112, 144, 192, 672, 1152)] == [32, 128, 32, 64, 256, 256]


def test_relu6_is_pytorchs() -> None:
    x = images(4, 24, 3, 3) * 3
    y = OURS.norm_act(x, torch.full((24,), 9.0, device=DEVICE), torch.ones(24, device=DEVICE), None, None, (4,), 0.0, 1e-3, 0.0,
                      False, 6.0)  # fmt: skip
    plain = batch_norm(
        x, None, None, torch.full((24,), 9.0, device=DEVICE), torch.ones(24, device=DEVICE), True, 0.0, 1e-3
    )
    torch.testing.assert_close(y, relu6(plain))
    assert float(y.max()) == 6.0


def test_bfloat16_images_have_float32_statistics() -> None:
    x, dy = images(16, 32, 4, 4, dtype=torch.bfloat16) * 3, images(16, 32, 4, 4)
    weight, bias = torch.randn(32, device=DEVICE), torch.randn(32, device=DEVICE)
    settings = (None, None, (4, 12), 0.0, 1e-6, 0.1)
    ours = gradients(lambda x, g, b: (OURS.norm_act(x, g, b, *settings),), [x, weight, bias], [dy])
    dy = dy.bfloat16()
    twin = gradients(
        lambda x, g, b: (TWIN.norm_act(x, g, b, *settings),), [t.double() for t in (x, weight, bias)], [dy]
    )
    assert [t.dtype for t in ours] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    assert max(error(out, reference) for out, reference in zip(ours[:2], twin[:2], strict=True)) < 4e-3
    assert max(error(out, reference) for out, reference in zip(ours[2:], twin[2:], strict=True)) < 1e-5


def test_a_mean_far_from_zero_costs_no_precision() -> None:
    x = images(6, 16, 8, 8) + 1000
    _, stats = torch.ops.adamatch.norm_act(
        x, torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE), [2, 4], 1e-6, 1.0
    )
    for i, part in enumerate(torch.split(x.double(), [2, 4])):
        assert error(stats[i, 0], part.mean((0, 2, 3))) < 1e-7
        assert error(stats[i, 1], part.var((0, 2, 3), correction=0)) < 1e-5


def test_the_last_groups_statistics_are_recorded() -> None:
    x, weight, bias = images(5, 16, 3, 3), torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    ours, twin = ([torch.rand(16, device=DEVICE) for _ in range(2)] for _ in range(2))
    twin = [t.clone() for t in ours]
    OURS.norm_act(x, weight, bias, *ours, (2, 3), 0.3, 1e-6, 0.1)
    TWIN.norm_act(x, weight, bias, *twin, (2, 3), 0.3, 1e-6, 0.1)
    torch.testing.assert_close(ours, twin)


def test_many_rows_go_through_several_tiles_and_parts() -> None:
    x = images(40, 16, 37, 3)
    plan = Plan(x, [11, 29])
    assert plan.parts > 2
    weight, bias = torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    y = OURS.norm_act(x, weight, bias, None, None, (11, 29), 0.0, 1e-6, 0.1)
    reference = TWIN.norm_act(x.double(), weight.double(), bias.double(), None, None, (11, 29), 0.0, 1e-6, 0.1)
    assert error(y, reference) < 1e-6


@pytest.mark.parametrize(
    ("n", "ci", "co", "h", "w"), [(3, 16, 32, 5, 16), (5, 32, 32, 3, 8), (2, 16, 64, 2, 16), (1, 16, 16, 3, 64)]
)
@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_conv3x3_and_its_gradients(n: int, ci: int, co: int, h: int, w: int, memory: torch.memory_format) -> None:
    x, dy = images(n, ci, h, w, dtype=NARROW), images(n, co, h, w, dtype=NARROW)
    weight = images(co, ci, 3, 3, dtype=NARROW).contiguous(memory_format=memory)
    ours = gradients(lambda x, k: (fused_conv.conv3x3(x, k),), [x, weight], [dy])
    twin = gradients(lambda x, k: (conv2d(x, k, padding=1),), [x.double(), weight.double()], [dy])
    for out, reference in zip(ours, twin, strict=True):
        assert error(out, reference) < 1e-2


@pytest.mark.parametrize(
    "options", [{"rows": 2}, {"carry": True}, {"carry": True, "rows": 3}, {"kys": 1}, {"pixels": 16}]
)
def test_every_way_to_split_the_weight_gradient_is_right(options: dict[str, int]) -> None:
    x, dy = images(3, 16, 7, 16, dtype=NARROW), images(3, 32, 7, 16, dtype=NARROW)
    dw = torch.full((32, 16, 3, 3), float("nan"), device=DEVICE)
    CONV.conv_kernels.weight_grad(x, dy, dw, **options)
    reference = conv2d_weight(x.double(), dw.shape, dy.double(), padding=1)  # type: ignore[no-untyped-call]
    assert error(dw, reference) < 1e-6


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_convolution_and_its_data_gradient(memory: torch.memory_format) -> None:
    x, dy = images(3, 16, 5, 8, dtype=NARROW), images(3, 32, 5, 8, dtype=NARROW)
    weight = images(32, 16, 3, 3, dtype=NARROW).contiguous(memory_format=memory)
    y, dx = torch.full_like(dy, float("nan")), torch.full_like(x, float("nan"))
    CONV.conv_kernels.convolve(x, weight, y)
    CONV.conv_kernels.convolve(dy, weight, dx, transposed=True)
    assert error(y, conv2d(x.double(), weight.double(), padding=1)) < 4e-3
    assert error(dx, conv_transpose2d(dy.double(), weight.double(), padding=1)) < 4e-3


def test_operators_are_well_formed() -> None:
    x, weight, bias = (
        images(4, 16, 4, 4).requires_grad_(),
        torch.randn(16, device=DEVICE),
        torch.randn(16, device=DEVICE),
    )
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    ops = torch.ops.adamatch
    torch.library.opcheck(ops.norm_act.default, (x, weight, bias, [1, 3], 1e-6, 0.1), test_utils=checks)
    torch.library.opcheck(
        ops.add_norm_act.default, (x, images(4, 16, 4, 4), weight, bias, [4], 1e-6, 0.1), test_utils=checks
    )
    skip = images(4, 16, 4, 4).requires_grad_()
    given = (x, skip, weight, bias, [1, 3], 1e-6, 0.0, False, 6.0)
    torch.library.opcheck(ops.norm_act_then_add.default, given, test_utils=checks)
    x = images(2, 16, 4, 8, dtype=NARROW).requires_grad_()
    torch.library.opcheck(ops.conv3x3.default, (x, images(16, 16, 3, 3, dtype=NARROW)), test_utils=checks)


def test_the_cpu_and_odd_shapes_take_the_twins() -> None:
    x = torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last)
    assert not fused_norm.norm_runs_on(x, (2,))
    conv = Conv(32, 32, 3)
    torch.testing.assert_close(conv(x), conv2d(x, conv.weight, padding=1))
    assert not fused_conv.runs_on(x.to(NARROW), conv.weight)

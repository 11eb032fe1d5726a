"""Kernels in Triton's interpreter where there is no GPU, and what their tests share."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from adamatch.kernels import conv_ops, depthwise_ops, norm_ops, runtime

triton = pytest.importorskip("triton", reason="Triton is not installed: plain PyTorch runs instead")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NARROW = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies the bits of bfloat16


def interpreted(name: str) -> ModuleType:
    """A second copy of a module of kernels: Triton decides when a kernel is defined whether it will be interpreted."""
    spec = importlib.util.spec_from_file_location(f"interpreted_{name}", Path(runtime.__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def interpret(patch: pytest.MonkeyPatch) -> None:
    """From now on the kernels run in Triton's interpreter."""
    patch.setenv("TRITON_INTERPRET", "1")
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    if isinstance(triton.language.sum, triton.JITFunction):  # Triton's own, defined before the setting above
        patch.setattr(triton.language, "sum", interpreter.InterpretedFunction(triton.language.sum.fn))
    patch.setattr(norm_ops, "norm_kernels", interpreted("norm_kernels"))
    patch.setattr(conv_ops, "conv_kernels", interpreted("conv_kernels"))
    patch.setattr(depthwise_ops, "depthwise_kernels", interpreted("depthwise_kernels"))


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype).contiguous(memory_format=torch.channels_last)


def error(out: Tensor, reference: Tensor) -> float:
    return float((out.double() - reference).norm() / reference.norm())


def gradients(function: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], seeds: list[Tensor]) -> list[Tensor]:
    """Outputs, then the gradients of all inputs."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    outputs = function(*inputs)
    torch.autograd.backward(outputs, [seed.to(o.dtype) for seed, o in zip(seeds, outputs, strict=True)])
    return [*(o.detach() for o in outputs), *(t.grad for t in inputs if t.grad is not None)]


def agree(ours: Callable[..., tuple[Tensor, ...]], twin: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor],
          seeds: list[Tensor], within: float = 1e-5) -> None:  # fmt: skip
    """Outputs and gradients are those of the twin in float64."""
    found, wanted = gradients(ours, inputs, seeds), gradients(twin, [t.double() for t in inputs], seeds)
    assert [each.shape for each in found] == [each.shape for each in wanted]
    assert max(error(out, reference) for out, reference in zip(found, wanted, strict=True)) < within

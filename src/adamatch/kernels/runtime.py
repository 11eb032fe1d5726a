"""How Triton's kernels are defined and launched, and how functions around them become operators of torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef
from torch._subclasses.fake_tensor import FakeTensor

try:
    import triton
except ImportError:  # it is for Linux
    triton = None

AVAILABLE = triton is not None
DEVICES = ["cuda"]  # where kernels run
WATCHERS: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], None]] = []  # of launches on fake tensors


def jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


def launch(kernel: Any, programs: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel in so many programs. On fake tensors (shapes only) nothing runs, and watchers are called."""
    if not any(isinstance(each, FakeTensor) for each in arguments):
        kernel[programs](*arguments, **options)
        return
    for watch in WATCHERS:
        watch(kernel, arguments, options)


def operator(name: str) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Make a function an operator, opaque to torch.compile. For the shapes of its outputs it runs on fake tensors."""

    def made(function: Callable[..., Any]) -> CustomOpDef:
        made = torch.library.custom_op(name, function, mutates_args=())
        made.register_fake(function)
        return made

    return made


def has_kernels(x: Tensor) -> bool:
    return AVAILABLE and x.device.type in DEVICES


def use(net: nn.Module, on: bool) -> None:
    """Turn the kernels of a network on (where they can run) or off."""
    for module in net.modules():
        if hasattr(module, "fused"):
            module.fused = on  # type: ignore[assignment]


@contextmanager
def off(net: nn.Module) -> Iterator[None]:
    """Within it a network does without its kernels: a few passes take less time than compiling them."""
    users = [module for module in net.modules() if getattr(module, "fused", False)]
    use(net, False)
    try:
        yield
    finally:
        for module in users:
            module.fused = True  # type: ignore[assignment]

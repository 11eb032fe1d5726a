"""Custom operators of torch around kernels, and the functions behind them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef

FUNCTIONS: dict[str, Callable[..., Any]] = {}
DEVICES = ["cuda"]  # where kernels run


def operator(name: str) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Make a function an operator, opaque to torch.compile."""

    def made(function: Callable[..., Any]) -> CustomOpDef:
        FUNCTIONS[name] = function
        return torch.library.custom_op(name, function, mutates_args=())

    return made


def has_kernels(x: Tensor) -> bool:
    return x.device.type in DEVICES


def run_on_shapes() -> None:
    """From here on, tensors that are shapes alone go through the functions, too: to note which kernels they would launch."""
    DEVICES.append("cpu")
    for name, function in FUNCTIONS.items():
        torch.library.register_fake(name, function)

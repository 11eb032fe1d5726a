"""The kernels of narrow 3x3 convolutions against float64 autograd."""

import pytest
import torch
from kernels.interpreted import NARROW, agree, images
from torch.nn.functional import conv2d

from adamatch.kernels import conv_ops
from adamatch.networks.conv import Conv


@pytest.mark.parametrize(
    ("n", "ci", "co", "h", "w"), [(3, 16, 32, 5, 16), (5, 32, 32, 3, 8), (2, 16, 64, 2, 16), (1, 16, 16, 3, 64)]
)
@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_conv3x3_and_its_gradients(n: int, ci: int, co: int, h: int, w: int, memory: torch.memory_format) -> None:
    inputs = [images(n, ci, h, w, dtype=NARROW), images(co, ci, 3, 3, dtype=NARROW).contiguous(memory_format=memory)]
    seeds = [images(n, co, h, w, dtype=NARROW)]
    agree(lambda x, k: (conv_ops.conv3x3(x, k),), lambda x, k: (conv2d(x, k, padding=1),), inputs, seeds, 1e-2)


def test_operators_are_well_formed() -> None:
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    x, weight = images(2, 16, 4, 8, dtype=NARROW).requires_grad_(), images(16, 16, 3, 3, dtype=NARROW)
    torch.library.opcheck(torch.ops.adamatch.conv3x3.default, (x, weight), test_utils=checks)


def test_the_cpu_takes_pytorchs() -> None:
    x, conv = torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last), Conv(32, 32, 3)
    torch.testing.assert_close(conv(x), conv2d(x, conv.weight, padding=1))
    assert not conv_ops.runs_on(x.to(NARROW), conv.weight)

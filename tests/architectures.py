"""Thirty small networks of one's own: each with something that another does not have. (They are for 8 x 8 images.)"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.inner(x)
        return y


class Attention(nn.Module):
    """A small vision transformer: patches, a class token, one block."""

    def __init__(self, mask: bool = False) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 2, 2), nn.Parameter(torch.zeros(1, 1, 16))
        self.norm, self.inner = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.register_buffer("mask", torch.full((17, 17), float("-inf")).triu(1) if mask else None)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = self.norm(torch.cat([tokens, self.token.expand(len(x), -1, -1)], 1))
        y: Tensor = self.head(self.inner(tokens, tokens, tokens, attn_mask=self.mask, need_weights=False)[0][:, -1])
        return y


class Rows(nn.Module):
    """Rows of pixels as a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.GRU(24, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.rows(x.transpose(1, 2).flatten(2))[0][:, -1])
        return y


class Parts(nn.Module):
    """Einsum, split, concatenation, a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(3, 6) / 2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        one, two = torch.einsum("nchw,cd->ndhw", x, self.weight).chunk(2, 1)
        y: Tensor = self.head(torch.cat([one.mean((2, 3)), two.amax((2, 3))], 1))
        return y


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(192, 192), nn.Linear(192, 192), nn.Linear(192, 3)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.relu(self.two(torch.relu(self.one(x.flatten(1))))))
        return y


class View(nn.Module):
    """`view`, which needs an image whose numbers lie in rows."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(x.contiguous().view(-1, 192))
        return y


def net(*layers: nn.Module, channels: int = 8) -> nn.Module:
    """Layers between a first convolution and a classifier of means."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)
    )


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "flatten": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)),
    "average pool, flatten": lambda: nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 3)),
    "stride 2": lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(128, 3)),
    "batch norm": lambda: net(nn.BatchNorm2d(8), nn.ReLU()),
    "batch norm without statistics": lambda: net(nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()),
    "group norm": lambda: net(nn.GroupNorm(2, 8), nn.ReLU()),
    "layer norm": lambda: net(nn.LayerNorm((8, 8, 8)), nn.GELU()),
    "instance norm": lambda: net(nn.InstanceNorm2d(8, affine=True), nn.ReLU()),
    "instance norm with statistics": lambda: net(nn.InstanceNorm2d(8, track_running_stats=True), nn.ReLU()),
    "local response norm": lambda: net(nn.LocalResponseNorm(3), nn.ReLU()),
    "weight norm": lambda: net(nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3)), nn.ReLU()),
    "batch norm of vectors": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "max pool": lambda: net(nn.ReLU(), nn.MaxPool2d(2)),
    "max pool with padding": lambda: net(nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
    "adaptive max pool": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    ),
    "groups": lambda: net(nn.Conv2d(8, 8, 3, groups=4), nn.ReLU()),
    "depthwise": lambda: net(nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Conv2d(8, 12, 1), nn.Hardswish(), channels=12),
    "dilated": lambda: net(nn.Conv2d(8, 8, 3, dilation=2), nn.LeakyReLU(0.1)),
    "padding that reflects": lambda: net(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.SiLU()),
    "transposed": lambda: net(nn.ConvTranspose2d(8, 4, 2, 2), nn.ELU(), channels=4),
    "residual": lambda: net(Residual(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)))),
    "dropout": lambda: net(nn.ReLU(), nn.Dropout2d(0.2), nn.Dropout(0.2)),
    "own slopes": lambda: net(nn.PReLU(8), nn.Softplus()),
    "upsampled": lambda: net(nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU()),
    "shuffled": lambda: net(nn.PixelUnshuffle(2), nn.Conv2d(32, 8, 1), nn.PixelShuffle(2), channels=2),
    "attention": Attention,
    "attention with a mask": lambda: Attention(mask=True),
    "recurrent": Rows,
    "einsum": Parts,
    "tied": Tied,
}
FORMATS = {"rows": torch.contiguous_format, "channels last": torch.channels_last}


def build(name: str, memory: str) -> nn.Module:
    torch.manual_seed(0)
    net = ARCHITECTURES[name]()
    return net.to(memory_format=FORMATS[memory])  # type: ignore[call-overload,no-any-return]

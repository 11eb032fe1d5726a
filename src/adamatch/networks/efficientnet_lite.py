"""EfficientNet-Lite (Tan and Le, ICML 2019, as released for mobile devices): ReLU6, no squeeze-and-excitation."""

from functools import partial

from torch import Tensor, nn

from adamatch.networks.conv import Classifier, Conv, Depthwise, Strided, initialise
from adamatch.networks.norm import BatchNorm

Norm = partial(BatchNorm, eps=1e-3, slope=1.0)
Relu6Norm = partial(BatchNorm, eps=1e-3, slope=0.0, ceiling=6.0)

# Of each scale of Lite0: blocks, side of the kernel, stride, how many times wider inside, channels.
SCALES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, LAST = 32, 1280
SHIFT = (127.5 - 127) / 128  # images come as (x - 127.5) / 128, and ImageNet's weights know (x - 127) / 128


class EfficientNetLite(Classifier):
    """`width` and `depth` multiply the channels and the blocks of Lite0, but for the first and the last scale's blocks.

    Modules are named as in timm's `tf_efficientnet_lite*`, whose weights therefore load by name.
    """

    def __init__(self, classes: int, *, width: float = 1.0, depth: float = 1.0, channels: int = 3) -> None:
        super().__init__()
        self.conv_stem = Strided(channels, STEM, 3, stride=2)
        self.bn1 = Relu6Norm(STEM)
        self.blocks = nn.ModuleList()
        before = STEM
        for scale, (count, size, stride, wider, after) in enumerate(SCALES):
            after = _rounded(after * width)
            repeated = count if scale in (0, len(SCALES) - 1) else -int(-count * depth // 1)
            stage = nn.ModuleList()
            for block in range(repeated):
                stage.append(Block(before, after, size=size, stride=stride if block == 0 else 1, wider=wider))
                before = after
            self.blocks.append(stage)
        self.conv_head = Conv(before, LAST, 1)
        self.bn2 = Relu6Norm(LAST)
        self.head = nn.Linear(LAST, classes)
        initialise(self, self.head)

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        return self.above(self.bn1(self.conv_stem(x + SHIFT), groups), groups)

    def above(self, x: Tensor, groups: tuple[int, ...] | None, blocks: int = 0) -> Tensor:
        """What the stem and so many blocks give, [N, C, H, W] -> [N, 1280]."""
        for block in self.in_order[blocks:]:
            x = block(x, groups)
        pooled: Tensor = self.bn2(self.conv_head(x), groups).mean((2, 3))
        return pooled

    @property
    def in_order(self) -> list[nn.Module]:
        """Its blocks, one after the other."""
        return [block for stage in self.blocks for block in stage]  # type: ignore[attr-defined]  # a ModuleList


class Block(nn.Module):
    """Expand (unless `wider` is 1), depthwise, project, each with its norm; with a skip where the shape stays."""

    def __init__(self, before: int, after: int, *, size: int, stride: int, wider: int) -> None:
        super().__init__()
        inside = before * wider
        convs: list[nn.Module] = [Conv(before, inside, 1)] if wider > 1 else []
        convs += [Depthwise(inside, size, stride=stride), Conv(inside, after, 1)]
        names = ("conv_pw", "conv_dw", "conv_pwl") if wider > 1 else ("conv_dw", "conv_pw")
        for number, (name, conv) in enumerate(zip(names, convs, strict=True), 1):
            self.add_module(name, conv)
            self.add_module(f"bn{number}", Norm(after) if conv is convs[-1] else Relu6Norm(inside))
        self.skips = stride == 1 and before == after

    def forward(self, x: Tensor, groups: tuple[int, ...] | None) -> Tensor:
        y, layers = x, list(self.children())
        for conv, norm in zip(layers[::2], layers[1::2], strict=True):
            y = norm(conv(y), groups)
        return x + y if self.skips else y


def _rounded(channels: float) -> int:
    """To a multiple of eight, by no more than a tenth downwards."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest

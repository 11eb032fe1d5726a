"""ResNetV2 (He et al., "Identity mappings in deep residual networks", 2016): the paper's network for 224 x 224."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from adamatch.networks.conv import Classifier, Conv, initialise, residual
from adamatch.networks.norm import BatchNorm

ReluNorm = partial(BatchNorm, slope=0.0)


class ResNetV2(Classifier):
    """`blocks` bottlenecks at each scale, `width` channels inside those of the first; ResNetV2-101 is 3, 4, 23, 3.

    Modules are named as in timm's `resnetv2_*`, whose weights therefore load by name.
    """

    def __init__(self, classes: int, *, blocks: Sequence[int], width: int = 64, channels: int = 3) -> None:
        super().__init__()
        # No norm in the stem: the first block's own comes after the pooling.
        self.stem = nn.Sequential(
            OrderedDict(conv=Conv(channels, width, 7, stride=2), pool=nn.MaxPool2d(3, 2, padding=1))
        )
        self.stages = nn.ModuleList()
        before = width
        for scale, count in enumerate(blocks):
            stage = []
            for block in range(count):
                stage.append(Bottleneck(before, width * 2**scale, stride=2 if scale > 0 and block == 0 else 1))
                before = 4 * width * 2**scale
            self.stages.append(nn.ModuleDict({"blocks": nn.ModuleList(stage)}))
        self.norm = ReluNorm(before)
        self.head = nn.Linear(before, classes)
        initialise(self, self.head)

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        x = self.stem(x)
        blocks = [block for stage in self.stages for block in stage["blocks"]]  # type: ignore[index]  # a ModuleDict
        norms = [*(after.norm1 for after in blocks[1:]), self.norm]
        return residual(blocks, norms, x, blocks[0].norm1(x, groups), groups)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which strides), 1x1 to four times the width. A skip that changes shape starts from the activation."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        after = 4 * width
        projection = nn.Sequential(OrderedDict(conv=Conv(before, after, 1, stride=stride)))
        self.downsample = projection if before != after else None
        self.norm1 = ReluNorm(before)
        self.conv1 = Conv(before, width, 1)
        self.norm2 = ReluNorm(width)
        self.conv2 = Conv(width, width, 3, stride=stride)
        self.norm3 = ReluNorm(width)
        self.conv3 = Conv(width, after, 1)

    def forward(self, x: Tensor, active: Tensor, groups: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
        """x is the stream, active = norm1(x); returns what is to be added: skip and residual."""
        skip = x if self.downsample is None else self.downsample(active)
        middle = self.conv2(self.norm2(self.conv1(active), groups))
        return skip, self.conv3(self.norm3(middle, groups))

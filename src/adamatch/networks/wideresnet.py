"""Wide residual networks as the authors built them: pre-activation, LeakyReLU 0.1, and a stem of 16 channels."""

from collections.abc import Sequence

from torch import Tensor, nn

from adamatch.networks.conv import Classifier, Conv, initialise, residual
from adamatch.networks.norm import BatchNorm


class WideResNet(Classifier):
    """`blocks` residual blocks at each of the scales `widths`; half the side at every scale after the first.

    WRN-28-2 is widths 32, 64, 128 with 4 blocks each; WRN-34-2 has a fourth scale of 256.
    """

    def __init__(self, classes: int, *, widths: Sequence[int], blocks: int, stem: int = 16, channels: int = 3) -> None:
        super().__init__()
        self.stem = Conv(channels, stem, 3)
        self.blocks = nn.ModuleList()
        self.norms = nn.ModuleList([BatchNorm(stem)])  # norms[i] stands before blocks[i], the last before the pooling
        width = stem
        for scale, wider in enumerate(widths):
            for block in range(blocks):
                stride = 2 if scale > 0 and block == 0 else 1
                self.blocks.append(Block(width, wider, stride))
                self.norms.append(BatchNorm(wider))
                width = wider
        self.head = nn.Linear(width, classes)
        initialise(self, self.head)

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        active = self.norms[0](self.stem(x), groups)
        return residual(self.blocks, self.norms[1:], active, active, groups)  # the first block's skip is activated, too


class Block(nn.Module):
    """Two convolutions beside a skip, which is a 1x1 convolution where the number of channels changes."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(width, wider, 3, stride=stride)
        self.norm = BatchNorm(wider)
        self.conv2 = Conv(wider, wider, 3)
        self.skip = Conv(width, wider, 1, stride=stride) if width != wider or stride > 1 else nn.Identity()

    def forward(self, x: Tensor, active: Tensor, groups: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
        """x is the stream, active its normalised activation; returns what is to be added: skip and residual."""
        return self.skip(x), self.conv2(self.norm(self.conv1(active), groups))

"""A convolution without bias whose narrow 3x3 form has a faster weight gradient on the GPU."""

from torch import Tensor, nn

from adamatch.nets import fused


class Conv(nn.Conv2d):
    def __init__(self, channels_in: int, channels_out: int, size: int, *, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)
        self.fused = True

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and self.kernel_size == (3, 3) and self.stride == (1, 1) and fused.conv_runs_on(x, self.weight):
            return fused.conv3x3(x, self.weight.to(x.dtype))
        return super().forward(x)

"""How the norm kernels deal rows and channels to programs."""

from torch import Tensor

PARTS = 512  # at most so many partial results a group: one tile of the combining kernels


class Plan:
    """How rows are dealt to programs: `tile` elements are in flight in each, sums go over `size` rows, others over `block`."""

    tile, warps, programs = 4096, 4, 396  # of an H200: 132 multiprocessors, three programs each (measured best of five)

    def __init__(self, x: Tensor, groups: list[int]) -> None:
        pixels = x.shape[2] * x.shape[3]
        self.groups, self.channels = len(groups), x.shape[1]
        self.rows, self.split = sum(groups) * pixels, groups[0] * pixels if len(groups) == 2 else 0
        self.columns = columns(self.channels)
        self.blocks = -(-self.channels // self.columns)
        self.whole = self.channels % self.columns == 0  # no block of columns is partly empty
        self.block = min(max(1, self.tile // self.columns), 1 << (self.rows - 1).bit_length())
        longest = max(self.split, self.rows - self.split)
        share = max(-(-self.rows // max(1, self.programs // self.blocks)), -(-longest // PARTS))
        self.size = _few(-(-share // self.block), self.columns == self.channels) * self.block
        self.parts = self.count(self.size)
        self.most = 1 << (-(-longest // self.size) - 1).bit_length()  # the longer group's parts, to a power of two
        self.width = min(8, self.channels)
        self.even = self.channels % self.width == 0

    def count(self, size: int) -> int:
        return -(-self.split // size) - (-(self.rows - self.split) // size)


def columns(channels: int) -> int:
    """How many a program takes: all, or a block of them such that at most an eighth of all blocks is padding."""
    whole = 1 << (channels - 1).bit_length()
    widths = (whole,) if channels == whole <= 1024 else (256, 128, 64, 32)
    return next((width for width in widths if 7 * -(-channels // width) * width <= 8 * channels), whole)


def _few(count: int, exact: bool) -> int:
    """Rounded up to three binary digits, unless `exact`: kernels are compiled for each, which takes a quarter of a second."""
    unit = 1 if exact else 1 << max(0, count.bit_length() - 3)
    return -(-count // unit) * unit

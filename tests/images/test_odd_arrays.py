"""Arrays, tensors, Pillow's images and names that cannot be read: one line each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.images.reading import read, stream


def closed() -> Image.Image:
    image = Image.new("RGB", (9, 9))
    image.close()
    return image


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a long name": (lambda: "a" * 300, "does not exist"),
    "a long path": (lambda: ["/x" * 5000], "does not exist"),
    "meta": (lambda: torch.zeros(2, 3, 8, 8, device="meta"), "this tensor cannot be read"),
    "sparse": (lambda: torch.zeros(2, 3, 8, 8).to_sparse(), "this tensor cannot be read"),
    "meta in a dataset": (lambda: [torch.zeros(3, 8, 8, device="meta")], "this tensor cannot be read"),
    "closed": (closed, "cannot be read (Operation on closed image)"),
    "closed in a dataset": (lambda: [closed()], "image 0 of the dataset cannot be read"),
    "without end": (lambda: np.broadcast_to(np.uint8(0), (10**10, 64, 64, 3)), "does not fit into memory"),
    "without end, 16 bits": (lambda: np.broadcast_to(np.uint16(0), (10**10, 64, 64, 3)), "does not fit into memory"),
    "masked": (lambda: np.ma.masked_equal(np.eye(8, dtype=np.uint8), 1), "masked arrays are not read"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_read_is_one_line(name: str) -> None:
    make, words = ODD[name]
    for call in (lambda: list(stream(make(), size=8)[1]), lambda: read(make(), size=8)):
        with pytest.raises(InputError) as told:
            call()
        assert words in str(told.value)
        assert "\n" not in str(told.value)


def test_masked_arrays_without_a_mask_are_read(tmp_path: Path) -> None:
    assert len(read(np.ma.array(np.zeros((2, 8, 8, 3), np.uint8)), size=8)) == 2

"""Pictures are there, are of the stated size, and show what they say."""

from pathlib import Path

import numpy as np
import pytest
import torch
from colours import CLASSES, arrays
from PIL import Image

from adamatch import recipe
from adamatch.images.store import Store
from adamatch.report import pictures


def store(count: int) -> Store:
    return Store(*arrays(count), CLASSES)


@pytest.mark.parametrize("count", [3, 40])  # fewer images than columns, and more
def test_views(tmp_path: Path, count: int) -> None:
    tiny = recipe("handwriting", size=8, strong="cutout")
    path = pictures.views(store(count), store(40), tiny, tmp_path / "views.png")
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[1] > pixels.shape[0] > 300
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100


@pytest.mark.parametrize("numbers", [(0, 1), (2, 2)])  # they disagree everywhere, nowhere
def test_predictions(tmp_path: Path, numbers: tuple[int, int]) -> None:
    said = {
        name: np.eye(3, dtype=np.float32)[np.full(30, number)]
        for name, number in zip(("source_only", "adamatch"), numbers, strict=True)
    }
    path = pictures.predictions(said, store(30), tmp_path / "predictions.png")
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    for colour in (pictures.RIGHT, pictures.WRONG):
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(pixels.astype(int) - wanted).max(1) < 3).any(), colour
    assert not list(tmp_path.glob("*.part"))


def test_pixels_undo_the_normalisation() -> None:
    images = torch.arange(256, dtype=torch.uint8).repeat(3).view(1, 3, 16, 16)
    assert torch.equal(torch.from_numpy(pictures._pixels((images.float() - 127.5) / 128)), images.permute(0, 2, 3, 1))

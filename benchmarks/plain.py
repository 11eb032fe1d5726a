"""AdaMatch as it is usually written: a DataLoader whose workers augment with Pillow, float32, no compilation."""

import random
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from adamatch.methods import AdaMatch
from adamatch.methods.parts import Batch
from adamatch.nets import WeightAverage, fused

OPERATIONS = (
    lambda image, level: Image.blend(image, ImageOps.autocontrast(image), level),
    lambda image, level: ImageEnhance.Brightness(image).enhance(0.1 + 1.9 * level),
    lambda image, level: ImageEnhance.Color(image).enhance(0.1 + 1.9 * level),
    lambda image, level: ImageEnhance.Contrast(image).enhance(0.1 + 1.9 * level),
    lambda image, level: Image.blend(image, ImageOps.equalize(image), level),
    lambda image, level: ImageOps.posterize(image, 1 + int(level * 7)),
    lambda image, level: image.rotate(90 * level - 45),
    lambda image, level: ImageEnhance.Sharpness(image).enhance(0.1 + 1.9 * level),
    lambda image, level: image.transform(image.size, Image.Transform.AFFINE, (1, 0.6 * level - 0.3, 0, 0, 1, 0)),
    lambda image, level: image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, 0.6 * level - 0.3, 1, 0)),
    lambda image, level: ImageOps.solarize(image, int(level * 255)),
)


class Pairs(Dataset[tuple[Tensor, Tensor, int]]):
    """A weak and a strong view of each image, made one image at a time."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        weak, strong = _shift(self.images[index]), Image.fromarray(_shift(self.images[index]))
        for _ in range(2):
            strong = random.choice(OPERATIONS)(strong, random.random())
        hole = np.array(strong)
        side = len(hole)
        y, x = random.randrange(side), random.randrange(side)
        hole[max(0, y - side // 4) : y + side // 4, max(0, x - side // 4) : x + side // 4] = 127
        return _tensor(weak), _tensor(hole), int(self.labels[index])


def _shift(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    side, pad = len(image), len(image) // 8
    wide = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    y, x = random.randrange(2 * pad + 1), random.randrange(2 * pad + 1)
    crop = wide[y : y + side, x : x + side]
    return np.ascontiguousarray(crop[:, ::-1] if random.random() < 0.5 else crop)


def _tensor(image: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy((image.astype(np.float32) - 127.5) / 128).permute(2, 0, 1).contiguous()


def endless(loader: DataLoader[Any]) -> Any:
    while True:
        yield from loader


def step_time(net: nn.Module, size: int, *, device: torch.device, batch: int, uratio: int, workers: int, steps: int) -> float:
    """Seconds per step, data loading included, after a few steps to warm up."""
    rng = np.random.default_rng(0)
    count = batch * uratio * 8
    data = Pairs(rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8), rng.integers(0, 10, count))
    common: dict[str, Any] = {"shuffle": True, "drop_last": True, "pin_memory": device.type == "cuda"}
    labelled = endless(DataLoader(data, batch, num_workers=max(1, workers // 4), persistent_workers=True, **common))
    unlabelled = endless(DataLoader(data, batch * uratio, num_workers=workers, persistent_workers=True, **common))
    net.to(device).train()
    net.takes_groups = False  # type: ignore[assignment]  # two forwards, as everybody writes them
    fused.use(net, False)
    method = AdaMatch(10).to(device)
    average = WeightAverage(net)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    began = 0.0
    warm = 5
    for done in range(steps + warm):
        if done == warm:
            _wait(device)
            began = time.perf_counter()
        x_sl_w, x_sl_s, y = next(labelled)
        x_tu_w, x_tu_s, _ = next(unlabelled)
        y_sl = torch.eye(10)[y]
        lam, progress = torch.rand(2 * batch, 10), torch.tensor(0.5)
        tensors = (x_sl_w, x_sl_s, y_sl, x_tu_w, x_tu_s, progress, lam)
        loss, _ = method.loss(net, Batch(*(tensor.to(device, non_blocking=True) for tensor in tensors)))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        average.update(net)
    _wait(device)
    return (time.perf_counter() - began) / steps


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()

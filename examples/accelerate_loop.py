"""AdaMatch with accelerate, and a vision transformer of Hugging Face: bright images -> dark ones.

pip install accelerate transformers
python examples/accelerate_loop.py
"""

import itertools
from collections.abc import Iterable, Iterator

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification

from adamatch import AdaMatch
from adamatch.augment.views import Views, normalise


class Logits(nn.Module):
    """Hugging Face's models give an object; a method wants the logits in it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(pixel_values=x).logits  # type: ignore[no-any-return]


def colours(count: int, brightness: int) -> TensorDataset:
    """uint8 images [n, 3, 32, 32] of noise in red, green or blue, and which it is [n]: put your own here."""
    y = torch.arange(count) % 3
    x = torch.randint(0, 80, (count, 3, 32, 32))
    x[torch.arange(count), y] += brightness
    return TensorDataset(x.to(torch.uint8), y)


def forever(loader: Iterable[list[Tensor]]) -> Iterator[list[Tensor]]:
    while True:
        yield from loader


def accuracy(net: nn.Module, test: TensorDataset, device: torch.device) -> float:
    x, y = (each.to(device) for each in test.tensors)
    with torch.no_grad():
        return 100 * float((net.eval()(normalise(x)).argmax(1) == y).float().mean())


def main(steps: int = 60) -> None:
    set_seed(0)
    accelerator = Accelerator()
    source, target, test = colours(512, brightness=150), colours(512, brightness=50), colours(300, brightness=50)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = ViTConfig(image_size=32, patch_size=8, num_labels=3, **small)
    net = Logits(ViTForImageClassification(config))  # or .from_pretrained(NAME, num_labels=3)
    net, optimiser, labelled, unlabelled = accelerator.prepare(
        net,
        torch.optim.AdamW(net.parameters(), lr=0.001),
        DataLoader(source, 32, shuffle=True, drop_last=True),
        DataLoader(target, 64, shuffle=True, drop_last=True),  # its labels are not looked at
    )
    method = AdaMatch(classes=3).to(accelerator.device)
    views = Views(32, strong="cutout", mirror=False).to(accelerator.device)
    before = accuracy(net, test, accelerator.device)
    net.train()
    batches = itertools.islice(zip(forever(labelled), forever(unlabelled), strict=True), steps)
    for step, ((x_source, y_source), (x_target, _)) in enumerate(batches):
        (x_sl_w, x_sl_s), (x_tu_w, x_tu_s) = views(x_source), views(x_target)
        seen = {"x_sl_w": x_sl_w, "x_sl_s": x_sl_s, "y_sl": y_source, "x_tu_w": x_tu_w, "x_tu_s": x_tu_s}
        loss, metrics = method(net, **seen, progress=step / steps)
        optimiser.zero_grad()
        accelerator.backward(loss)
        optimiser.step()
        if step % 10 == 0:
            accelerator.print(f"step {step}: loss {loss.item():.2f}, mask {metrics['mask'].item():.0%}")
    after = accuracy(net, test, accelerator.device)
    accelerator.print(f"accuracy on dark images: {before:.1f} % before, {after:.1f} % after {steps} steps")


if __name__ == "__main__":
    main()

"""AdaMatch in Lightning, with a network of timm: bright images (labelled) -> dark ones (without labels).

pip install lightning timm
python examples/lightning_loop.py
"""

from typing import Any

import lightning
import timm
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from adamatch import AdaMatch
from adamatch.augment.views import Views, normalise


class Adapted(lightning.LightningModule):  # type: ignore[misc]  # for mypy where Lightning is not installed
    def __init__(self) -> None:
        super().__init__()
        self.net = timm.create_model("mobilenetv3_small_050", num_classes=3)  # pretrained=True: ImageNet's weights
        self.method = AdaMatch(classes=3)  # its class averages move, and are saved, with this module
        self.views = Views(32, strong="cutout", mirror=False)

    def training_step(self, batch: dict[str, Any]) -> Tensor:
        (x_source, y_source), (x_target, _) = batch["labelled"], batch["unlabelled"]
        (x_sl_w, x_sl_s), (x_tu_w, x_tu_s) = self.views(x_source), self.views(x_target)
        seen = {"x_sl_w": x_sl_w, "x_sl_s": x_sl_s, "y_sl": y_source, "x_tu_w": x_tu_w, "x_tu_s": x_tu_s}
        loss, metrics = self.method(self.net, **seen, progress=self.global_step / self.trainer.max_steps)
        self.log_dict({"loss": loss, "mask": metrics["mask"]}, prog_bar=True)
        return loss  # type: ignore[no-any-return]

    def test_step(self, batch: list[Tensor]) -> None:
        x, y = batch
        self.log("accuracy", (self.net(normalise(x)).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.net.parameters(), lr=0.003)


def colours(count: int, brightness: int) -> TensorDataset:
    """uint8 images [n, 3, 32, 32] of noise in red, green or blue, and which it is [n]: put your own here."""
    y = torch.arange(count) % 3
    x = torch.randint(0, 80, (count, 3, 32, 32))
    x[torch.arange(count), y] += brightness
    return TensorDataset(x.to(torch.uint8), y)


def main(steps: int = 60) -> None:
    lightning.seed_everything(0)
    source, target, test = colours(512, brightness=150), colours(512, brightness=50), colours(300, brightness=50)
    loaders = {
        "labelled": DataLoader(source, 32, shuffle=True, drop_last=True),
        "unlabelled": DataLoader(target, 64, shuffle=True, drop_last=True),  # its labels are not looked at
    }
    model = Adapted()
    trainer = lightning.Trainer(max_steps=steps, logger=False, enable_checkpointing=False)
    (before,) = trainer.test(model, DataLoader(test, 256))
    trainer.fit(model, loaders)
    (after,) = trainer.test(model, DataLoader(test, 256))
    percent = [f"{100 * found['accuracy']:.1f} %" for found in (before, after)]
    print(f"accuracy on dark images: {percent[0]} before, {percent[1]} after {steps} steps")


if __name__ == "__main__":
    main()

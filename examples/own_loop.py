"""AdaMatch in a plain PyTorch loop: digits drawn with fonts (labelled) -> real handwriting (without labels).

python examples/own_loop.py
"""

import torch
from torch import Tensor, nn

from adamatch import AdaMatch
from adamatch.augment.views import Views, normalise
from adamatch.datasets import benchmarks


def digits(domain: str, split: str) -> tuple[Tensor, Tensor]:
    """uint8 images [n, 3, size, size] and class indices [n]: put your own here."""
    store = benchmarks.load("handwriting", domain, split)
    return torch.from_numpy(store.images).permute(0, 3, 1, 2), torch.as_tensor(store.labels)


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * float((net.eval()(normalise(x)).argmax(1) == y).float().mean())


def main(steps: int = 200) -> tuple[list[float], float, float]:
    torch.manual_seed(0)
    (x_source, y_source), (x_target, _), test = (
        digits(*each) for each in (("rendered", "train"), ("handwritten", "train"), ("handwritten", "test"))
    )
    net = nn.Sequential(  # any network: with batch norm, AdaMatch's two forward passes differ
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 4, 10)),
    )
    method = AdaMatch(classes=10)  # its class averages are buffers: save its state_dict with the network's
    views = Views(x_source.shape[-1], strong="cutout", mirror=False)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.004)
    before, losses = accuracy(net, *test), []
    net.train()
    for step in range(steps):
        labelled, unlabelled = torch.randint(len(x_source), (32,)), torch.randint(len(x_target), (64,))
        (x_sl_w, x_sl_s), (x_tu_w, x_tu_s) = views(x_source[labelled]), views(x_target[unlabelled])
        seen = {"x_sl_w": x_sl_w, "x_sl_s": x_sl_s, "y_sl": y_source[labelled], "x_tu_w": x_tu_w, "x_tu_s": x_tu_s}
        loss, metrics = method(net, **seen, progress=step / steps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.2f}, threshold {metrics['threshold']:.2f}, mask {metrics['mask']:.0%}")
    after = accuracy(net, *test)
    print(f"accuracy on handwriting: {before:.1f} % before, {after:.1f} % after {steps} steps")
    return losses, before, after


if __name__ == "__main__":
    main()

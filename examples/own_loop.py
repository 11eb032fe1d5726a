"""AdaMatch's objective in a training loop of your own: your network, your tensors, your optimiser.

    python examples/own_loop.py

Digits drawn with fonts (labelled) -> real handwriting (no labels). The network knows nothing of this package; what
AdaMatch needs is a weak and a strong view of each image, the labels as probabilities, and how far training has come.
"""

import torch
from torch import Tensor, nn

from adamatch.augment.views import Views, normalise
from adamatch.datasets import benchmarks
from adamatch.methods import AdaMatch, Batch

CLASSES, LABELLED, UNLABELLED = 10, 32, 64


def train(
    net: nn.Module, x_source: Tensor, y_source: Tensor, x_target: Tensor, steps: int, seed: int = 0
) -> list[float]:
    """Images are uint8 [n, 3, size, size]; returns the loss of every step."""
    random = torch.Generator().manual_seed(seed)
    method = AdaMatch(CLASSES)  # class averages live in its buffers: save its state_dict with the network's
    views = Views(x_source.shape[-1], strong="cutout", mirror=False)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.004)
    losses = []
    for step in range(steps):
        sl = torch.randint(len(x_source), (LABELLED,), generator=random)
        tu = torch.randint(len(x_target), (UNLABELLED,), generator=random)
        x_sl_w, x_sl_s = views(x_source[sl], torch.rand(LABELLED, views.draws, generator=random))
        x_tu_w, x_tu_s = views(x_target[tu], torch.rand(UNLABELLED, views.draws, generator=random))
        y_sl = nn.functional.one_hot(y_source[sl], CLASSES).float()
        lam = torch.rand(2 * LABELLED, CLASSES, generator=random)  # for the interpolation of logits, eq. (3)
        batch = Batch(x_sl_w, x_sl_s, y_sl, x_tu_w, x_tu_s, progress=torch.tensor(step / steps), lam=lam)
        loss, metrics = method.loss(net, batch)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.2f}, threshold {metrics['threshold']:.2f}, mask {metrics['mask']:.0%}")
    return losses


def network() -> nn.Module:
    """Any network will do; with batch norm, both of AdaMatch's forwards differ."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 4, CLASSES)),
    )


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * float((net.eval()(normalise(x)).argmax(1) == y).float().mean())


def tensors(domain: str, split: str) -> tuple[Tensor, Tensor]:
    store = benchmarks.load("handwriting", domain, split)
    return torch.from_numpy(store.images).permute(0, 3, 1, 2), torch.as_tensor(store.labels)


def main(steps: int = 200) -> tuple[list[float], float, float]:
    torch.manual_seed(0)
    net = network()
    x_source, y_source = tensors("rendered", "train")
    x_target, _ = tensors("handwritten", "train")
    test = tensors("handwritten", "test")
    before = accuracy(net, *test)
    losses = train(net.train(), x_source, y_source, x_target, steps)
    after = accuracy(net, *test)
    print(f"accuracy on handwriting: {before:.1f} % before, {after:.1f} % after {steps} steps")
    return losses, before, after


if __name__ == "__main__":
    main()

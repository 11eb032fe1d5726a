"""A method as a training loop of one's own calls it: plain labels and numbers in, the same loss, errors in words."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reference import tiny_net
from reference.tiny_net import TinyNet, make_batch
from torch import Tensor, nn

from adamatch.base.errors import InputError
from adamatch.methods import MCD, METHODS, AdaMatch, Batch, build
from adamatch.networks.wideresnet import WideResNet


def given(batch: Batch) -> dict[str, Any]:
    """The same as somebody would give it: class indices, a number, no factors."""
    plain = batch._asdict() | {"y_sl": batch.y_sl.argmax(1), "progress": float(batch.progress)}
    return {name: value for name, value in plain.items() if name not in ("lam", "y_tu_first")}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mcd"])
@pytest.mark.parametrize("own", [TinyNet, lambda k: WideResNet(k, widths=(4, 8), blocks=1, stem=4)])
def test_the_loss_is_that_of_the_equations(name: str, own: Callable[[int], nn.Module]) -> None:
    """Of networks that take both batches in one pass, too."""
    net = own(3).train()
    x = torch.randn(30, 3, 8, 8) if isinstance(net, WideResNet) else torch.randn(30, 3, 2, 2)
    batch = make_batch(0)._replace(x_sl_w=x[:6], x_sl_s=x[6:12], x_tu_w=x[12:21], x_tu_s=x[21:])
    method = build(name, classes=3, net=net)
    other_net, other = copy.deepcopy(net), build(name, classes=3, net=net)
    ours, theirs = method(net, **given(batch), lam=batch.lam), other.phases[0].loss(other_net, batch)
    assert torch.equal(ours[0], theirs[0])
    assert all(torch.equal(ours[1][name], value) for name, value in theirs[1].items())
    tiny_net.assert_same(tiny_net.autograd(ours[0], ("", net)), tiny_net.autograd(theirs[0], ("", other_net)), 0)
    for one, two in ((net, other_net), (method, other)):
        assert all(torch.equal(a, b) for a, b in zip(one.buffers(), two.buffers(), strict=True))


def test_probabilities_and_tensors_will_do_as_well() -> None:
    net, batch = TinyNet(3), make_batch(0)
    plain = AdaMatch(3)(net, **given(batch), lam=batch.lam)[0]
    for change in ({"y_sl": batch.y_sl}, {"y_sl": batch.y_sl.argmax(1).to(torch.uint8)}, {"progress": batch.progress}):
        assert torch.equal(AdaMatch(3)(net, **given(batch) | change, lam=batch.lam)[0], plain)


def test_factors_are_drawn_where_none_are_given() -> None:
    net, batch = TinyNet(3).train(), make_batch(0)

    def loss(**more: Any) -> float:
        return float(AdaMatch(3)(net, **given(batch), **more)[0].detach())

    own = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    one, same, other = (loss(generator=generator) for generator in own)
    lam = torch.rand(12, 3, generator=torch.Generator().manual_seed(1))
    assert one == same == loss(lam=lam) != other
    torch.manual_seed(3)
    drawn = loss(), loss()
    torch.manual_seed(3)
    assert drawn == (loss(), loss())
    assert drawn[0] != drawn[1]


def test_half_precision_images_have_labels_and_factors_in_single() -> None:
    seen: list[Batch] = []
    method = AdaMatch(3)
    method.phases = [SimpleNamespace(loss=lambda net, batch: seen.append(batch))]  # type: ignore[list-item]
    half = {name: value.bfloat16() if isinstance(value, Tensor) and value.is_floating_point() else value
            for name, value in given(make_batch(0)).items()}  # fmt: skip
    method(TinyNet(3), **half)
    assert {each.dtype for each in (seen[0].y_sl, seen[0].progress, seen[0].lam)} == {torch.float32}
    assert seen[0].x_sl_w.dtype == torch.bfloat16


class Output(nn.Module):
    """Of a network that is not as a method wants it."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.change = TinyNet(3), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.net(x))


BATCH = Batch(*(each.double() for each in make_batch(0)))
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"x_sl_w": BATCH.x_sl_w.numpy()}, "x_sl_w is a tensor of images, not ndarray"),
    ({"x_tu_w": BATCH.x_tu_w.byte()}, "x_tu_w holds uint8, and a network needs floats: make it float with"),
    ({"x_sl_s": BATCH.x_sl_s[:5]}, "x_sl_w has 6 images and x_sl_s 5: they are two views of the same images"),
    ({"x_tu_w": BATCH.x_tu_w[:5]}, "x_tu_w has 5 images and x_tu_s 9"),
    ({"x_tu_s": BATCH.x_tu_s[:0]}, r"x_tu_s has the shape \[0, 3, 2, 2\]: images are \[n, 3, height, width\]"),
    ({"x_tu_s": BATCH.x_tu_s[..., :1]}, r"x_tu_s holds images of the shape \[3, 2, 1\], x_sl_w \[3, 2, 2\]"),
    ({"x_tu_s": BATCH.x_tu_s.float()}, "x_tu_s holds values of float32, x_sl_w float64: they share a batch"),
    ({"x_sl_s": BATCH.x_sl_s.to("meta")}, "x_sl_s holds images on meta, x_sl_w cpu"),
    ({"y_sl": [0, 1, 2, 0, 1, 2]}, "y_sl is a tensor of labels, not list"),
    ({"y_sl": torch.tensor([0, 1, 2, 3, 0, 0])}, "y_sl runs from 0 to 3, but there are 3 classes: 0 to 2"),
    ({"y_sl": torch.tensor([0, 1, 2, -1, 0, 0])}, "y_sl runs from -1 to 2"),
    ({"y_sl": torch.tensor([0, 1, 2])}, r"y_sl is int64 \[3\]: give class indices \[6\], one for each labelled image"),
    ({"y_sl": torch.zeros(6, 3).long()}, r"y_sl is int64 \[6, 3\]"),
    ({"y_sl": torch.zeros(6, dtype=torch.bool)}, r"y_sl is bool \[6\]"),
    ({"y_sl": torch.zeros(6)}, r"y_sl holds floats of the shape \[6\]: .* class indices whole numbers \[6\] "),
    ({"y_sl": torch.zeros(6, 4)}, r"probabilities are \[6, 3\] here"),
    ({"y_sl": BATCH.y_sl.to("meta")}, "y_sl is on meta, the images are on cpu"),
    ({"progress": 300}, "progress is the part of the run that is done, from 0 to 1, not 300"),
    ({"progress": float("nan")}, "progress is the part of the run that is done"),
    ({"progress": "half"}, "progress is the part of the run that is done, from 0 to 1, not 'half'"),
    ({"progress": torch.zeros(6)}, r"progress is one number, not \[6\]"),
    ({"lam": torch.rand(6, 3)}, r"lam is \[12, 3\], one number for each logit of both views, not \[6, 3\]"),
    ({"lam": 0.5}, r"lam is \[12, 3\], .* not float: or leave it out"),
    ({"net": lambda: TinyNet(4)}, r"the network gives \[30, 4\] for 30 images: 3 classes need \[30, 3\]"),
    ({"net": lambda: Output(lambda z: z.mean())}, r"the network gives \[\] for 30 images"),
    ({"net": lambda: Output(lambda z: {"logits": z})}, "the network gives dict, not a tensor of logits: wrap it"),
    ({"net": lambda: TinyNet}, "net is a torch module, not <class 'reference.tiny_net.TinyNet'>"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_what_is_wrong_is_said_in_words(change: dict[str, Any], says: str) -> None:
    arguments = {"net": lambda: TinyNet(3), **given(make_batch(0)), **change}
    with pytest.raises(InputError, match=says):
        AdaMatch(3)(arguments.pop("net")(), **arguments)


def test_what_is_missing_is_named() -> None:
    arguments = given(make_batch(0))
    del arguments["x_tu_w"]
    with pytest.raises(TypeError, match="x_tu_w"):
        AdaMatch(3)(TinyNet(3), **arguments)


def test_the_averages_have_to_be_where_the_images_are() -> None:
    with pytest.raises(InputError, match=r"the images are on cpu, the method's averages on meta: call .to\('cpu'\)"):
        AdaMatch(3).to("meta")(TinyNet(3), **given(make_batch(0)))


def test_a_method_of_several_updates_says_how_it_is_called() -> None:
    with pytest.raises(InputError, match="MCD has 3 updates a step: call the loss of each of its `phases`"):
        MCD(3, 5)(TinyNet(3), **given(make_batch(0)))

"""MCD: the three losses, whom each trains, and batch-norm statistics that count every image once."""

from typing import Any

import numpy as np
import pytest
import torch
from reference import losses, tiny_net
from reference.tiny_net import TinyNet, make_batch
from torch import nn

from adamatch.base.errors import InputError
from adamatch.methods.contract import Batch
from adamatch.methods.mcd import MCD

HEADS = ("head.weight", "head.bias", "head2.weight", "head2.bias")


def setup(absent: int = -1) -> tuple[TinyNet, MCD, Batch, tiny_net.Params]:
    net, method = TinyNet(3).train(), MCD(3, features=5)
    p = tiny_net.params_of(net) | {f"head2.{name}": value for name, value in tiny_net.params_of(method.head).items()}
    return net, method, make_batch(0, absent=absent), p


def references(batch: Batch) -> dict[str, Any]:
    """The three losses in NumPy; source and target images are normalised apart."""
    x_sl, x_tu, y_sl = batch.x_sl_w.numpy(), batch.x_tu_w.numpy(), batch.y_sl.numpy()

    def both(p: tiny_net.Params, x: losses.Array) -> tuple[losses.Array, losses.Array]:
        return tiny_net.logits(p, x), tiny_net.logits(p, x, "head2")

    return {
        "classify": lambda p: losses.mcd_classify(y_sl, *both(p, x_sl)),
        "disagree": lambda p: losses.mcd_disagree(y_sl, *both(p, x_sl), *both(p, x_tu)),
        "agree": lambda p: losses.discrepancy(*both(p, x_tu)),
    }


@pytest.mark.parametrize(
    ("place", "name", "trains"), [(0, "classify", "all"), (1, "disagree", "heads"), (2, "agree", "features")]
)
@pytest.mark.parametrize("absent", [-1, 0])
def test_losses_and_gradients_match_the_reference(place: int, name: str, trains: str, absent: int) -> None:
    net, method, batch, p = setup(absent)
    phase = method.phases[place]
    assert phase.trains == trains
    loss, metrics = phase.loss(net, batch)
    of = references(batch)[name]
    assert loss.item() == pytest.approx(of(p), rel=1e-9)
    assert not any(value.requires_grad for value in metrics.values())
    trained = [key for key in p if trains == "all" or (key in HEADS) == (trains == "heads")]
    ours = tiny_net.autograd(loss, ("", net), ("head2.", method.head))
    tiny_net.assert_same({key: ours[key] for key in trained}, tiny_net.numerical_gradient(of, p, trained))


def test_every_image_is_recorded_once_a_step() -> None:
    net, method, batch, p = setup()
    mean: losses.Array = np.zeros(5)
    var: losses.Array = np.ones(5)
    for phase, x in zip(method.phases, (batch.x_sl_w, None, batch.x_tu_w), strict=True):
        phase.loss(net, batch)
        if x is not None:
            h = tiny_net.hidden(p, x.numpy())
            mean, var = 0.9 * mean + 0.1 * h.mean(0), 0.9 * var + 0.1 * h.var(0, ddof=1)
        np.testing.assert_allclose(tiny_net.statistics(net)["running_mean"], mean)
        np.testing.assert_allclose(tiny_net.statistics(net)["running_var"], var)


def test_strong_views_play_no_part_and_there_is_no_weight_decay() -> None:
    net, method, batch, _ = setup()
    blank = batch._replace(x_sl_s=batch.x_sl_s * torch.nan, x_tu_s=batch.x_tu_s * torch.nan)
    for phase in method.phases:
        assert phase.loss(net, blank)[0].isfinite()
    assert method.weight_decay is False


def test_heads_start_apart_from_each_other() -> None:
    net, method, _, _ = setup()
    assert not torch.equal(net.head.weight, method.head.weight)
    assert (method.head.bias == 0).all()
    wide = MCD(100, features=300).head.weight
    assert wide.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.05), "Xavier"


def test_a_network_without_features_or_head_is_refused_in_one_line() -> None:
    batch = make_batch(0)
    bare = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(InputError, match=r"features\(x\); Sequential has none"):
        MCD(3, features=5).classify(bare, batch)
    headless = TinyNet(3)
    headless.head = nn.Sequential(nn.Linear(5, 3))  # type: ignore[assignment]
    with pytest.raises(InputError, match="`head`; TinyNet has none"):
        MCD(3, features=5).classify(headless, batch)

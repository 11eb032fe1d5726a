"""Supervised, BaselineBN and NoisyStudent: loss and gradients against NumPy and finite differences."""

from typing import Literal

import numpy as np
import pytest
import torch
from reference import losses, tiny_net
from reference.tiny_net import TinyNet, joined, make_batch

from adamatch.methods.baseline import BaselineBN, Supervised
from adamatch.methods.contract import Batch
from adamatch.methods.noisy_student import NoisyStudent

Kind = type[Supervised] | type[BaselineBN] | type[NoisyStudent]


def reference(p: tiny_net.Params, batch: Batch, joint: bool, source_loss: str) -> float:
    target = (batch.x_tu_w, batch.x_tu_s) if joint else ()
    z = tiny_net.logits(p, joined(batch.x_sl_w, batch.x_sl_s, *target))
    n = len(batch.y_sl)
    return losses.labelled(batch.y_sl.numpy(), z[:n], z[n : 2 * n], source_loss)


@pytest.mark.parametrize(("kind", "joint"), [(Supervised, False), (BaselineBN, True), (NoisyStudent, False)])
@pytest.mark.parametrize("source_loss", ["sum", "half"])
@pytest.mark.parametrize("labels", ["all", "absent", "soft"])
def test_loss_and_gradients_match_the_reference(
    kind: Kind, joint: bool, source_loss: Literal["sum", "half"], labels: str
) -> None:
    net, batch = TinyNet(3).train(), make_batch(0, absent=0 if labels == "absent" else -1)
    if labels == "soft":
        batch = batch._replace(y_sl=(batch.y_sl * 3 + torch.rand(6, 3)).softmax(1))
    p = tiny_net.params_of(net)
    method = kind(3, source_loss=source_loss)
    loss, metrics = method.loss(net, batch)
    assert loss.item() == pytest.approx(reference(p, batch, joint, source_loss), rel=1e-9)
    assert metrics["loss_source"].item() == loss.item()
    assert method.unlabelled == joint

    def of(params: tiny_net.Params) -> float:
        return reference(params, batch, joint, source_loss)

    tiny_net.assert_same(tiny_net.autograd(loss, ("", net)), tiny_net.numerical_gradient(of, p, p))


def test_unlabelled_images_reach_batch_norm_only() -> None:
    batch = make_batch(0)
    net = TinyNet(3, norm=False)
    torch.testing.assert_close(BaselineBN(3).loss(net, batch)[0], Supervised(3).loss(net, batch)[0])
    net = TinyNet(3).train()
    p = tiny_net.params_of(net)
    BaselineBN(3).loss(net, batch)
    h = tiny_net.hidden(p, joined(batch.x_sl_w, batch.x_sl_s, batch.x_tu_w, batch.x_tu_s))
    np.testing.assert_allclose(tiny_net.statistics(net)["running_mean"], 0.1 * h.mean(0))

"""NoisyStudent: the loss with hard and soft labels, and which predictions become labels."""

import pytest
import torch
from reference import losses, tiny_net
from reference.tiny_net import TinyNet, joined, make_batch
from torch import tensor

from adamatch.base.errors import InputError
from adamatch.methods.noisy_student import NoisyStudent


@pytest.mark.parametrize("soft", [False, True])
def test_loss_and_gradients_match_the_reference(soft: bool) -> None:
    net, batch = TinyNet(3).train(), make_batch(0)
    if soft:
        batch = batch._replace(y_sl=(batch.y_sl * 3 + torch.rand(6, 3)).softmax(1))
    p = tiny_net.params_of(net)
    loss, metrics = NoisyStudent(3).loss(net, batch)

    def of(params: tiny_net.Params) -> float:
        z = tiny_net.logits(params, joined(batch.x_sl_w, batch.x_sl_s))
        return losses.labelled(batch.y_sl.numpy(), z[:6], z[6:], "half")

    assert loss.item() == pytest.approx(of(p), rel=1e-9)
    assert metrics["loss_source"].item() == loss.item()
    tiny_net.assert_same(tiny_net.autograd(loss, ("", net)), tiny_net.numerical_gradient(of, p, p))


def test_confident_predictions_are_kept() -> None:
    y = tensor([[0.91, 0.09], [0.1, 0.9], [0.5, 0.5], [0.0, 1.0]])
    assert NoisyStudent(2).keep(y).tolist() == [True, False, False, True], "above 0.9, not at it"
    assert NoisyStudent(2, threshold=0.4).keep(y).all()
    assert not NoisyStudent(2, threshold=1.0).keep(y).any()


def test_arguments() -> None:
    assert NoisyStudent.generations({}) == 1
    assert NoisyStudent.generations({"generations": 3}) == 3
    with pytest.raises(InputError, match="from 1 to 65,536, not 0"):
        NoisyStudent(2, generations=0)
    with pytest.raises(InputError, match="from 0 to 1"):
        NoisyStudent(2, threshold=90)

"""FixMatch and FixMatch+: loss and gradients against NumPy and finite differences."""

from typing import Any

import numpy as np
import pytest
import torch
from reference import losses, tiny_net
from reference.tiny_net import TinyNet, joined, make_batch

from adamatch.methods.contract import Batch
from adamatch.methods.fixmatch import FixMatch

Histories = tuple[list[losses.Array], list[losses.Array]]


def reference(
    p: tiny_net.Params, batch: Batch, history: Histories, guess: losses.Guess | None = None, **options: Any
) -> losses.Result:
    z = tiny_net.logits(p, joined(batch.x_sl_w, batch.x_sl_s, batch.x_tu_w, batch.x_tu_s))
    n = 2 * len(batch.y_sl)
    result = losses.fixmatch(
        z[:n],
        z[n:],
        batch.y_sl.numpy(),
        means_labels=history[0],
        means_guesses=history[1],
        **{"align_to" if name == "align" else name: value for name, value in options.items() if name != "knn_anchor"},
        progress=float(batch.progress),
        guess=guess,
    )
    if options.get("knn_anchor"):
        z_tu_s = z[n + len(batch.x_tu_w) :]
        first = losses.first(batch.y_tu_first.numpy(), z_tu_s, float(batch.progress))
        result = result._replace(loss=result.loss + first)
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tau": 0.5},
        {"tau": 1.0},
        {"tau": 0.0},
        {"align": "none"},
        {"align": "none", "tau": 0.5},
        {"alignment_window": 2, "alignment_decay": 0.5},
        {"alignment_clip": 1.25, "alignment_window": 2, "alignment_decay": 0.5, "tau": 0.0},
        {"fade_out": True, "alignment_clip": 1.25, "alignment_window": 2, "alignment_decay": 0.5, "tau": 0.0},
        {"knn_anchor": True, "tau": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("absent", [-1, 0])
def test_loss_and_gradients_match_the_reference(options: dict[str, Any], absent: int) -> None:
    net, method = TinyNet(3).train(), FixMatch(3, **options)
    history: Histories = ([], [])
    for step in range(3):
        batch = make_batch(step, absent=absent, progress=0.7 if "fade_out" in options else 0.3)
        p = tiny_net.params_of(net)
        loss, metrics = method.loss(net, batch)
        theirs = reference(p, batch, history, **options)
    assert metrics["mask"].item() == pytest.approx(np.mean(theirs.guess.trusted[len(batch.y_sl) :]))  # unlabelled ones

    def of(params: tiny_net.Params) -> float:
        return reference(params, batch, ([], []), theirs.guess, **options).loss

    tiny_net.assert_matches(net, (loss, metrics), theirs, of, p)


def test_labels_that_alignment_makes_sure_pass() -> None:
    net, method, batch = TinyNet(3), FixMatch(3), make_batch(0, absent=0)
    method.mean_labels.value.copy_(torch.tensor([0.0, 1e-9, 1.0]))  # nothing but one class is to be expected
    assert method.loss(net, batch)[1]["mask"] > 0.5
    assert FixMatch(3, align="none").loss(net, batch)[1]["mask"] < 0.5


def test_alignment_is_to_the_labels_not_to_the_output() -> None:
    net, method, batch = TinyNet(3), FixMatch(3), make_batch(0, absent=0)
    method.loss(net, batch)
    torch.testing.assert_close(method.mean_labels.value, 0.999 / 3 + 0.001 * batch.y_sl.mean(0))
    for _ in range(2000):
        method.mean_labels(batch.y_sl.mean(0))
    _, metrics = method.loss(net, batch)
    assert method.mean_labels.value[0] < 0.06
    plain = FixMatch(3, align="none", tau=0.0).loss(net, batch)[1]["pseudo_labels"]
    method.tau = 0.0
    assert method.loss(net, batch)[1]["pseudo_labels"][0] < plain[0], "the class that labels lack is guessed less often"
    assert metrics["divergence"] > 0.1


def test_strong_views_have_pseudo_labels_whether_labelled_or_not() -> None:
    net, batch = TinyNet(3, norm=False), make_batch(0)
    for tau, used in ((1.0, False), (0.0, True)):
        views = [batch.x_sl_s.clone().requires_grad_(), batch.x_tu_s.clone().requires_grad_()]
        loss, _ = FixMatch(3, tau=tau).loss(net, batch._replace(x_sl_s=views[0], x_tu_s=views[1]))
        for gradient in torch.autograd.grad(loss, views):
            assert bool((gradient.flatten(1).abs().sum(1) > 0).all()) == used
            assert bool((gradient == 0).all()) != used

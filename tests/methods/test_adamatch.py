"""AdaMatch: loss and gradients against NumPy and finite differences, and what the paper promises of it."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from reference import losses, tiny_net
from reference.tiny_net import TinyNet, joined, make_batch
from torch import tensor

from adamatch.methods.adamatch import AdaMatch
from adamatch.methods.averages import learned
from adamatch.methods.contract import Batch
from adamatch.methods.parts import forward_guessing, forward_joint, forward_twice
from adamatch.networks.wideresnet import WideResNet

KNOWN = [0.2, 0.5, 0.3]
THEIRS = {"interpolate": "interpolated", "align": "align_to", "target": "known"}  # arguments' names in the reference

Histories = tuple[list[losses.Array], list[losses.Array]]


def reference(
    p: tiny_net.Params,
    batch: Batch,
    history: Histories,
    guess: losses.Guess | None = None,
    passes: list[losses.Array] | None = None,
    **options: Any,
) -> losses.Result:
    """The whole loss in NumPy, from the images on."""
    x_sl, x_tu = joined(batch.x_sl_w, batch.x_sl_s), joined(batch.x_tu_w, batch.x_tu_s)
    z = tiny_net.logits(p, np.concatenate([x_sl, x_tu]))
    result = losses.adamatch(
        z[: len(x_sl)],
        tiny_net.logits(p, x_sl),
        z[len(x_sl) :],
        batch.y_sl.numpy(),
        batch.lam.numpy(),
        float(batch.progress),
        means_sl=history[0],
        means_tu=history[1],
        **{THEIRS.get(name, name): value for name, value in options.items() if name not in ("pools", "knn_anchor")},
        from_target=len(batch.y_sl) // 2 if options.get("pools") == 2 else 0,
        passes=[] if passes is None else passes,
        guess=guess,
    )
    if options.get("knn_anchor"):
        z_tu_s = z[len(x_sl) + len(batch.x_tu_w) :]
        first = losses.first(batch.y_tu_first.numpy(), z_tu_s, float(batch.progress))
        result = result._replace(loss=result.loss + first)
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"source_loss": "sum"},
        {"batches": 2},  # SSDA: two pools, both full
        {"batches": 1.25},  # the second has a quarter of a batch
        {"batches": 2, "source_loss": "sum"},
        {"pools": 2},
        {"pools": 2, "align": "labels"},
        {"interpolate": False},
        {"align": "labels"},
        {"align": "none"},
        {"align": "target", "target": KNOWN},
        {"alignment_clip": 1.25, "alignment_window": 2, "alignment_decay": 0.5, "tau": 0.0},
        {"fade_out": True, "alignment_clip": 1.25, "alignment_window": 2, "alignment_decay": 0.5, "tau": 0.0},
        {"threshold": "fixed", "tau": 0.5},
        {"threshold": "fixed", "tau": 1.0},  # nothing above the threshold
        {"threshold": "fixed", "tau": 0.0},  # everything above it
        {"tau": 0.0},
        {"threshold": "classes", "alignment_window": 2},
        {"threshold": "classes", "alignment_window": 2, "tau": 0.0},
        {"threshold": "classes", "alignment_window": 2, "tau": 1.0},
        {"knn_anchor": True},
        {"knn_anchor": True, "threshold": "fixed", "tau": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("absent", [-1, 0])
def test_loss_and_gradients_match_the_reference(options: dict[str, Any], absent: int) -> None:
    net, method = TinyNet(3).train(), AdaMatch(3, **options)
    history: Histories = ([], [])
    passes: list[losses.Array] = []
    for step in range(3):  # the class averages remember
        batch = make_batch(step, absent=absent, progress=0.7 if "fade_out" in options else 0.3)
        p = tiny_net.params_of(net)
        loss, metrics = method.loss(net, batch)
        theirs = reference(p, batch, history, passes=passes, **options)
    assert metrics["mask"].item() == pytest.approx(np.mean(theirs.guess.trusted))
    counts = [sum(t * (c == j) for c, t in zip(*theirs.guess, strict=True)) / 9 for j in range(3)]
    np.testing.assert_allclose(metrics["pseudo_labels"], counts, atol=1e-12)

    def of(params: tiny_net.Params) -> float:
        return reference(params, batch, ([], []), theirs.guess, **options).loss

    tiny_net.assert_matches(net, (loss, metrics), theirs, of, p)


@pytest.mark.parametrize(
    ("warm_up", "progress", "weight"),
    [(0.5, 0, 0), (0.5, 0.25, 0.5), (0.25, 0.125, 0.5), (1, 0.5, 0.5), (0.25, 0.25, 1), (0.5, 0.5, 1), (0.5, 1, 1)],
)
def test_the_target_loss_counts_fully_where_the_warm_up_ends(warm_up: float, progress: float, weight: float) -> None:
    loss, metrics = AdaMatch(3, warm_up=warm_up, tau=0.0).loss(TinyNet(3), make_batch(0, progress=progress))
    assert metrics["loss_target"] > 0
    assert loss.item() == pytest.approx((metrics["loss_source"] + weight * metrics["loss_target"]).item(), rel=1e-9)


def test_shares_of_the_target_are_the_windows_mean() -> None:
    method = AdaMatch(3, alignment_window=2)
    method.loss(TinyNet(3), make_batch(0))
    assert method.shares.sum().item() == pytest.approx(1)
    torch.testing.assert_close(method.shares, method.mean_tu.means.mean(0))


def test_running_statistics_move_only_in_the_joint_forward() -> None:
    net, batch = TinyNet(3).train(), make_batch(0)
    p = tiny_net.params_of(net)
    AdaMatch(3).loss(net, batch)
    h = tiny_net.hidden(p, joined(batch.x_sl_w, batch.x_sl_s, batch.x_tu_w, batch.x_tu_s))
    recorded = tiny_net.statistics(net)
    np.testing.assert_allclose(recorded["running_mean"], 0.1 * h.mean(0))
    np.testing.assert_allclose(recorded["running_var"], 0.9 + 0.1 * h.var(0, ddof=1))
    assert recorded["num_batches_tracked"] == 1


def test_both_forwards_use_the_statistics_of_their_batch() -> None:
    net, batch = TinyNet(3).train(), make_batch(0)
    right, _ = AdaMatch(3).loss(net, batch)
    tiny_net.statistics(net)["running_mean"][:] = 100
    tiny_net.statistics(net)["running_var"][:] = 1e4
    wrong, _ = AdaMatch(3).loss(net, batch)
    assert right.item() == wrong.item(), "running statistics, those of evaluation mode, play no part"
    x_sl, x_tu_w, x_tu_s = torch.cat([batch.x_sl_w, batch.x_sl_s]), batch.x_tu_w, batch.x_tu_s
    joint, _, _, alone = forward_twice(net, x_sl, x_tu_w, x_tu_s)
    joint_moved, _, _, alone_moved = forward_twice(net, x_sl, x_tu_w + torch.randn_like(x_tu_w), x_tu_s)
    assert torch.equal(alone, alone_moved)
    assert not torch.allclose(joint, joint_moved)
    assert net.training


def test_without_batch_norm_both_forwards_agree() -> None:
    net, batch = TinyNet(3, norm=False).train(), make_batch(0)
    with_it, metrics = AdaMatch(3, interpolate=True).loss(net, batch)
    without, _ = AdaMatch(3, interpolate=False).loss(net, batch)
    torch.testing.assert_close(with_it, without)
    assert metrics["logit_gap"].item() == pytest.approx(0, abs=1e-12)
    other = batch._replace(lam=1 - batch.lam)
    torch.testing.assert_close(AdaMatch(3).loss(net, other)[0], with_it)


def test_images_for_guesses_have_no_way_back_where_it_does_not_matter_to_others() -> None:
    batch = make_batch(0)
    images = torch.cat([batch.x_sl_w, batch.x_sl_s]), batch.x_tu_w, batch.x_tu_s
    for norm in (False, True):
        net = TinyNet(3, norm=norm).train()
        z_sl, z_tu_w, z_tu_s = forward_guessing(net, *images)
        joint = forward_joint(net, *images)
        for mine, its in zip((z_sl, z_tu_w, z_tu_s), joint, strict=True):
            torch.testing.assert_close(mine, its)
        assert z_tu_w.requires_grad == norm
        gradients = [
            torch.autograd.grad(sl.square().sum() + tu.square().sum(), list(net.parameters()))
            for sl, tu in ((z_sl, z_tu_s), (joint[0], joint[2]))
        ]
        torch.testing.assert_close(*gradients)


def test_strong_view_of_labelled_images_is_used() -> None:
    net, batch = TinyNet(3, norm=False), make_batch(0)
    x = batch.x_sl_s.clone().requires_grad_()
    loss, _ = AdaMatch(3).loss(net, batch._replace(x_sl_s=x))
    (gradient,) = torch.autograd.grad(loss, x)
    assert (gradient.flatten(1).abs().sum(1) > 0).all()


@pytest.mark.parametrize("progress", [0.25, 0.5, 1.0])
def test_released_alignment_is_the_papers_at_first_and_none_at_the_end(progress: float) -> None:
    net, batch = TinyNet(3).train(), make_batch(0, progress=progress)
    skewed: dict[str, Any] = {"align": "target", "target": [0.01, 0.01, 0.98]}  # alignment changes every guess
    (ours, _), (aligned, _), (plain, _) = (
        method.loss(net, batch)
        for method in (AdaMatch(3, **skewed, fade_out=True), AdaMatch(3, **skewed), AdaMatch(3, align="none"))
    )
    assert aligned != plain
    assert ours == (plain if progress == 1 else aligned)


@pytest.mark.parametrize("release", [True, False])
def test_alignment_of_limit_one_is_none(release: bool) -> None:
    net, batch = TinyNet(3).train(), make_batch(0, progress=0.6)
    plain = AdaMatch(3, tau=0.5, align="none").loss(net, batch)[0]
    for limit, same in ((1.0, True), (0.0, False)):
        method = AdaMatch(3, tau=0.5, alignment_clip=limit, fade_out=release)
        method.mean_sl.value.copy_(tensor([0.998, 0.001, 0.001]))
        assert torch.allclose(method.loss(net, batch)[0], plain) is same


def test_classes_of_which_few_pass_have_lower_thresholds() -> None:
    passed = tensor([0.4, 0.2, 0.0])
    torch.testing.assert_close(learned(passed), tensor([1.0, 1 / 3, 0.0]))
    few = passed / 8 / 0.925
    torch.testing.assert_close(learned(passed / 8), few / (2 - few))
    assert learned(torch.zeros(3)).tolist() == [0, 0, 0]  # none passes
    assert learned(tensor([1.0, 0, 0])).tolist() == [1, 0, 0]


def test_alignment_changes_the_labels_that_are_guessed() -> None:
    net, batch = TinyNet(3).train(), make_batch(0)
    one_class: dict[str, Any] = {"align": "target", "target": [0.0005, 0.0005, 0.999]}
    (_, aligned), (_, plain) = (
        AdaMatch(3, tau=0.0, **given).loss(net, batch) for given in (one_class, {"align": "none"})
    )
    assert plain["pseudo_labels"][2] < 0.7
    assert aligned["pseudo_labels"][2] > 0.9


def test_one_pass_over_both_groups_equals_two_forwards() -> None:
    once = WideResNet(3, widths=(4, 8), blocks=1, stem=4).train()
    twice = copy.deepcopy(once)
    twice.takes_groups = False
    torch.manual_seed(1)
    x = torch.randn(30, 3, 8, 8)
    batch = make_batch(0)._replace(x_sl_w=x[:6], x_sl_s=x[6:12], x_tu_w=x[12:21] + 1, x_tu_s=x[21:] + 1)
    ours, theirs = (AdaMatch(3).loss(net, batch) for net in (once, twice))
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])
    assert ours[1]["logit_gap"] > 1e-3
    tiny_net.assert_same(tiny_net.autograd(ours[0], ("", once)), tiny_net.autograd(theirs[0], ("", twice)), 1e-10)
    for (name, value), (_, other) in zip(once.named_buffers(), twice.named_buffers(), strict=True):
        torch.testing.assert_close(value, other, msg=name)

"""What holds for every method: how its file reads, and what the training loop may count on."""

import copy
from typing import Any

import pytest
import torch
from reference.tiny_net import TinyNet, make_batch
from torch import nn

from adamatch.base.errors import InputError
from adamatch.config.recipe import PseudoLabels
from adamatch.methods import MCD, METHODS, AdaMatch, Batch, FixMatch, NoisyStudent, Pass, build
from adamatch.networks.wideresnet import WideResNet

PAPER = PseudoLabels()


def wide_batch(dtype: torch.dtype) -> Batch:
    """Images of 3 x 8 x 8, for a network of this package."""
    x = torch.randn(30, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    batch = make_batch(0)._replace(x_sl_w=x[:6], x_sl_s=x[6:12], x_tu_w=x[12:21], x_tu_s=x[21:])
    return Batch(*(value.to(dtype) for value in batch))


def make(name: str) -> tuple[nn.Module, nn.Module]:
    net = WideResNet(3, widths=(4, 8), blocks=1, stem=4).train()
    return net, build(name, classes=3, net=net, recipe=PAPER, options={})


def trained(net: nn.Module, method: nn.Module, what: str) -> list[nn.Parameter]:
    heads = [*net.head.parameters(), *method.parameters()]  # type: ignore[union-attr]
    features = [p for name, p in net.named_parameters() if not name.startswith("head.")]
    return {"all": features + heads, "heads": heads, "features": features}[what]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_phases_give_finite_losses_and_gradients_in_float32(name: str, autocast: bool) -> None:
    torch.set_default_dtype(torch.float32)
    net, method = make(name)
    batch = wide_batch(torch.float32)
    assert isinstance(method.unlabelled, bool)
    assert isinstance(method.weight_decay, bool)
    for phase in method.phases:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, metrics = phase.loss(net, batch)
        assert loss.shape == ()
        assert loss.dtype == torch.float32
        assert loss.isfinite()
        assert metrics
        for value in metrics.values():
            assert value.isfinite().all()
            assert not value.requires_grad
        gradients = torch.autograd.grad(loss, trained(net, method, phase.trains))  # every parameter is reached
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert any((gradient != 0).any() for gradient in gradients)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_sends_through_the_network(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    net, method = make(name)
    features, seen = net.features, []

    def counted(x: torch.Tensor, groups: tuple[int, ...] | None = None) -> torch.Tensor:
        seen.append(Pass(len(x), groups, torch.is_grad_enabled()))
        return features(x, groups)  # type: ignore[operator, no-any-return]

    net.features = counted  # type: ignore[assignment]
    batch = wide_batch(torch.float32)
    for phase in method.phases:  # type: ignore[union-attr]
        phase.loss(net, batch)
    said = METHODS[name].passes(len(batch.x_sl_w), len(batch.x_tu_w))
    assert sorted(said, key=str) == sorted(seen, key=str)
    work = sum(each.images * (3 if each.trained else 1) for each in seen)  # a backward pass is as much as two forwards
    assert 3 * METHODS[name].images_per_step(len(batch.x_sl_w), len(batch.x_tu_w)) == pytest.approx(work)


@pytest.mark.parametrize("name", METHODS)
def test_state_dict_is_the_whole_state(name: str) -> None:
    net, method = make(name)
    batch = wide_batch(torch.float64)

    def step(method: nn.Module) -> list[float]:
        return [phase.loss(net, batch)[0].item() for phase in method.phases]  # type: ignore[union-attr]

    step(method)
    loaded = build(name, classes=3, net=net, recipe=PAPER, options={})
    loaded.load_state_dict(method.state_dict())
    twin = copy.deepcopy(method)
    assert step(method) == step(loaded) == step(twin)
    for other in (loaded, twin):
        assert all(torch.equal(a, b) for a, b in zip(method.buffers(), other.buffers(), strict=True))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mcd"])
def test_any_network_with_a_forward_will_do(name: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    method = build(name, classes=3, net=net, recipe=PAPER, options={})
    for phase in method.phases:
        assert phase.loss(net, make_batch(0))[0].isfinite()


@pytest.mark.parametrize("name", ["adamatch", "fixmatch+"])
def test_labels_from_before_training_count_while_pseudo_labels_hardly_do(name: str) -> None:
    net = TinyNet(3).train()
    for progress, same in ((0.0, False), (0.5, True), (1.0, True)):
        found = [
            build(name, classes=3, net=net, recipe=PAPER, options={"knn_anchor": anchored})
            .phases[0]
            .loss(net, make_batch(0, progress=progress))[0]
            for anchored in (True, False)
        ]
        assert torch.equal(*found) == same
    at_end = [
        build(name, classes=3, net=net, recipe=PAPER, options={"knn_anchor": True, "anchor_floor": floor})
        .phases[0]
        .loss(net, make_batch(0, progress=1.0))[0]
        for floor in (0.0, 1.0, 3.0)
    ]
    assert at_end[0] == found[1] < at_end[1]
    torch.testing.assert_close(at_end[2] - at_end[0], 3 * (at_end[1] - at_end[0]))
    method = build(name, classes=3, net=net, recipe=PAPER, options={"knn_anchor": True})
    with pytest.raises(InputError, match="anchored=True needs labels that unlabelled images had"):
        method.phases[0].loss(net, make_batch(0)._replace(y_tu_first=torch.zeros(0)))


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in METHODS), ("adamatch", {"source_loss": "sum"})], ids=str
)
def test_images_without_a_label_add_nothing_to_the_labelled_loss(name: str, options: dict[str, str]) -> None:
    """They stand in for labelled target images that do not count yet: there are two labelled batches."""
    net, batch, others = TinyNet(3).eval(), make_batch(0), make_batch(1)
    more = batch._replace(
        x_sl_w=torch.cat([batch.x_sl_w, others.x_sl_w]),
        x_sl_s=torch.cat([batch.x_sl_s, others.x_sl_s]),
        y_sl=torch.cat([batch.y_sl, torch.zeros_like(others.y_sl)]),
        lam=torch.ones(4 * len(batch.y_sl), 3),
    )
    alone = batch._replace(lam=torch.ones(2 * len(batch.y_sl), 3))
    torch.manual_seed(0)  # for the second head of one of them
    method = build(name, classes=3, net=net, recipe=PAPER, options=options)
    torch.manual_seed(0)
    of_two = build(name, classes=3, net=net, recipe=PAPER, batches=2.0, options=options)
    found, wanted = of_two.phases[0].loss(net, more)[1], method.phases[0].loss(net, alone)[1]
    torch.testing.assert_close(found["loss_source"], wanted["loss_source"])


def test_labels_are_counted_where_there_are_some() -> None:
    net, batch = TinyNet(3).train(), make_batch(0)
    half = batch._replace(y_sl=torch.where(torch.arange(len(batch.y_sl))[:, None] % 2 == 0, batch.y_sl, 0.0))
    wanted = batch.y_sl[::2].mean(0)
    fixmatch, adamatch_ = FixMatch(3, alignment_decay=0.0), AdaMatch(3, align="labels", alignment_decay=0.0)
    for method, mean in ((fixmatch, fixmatch.mean_labels), (adamatch_, adamatch_.mean_sl)):
        method.phases[0].loss(net, half)
        torch.testing.assert_close(mean.value, wanted)


def test_build_passes_what_each_method_takes() -> None:
    net = TinyNet(3, width=7)
    given = {"align": "target", "target": [0.2, 0.3, 0.5]}
    adamatch_ = build("adamatch", classes=3, net=net, recipe=PseudoLabels(tau=0.8), options=given)
    assert isinstance(adamatch_, AdaMatch)
    assert adamatch_.tau == 0.8
    torch.testing.assert_close(adamatch_.known, torch.tensor([0.2, 0.3, 0.5]))
    recipe = PseudoLabels(
        tau=0.7, alignment_clip=2.5, alignment_window=7, alignment_decay=0.5, fade_out=True, knn_anchor=True
    )
    for name, options, released in (
        ("adamatch", {}, True),
        ("adamatch", {"fade_out": False}, False),  # an option goes before the recipe
        ("fixmatch+", {}, True),
    ):
        built = build(name, classes=3, net=net, recipe=recipe, options=options)
        assert isinstance(built, AdaMatch | FixMatch)
        assert (built.tau, built.fade_out, built.limit, built.knn_anchor) == (0.7, released, 2.5, True)
        average, window = (
            (built.mean_sl, built.mean_tu) if isinstance(built, AdaMatch) else (built.mean_labels, built.mean_guesses)
        )
        assert (average.decay, len(window.means)) == (0.5, 7)
    student = build("noisystudent", classes=3, net=net, recipe=PseudoLabels(tau=0.6), options={"generations": 2})
    assert isinstance(student, NoisyStudent)
    assert student.tau == 0.6
    mcd = build("mcd", classes=3, net=net, recipe=PAPER, options={})
    assert isinstance(mcd, MCD)
    assert mcd.head.weight.shape == (3, 7)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("adamtch", {}, "no method is called 'adamtch': did you mean 'adamatch'?"),
    ("adamatch", {"aling": "none"}, "method 'adamatch' has no option 'aling': its options are interpolate,"),
    ("adamatch", {"pools": 2}, "pools is 1 or the number of full labelled batches in a step, 1 here; not 2"),
    ("adamatch", {"align": "target"}, "go together"),
    ("adamatch", {"target": [0.2, 0.5, 0.3]}, "go together"),
    ("adamatch", {"align": "target", "target": [0.5, 0.5]}, "needs 3 numbers"),
    ("adamatch", {"align": "sorce"}, "did you mean 'source'"),
    ("adamatch", {"threshold": "relativ"}, "did you mean 'relative'"),
    ("adamatch", {"alignment_clip": 0.5}, "alignment_clip is a factor: give a number from 1 to 65,536"),
    ("adamatch", {"source_loss": "mean"}, "there are half, sum"),
    ("adamatch", {"batches": 0}, "batches is a number above 0, up to 65,536, not 0"),
    ("adamatch", {"warm_up": 0}, "warm_up is a part of the run: give a number above 0, up to 1, not 0"),
    ("adamatch", {"alignment_window": 65537}, "from 1 to 65,536, not 65537"),
    ("fixmatch+", {"align": "label"}, "did you mean 'labels'"),
    ("noisystudent", {"generations": 0}, "from 1 to 65,536, not 0"),
    ("mcd", {"align": "none"}, "method 'mcd' has no option 'align': it has none"),
    ("mcd", {"pools": 2}, "method 'mcd' has no option 'pools': it has none"),
]


@pytest.mark.parametrize(("name", "options", "says"), WRONG, ids=str)
def test_what_is_wrong_is_said_in_one_line(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        build(name, classes=3, net=TinyNet(3), recipe=PAPER, options=options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)

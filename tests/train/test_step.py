"""Schedules, optimisers, the weight average and whole steps against NumPy; on a GPU, that nothing is read back."""

import math
import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from train import tiny

from adamatch import methods, networks
from adamatch.augment.views import Views
from adamatch.config.recipe import PseudoLabels, Recipe
from adamatch.config.run import Run
from adamatch.images.tasks import Labelled, Problem, add_labelled
from adamatch.methods.contract import Batch, Method, Metrics, Phase
from adamatch.methods.parts import cross_entropy
from adamatch.train import step as step_module
from adamatch.train.batches import Batches, method_of
from adamatch.train.execution import Execution
from adamatch.train.optim import decay_weights, learning_rate, make_optimiser
from adamatch.train.speed import WARM_STEPS, Captured, Inputs, Machine
from adamatch.train.step import WORTH_COMPILING, Step

Array = NDArray[np.float64]
LEARNING = replace(tiny.RECIPE, strong="cta")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_the_learning_rate_ends_at_a_quarter() -> None:
    p = np.linspace(0, 1, 101)
    expected = 0.03 * np.cos(np.arccos(0.25) * p)
    np.testing.assert_allclose([learning_rate(0.03, 0.25, float(each)) for each in p], expected, rtol=1e-15)
    assert learning_rate(0.03, 0.25, 0) == 0.03
    assert learning_rate(0.03, 0.25, 1) == pytest.approx(0.0075, rel=1e-12)
    assert learning_rate(0.5, 1, 0.7) == 0.5  # constant


def a_step(recipe: Recipe = tiny.RECIPE, method: str = "adamatch", machine: Machine = tiny.CPU) -> Step:
    net = networks.build(recipe.network, 3)
    built = methods.build(method, classes=3, net=net, recipe=PseudoLabels(tau=0.4), options={})
    return Step(net, built, recipe, machine, pytest.fail)


@pytest.mark.parametrize("lifted", [True, False])
def test_rare_classes_are_drawn_as_often_as_the_median_one_where_the_recipe_says_so(lifted: bool) -> None:
    problem = tiny.problem("uda")
    pool = problem.labelled[0]
    rows = np.concatenate([np.flatnonzero(pool.labels < 2), np.flatnonzero(pool.labels == 2)[:2]])
    uneven = replace(pool, parts=(pool.parts[0][rows],), labels=pool.labels[rows])
    run = tiny.a_run()
    run = replace(run, recipe=replace(run.recipe, balance_classes=lifted))
    batches = batches_of(run, replace(problem, labelled=(uneven,)))
    seen = torch.cat([batches.next(done).y_sl for done in range(60)]).sum(0)
    assert (float(seen[2] / seen[1]) > 0.8) is lifted


@pytest.mark.parametrize("repeat", [True, False])
def test_few_labels_come_once_in_a_step_however_rare_their_class_is(repeat: bool) -> None:
    run, problem = (
        tiny.a_run(task="ssda", labels=1, balance_classes=True, repeat=repeat, batch=16),
        tiny.problem("ssda", labels=6),
    )
    few = problem.labelled[1]
    rows = np.concatenate([np.flatnonzero(few.labels < 2), np.flatnonzero(few.labels == 2)[:1]])
    uneven = replace(few, parts=(few.parts[0][rows],), labels=few.labels[rows])
    batches = batches_of(run, replace(problem, labelled=(problem.labelled[0], uneven)))
    seen = [batches.next(done).y_sl[16:].sum(0) for done in range(12)]
    assert (max(float(each[2]) for each in seen) > 1) is repeat


def batches_of(run: Run, problem: Problem) -> Batches:
    return Batches(run, problem, a_step(run.recipe, run.method), Execution(tiny.CPU, "device"))


def test_what_a_step_gets() -> None:
    """lr, progress and sizes of every step; all tensors of the same shape at every step."""
    run, problem = tiny.a_run(task="ssda", labels=2), tiny.problem("ssda", labels=2)
    batches = batches_of(run, problem)
    few = torch.from_numpy(problem.labelled[1].parts[0]).permute(0, 3, 1, 2)
    for done in range(tiny.STEPS):
        inputs = batches.next(done)
        assert inputs.x_sl.shape == (8, 3, 8, 8)  # the concatenated batch: 4 source images and 4 labelled target images
        assert inputs.y_sl.shape == (8, 3)
        assert inputs.x_tu.shape == (8, 3, 8, 8)  # batch * uratio: the labelled batch's growth does not count
        assert inputs.u.shape == (2 * 8 + 8, 8)
        assert inputs.lam.shape == (16, 3)
        assert all((few == image).flatten(1).all(1).any() for image in inputs.x_sl[4:])
        assert not any((few == image).flatten(1).all(1).any() for image in inputs.x_sl[:4])
        assert inputs.progress.item() == pytest.approx(done / tiny.STEPS)
        assert inputs.lr.item() == pytest.approx(0.03 * math.cos(math.acos(0.25) * done / tiny.STEPS))


def test_alignment_is_as_the_recipe_says() -> None:
    run = tiny.a_run(alignment_clip=3.0, alignment_window=5, alignment_decay=0.5, fade_out=True)
    built = method_of(run, tiny.problem(), networks.build("wrn-tiny", 3))
    assert isinstance(built, methods.AdaMatch)
    assert (built.limit, built.fade_out) == (3.0, True)
    assert (len(built.mean_tu.means), built.mean_sl.decay) == (5, 0.5)


def test_source_images_stand_in_for_labelled_target_images_until_these_count() -> None:
    run, problem = tiny.a_run(task="ssda", labels=2), tiny.problem("ssda", labels=2)
    late = replace(run, recipe=replace(run.recipe, target_labels_from=0.5))
    plain, batches = batches_of(run, problem), batches_of(late, problem)
    source = torch.from_numpy(problem.labelled[0].parts[0]).permute(0, 3, 1, 2)
    labels = torch.eye(3)[problem.labelled[0].labels]
    for done in range(tiny.STEPS):
        ours, theirs = batches.next(done), plain.next(done)
        early = slice(0, 4 if done < tiny.STEPS / 2 else 8)
        for name in ours._fields:  # nothing else is another
            rows = early if name in ("x_sl", "y_sl", "x_pr", "y_pr") else ...
            assert torch.equal(getattr(ours, name)[rows], getattr(theirs, name)[rows])
        assert not ours.y_sl[early.stop :].any()  # no class: no loss
        assert torch.equal(ours.x_sl, ours.x_pr)
        for image, label in zip(
            ours.x_pr[early.stop :], ours.y_pr[early.stop :], strict=True
        ):  # CTAugment learns from them
            (row,) = (source == image).flatten(1).all(1).nonzero().flatten().tolist()
            assert torch.equal(labels[row], label)
    again = batches_of(late, problem)
    again.seek(1, again.generator.get_state())
    batches.seek(1, batches.generator.get_state())
    assert torch.equal(again.next(1).x_sl, batches.next(1).x_sl)


@pytest.mark.parametrize("strong", ["cta", "cutout"])
def test_a_students_probes_are_images_whose_labels_are_known(strong: str) -> None:
    problem = tiny.problem("ssda", labels=1)
    guessed = Labelled((np.zeros((9, 8, 8, 3), np.uint8),), np.full((9, 3), 1 / 3, np.float32))
    student = add_labelled(problem, guessed, 2, seed=0)
    batches = batches_of(tiny.a_run(method="noisystudent", strong=strong), student)
    known = torch.from_numpy(np.concatenate([pool.parts[0] for pool in problem.labelled])).permute(0, 3, 1, 2)
    labels = torch.eye(3)[np.concatenate([pool.labels for pool in problem.labelled])]
    for done in range(tiny.STEPS):
        inputs = batches.next(done)
        assert inputs.x_sl.shape == (4, 3, 8, 8)
        if strong == "cutout":  # nothing is learned from probes
            assert inputs.x_pr is inputs.x_sl
            continue
        assert inputs.x_pr.shape == (8, 3, 8, 8)  # a batch of each pool
        assert inputs.u.shape == (4 + 8, 22)
        for image, label in zip(inputs.x_pr, inputs.y_pr, strict=True):
            (row,) = (known == image).flatten(1).all(1).nonzero().flatten().tolist()
            assert torch.equal(labels[row], label)


def test_schedules_go_on_to_their_end_where_a_run_stops_early() -> None:
    run = tiny.a_run(stop_after=4 * 6)
    inputs = batches_of(run, tiny.problem()).next(run.recipe.last_step - 1)
    assert inputs.progress.item() == pytest.approx(5 / 12)


@pytest.mark.parametrize("name", ["wrn-tiny", "wrn-28-2"])
def test_decay_is_on_convolutions_and_linear_weights_only(name: str) -> None:
    net = networks.build(name, 3)
    groups = decay_weights(list(net.parameters()), 0.5)
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    for module in net.modules():
        for kind, parameter in module.named_parameters(recurse=False):
            weight = isinstance(module, (nn.Conv2d, nn.Linear)) and kind == "weight"
            assert decay.pop(id(parameter)) == (0.5 if weight else 0.0)
    assert not decay


class _Softmax(Method):
    """Softmax regression on the weak views: its gradient is easy to write down."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = [Phase(self.loss)]

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        loss = cross_entropy(batch.y_sl, net(batch.x_sl_w)).mean()
        return loss, {"loss_source": loss.detach()}


def inputs(recipe: Recipe, draws: int, seed: int, lr: float = 0.1, device: str = "cpu") -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    n_sl, n_tu, size = recipe.batch, recipe.batch * recipe.uratio, recipe.size
    pixels = torch.randint(0, 256, (n_sl + n_tu, 3, size, size), dtype=torch.uint8, generator=generator)
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    labels = torch.eye(3)[torch.arange(n_sl) % 3]
    made = Inputs(
        x_sl=pixels[:n_sl],
        y_sl=labels,
        x_tu=pixels[n_sl:],
        x_pr=pixels[:n_sl],
        y_pr=labels,
        u=torch.rand(2 * n_sl + n_tu, draws, generator=generator),
        lam=torch.rand(2 * n_sl, 3, generator=generator),
        progress=torch.tensor(0.3),
        lr=torch.tensor(lr),
        y_tu_first=torch.full((n_tu, 3), 1 / 3),
    )
    return Inputs(*(tensor.to(device) for tensor in made))


def test_whole_steps_against_numpy() -> None:
    """Views, loss, momentum, decay, learning rate and weight average, six steps long."""
    recipe = replace(tiny.RECIPE, weight_decay=0.05, ema_decay=0.7)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    step = Step(net, _Softmax(), recipe, tiny.CPU, pytest.fail)
    views = Views(8, strong="cutout", mirror=False)
    w, b = (parameter.detach().double().numpy().copy() for parameter in net.parameters())
    memory_w, memory_b, mean_w, mean_b = np.zeros_like(w), np.zeros_like(b), w.copy(), b.copy()
    for number in range(6):
        lr = 0.02 * (number + 1)
        given = inputs(recipe, views.draws, number, lr)
        step(given)
        weak, _ = views(torch.cat([given.x_sl, given.x_tu]), given.u[: len(given.x_sl) + len(given.x_tu)])
        x = weak[: recipe.batch].flatten(1).double().numpy()
        z = x @ w.T + b
        p = np.exp(z - z.max(1, keepdims=True))
        error = (p / p.sum(1, keepdims=True) - given.y_sl.numpy()) / recipe.batch
        memory_w = 0.9 * memory_w + error.T @ x + 0.05 * w
        memory_b = 0.9 * memory_b + error.sum(0)
        w, b = w - lr * memory_w, b - lr * memory_b
        mean_w, mean_b = 0.7 * mean_w + 0.3 * w, 0.7 * mean_b + 0.3 * b
    found = [*net.parameters(), *step.average.net.parameters()]
    for parameter, value in zip(found, (w, b, mean_w, mean_b), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-4, atol=1e-5)


def test_gradients_of_any_layout_are_followed() -> None:
    """The fused optimiser reads memory in order: a transposed or expanded gradient has to be laid out first."""

    class Twisted(Method):
        def __init__(self) -> None:
            super().__init__()
            self.phases = [Phase(self.loss)]

        def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
            kernel, _, linear, bias = net.parameters()
            return (kernel.permute(3, 2, 1, 0) * twist).sum() + linear.sum() + bias.sum(), {}

    net = nn.Sequential(nn.Conv2d(3, 5, 2), nn.Flatten(), nn.Linear(4, 3))
    before = [parameter.detach().clone() for parameter in net.parameters()]
    twist = torch.arange(60.0).reshape(2, 2, 3, 5)
    recipe = replace(tiny.RECIPE, weight_decay=0)
    step = Step(net, Twisted(), recipe, tiny.CPU, pytest.fail)
    step(inputs(recipe, step.views.draws, 0, lr=0.5))
    kernel, bias, linear, last = (
        old - parameter.detach() for old, parameter in zip(before, net.parameters(), strict=True)
    )
    torch.testing.assert_close(kernel, 0.5 * twist.permute(3, 2, 1, 0))
    torch.testing.assert_close(bias, torch.zeros(5))  # unused: not moved
    torch.testing.assert_close(linear, torch.full((3, 4), 0.5))
    torch.testing.assert_close(last, torch.full((3,), 0.5))


def test_probes_have_draws_of_their_own() -> None:
    step = a_step(LEARNING)
    given = inputs(LEARNING, step.views.draws, 0)
    with (
        mock.patch.object(step.views, "forward", wraps=step.views.forward) as shown,
        mock.patch.object(step.views, "probe", wraps=step.views.probe) as probed,
    ):
        step(given)
    (_, of_views), (images, of_probes) = shown.call_args.args, probed.call_args.args
    assert torch.equal(images, given.x_pr)
    assert torch.equal(torch.cat([of_views, of_probes]), given.u)  # every row of the draws is used, and once


def test_probes_are_scored_by_probabilities_against_their_own_labels() -> None:
    step = a_step(LEARNING)
    given = inputs(LEARNING, step.views.draws, 0)
    with mock.patch.object(step.views, "learn", wraps=step.views.learn) as learn:
        step(given)
    _, predicted, labels = learn.call_args.args
    assert isinstance(step.views, Views)
    probes, _ = step.views.probe(given.x_pr, given.u[-len(given.x_pr) :])
    torch.testing.assert_close(
        predicted, step.average.net(probes).softmax(1)
    )  # of the averaged network after this step
    torch.testing.assert_close(predicted.sum(1), torch.ones(4))
    assert torch.equal(labels, given.y_pr)
    assert len({tuple(row) for row in labels.tolist()}) == 3


def test_state_is_all_that_the_next_step_depends_on() -> None:
    for name in methods.METHODS:
        first, second = (a_step(LEARNING, name) for _ in range(2))
        for number in range(2):
            first(inputs(LEARNING, first.views.draws, number))
        saved = {key: value.clone() for key, value in first.state().items()}
        second.restore(saved)
        assert tiny.same(first.state(), second.state())
        for part in ("net", "method", "views", "average"):
            assert tiny.same(getattr(first, part).state_dict(), getattr(second, part).state_dict()), (name, part)
        assert (first.views.state_dict()["policy.rates"] != 1).any()  # they have been learned
        for step in (first, second):
            step(inputs(LEARNING, first.views.draws, 9))
        assert tiny.same(first.state(), second.state()), name
        assert not tiny.same(first.state(), saved), name


def test_batch_norm_remembers_as_long_as_the_weight_average() -> None:
    step = a_step(replace(tiny.RECIPE, ema_decay=0.97))
    norms = [module for module in step.net.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert all(norm.momentum == pytest.approx(0.03) for norm in norms)


@pytest.mark.parametrize("statistics", ["global", "kept"])
def test_running_statistics_move_unless_they_are_kept(statistics: str) -> None:
    recipe = replace(tiny.RECIPE, batch_norm=statistics)
    step = a_step(recipe)
    before = {name: value.clone() for name, value in step.average.net.state_dict().items()}
    step(inputs(recipe, step.views.draws, 0))
    for trained in (step.net, step.average.net):
        for name, value in trained.state_dict().items():
            if "running" in name:
                assert torch.equal(value, before[name]) == (statistics == "kept"), name
            elif "weight" in name:
                assert not torch.equal(value, before[name]), name


def test_phases_train_what_they_say() -> None:
    step = a_step(method="mcd")
    net, method = step.net, step.method
    whole, heads, features = ({id(parameter) for parameter in part} for part in step.trained)
    assert heads | features == whole == {id(parameter) for parameter in [*net.parameters(), *method.parameters()]}
    assert not heads & features
    assert len(heads) == 4
    decays = [group["weight_decay"] for optimiser in step.optimisers for group in optimiser.param_groups]
    assert set(decays) == {0.0}  # MCD has no weight decay


def test_the_loss_that_is_told_is_that_of_all_phases() -> None:
    def phase(loss: float) -> Phase:
        return Phase(lambda net, batch: (loss + 0 * net(batch.x_sl_w).sum(), {}), "features")

    step = a_step(method="mcd")
    step.method.phases = [phase(loss) for loss in (1.0, 2.0, 4.0)]
    step(inputs(tiny.RECIPE, step.views.draws, 0))
    assert step.meter.read()[0]["loss"] == 7


def moved(**changes: float) -> dict[str, Tensor]:
    """What one step changes of a network, always from the same weights."""
    recipe = replace(tiny.RECIPE, weight_decay=0.0, **changes)  # type: ignore[arg-type]
    torch.manual_seed(0)
    step = a_step(recipe)
    before = {name: value.detach().clone() for name, value in step.net.named_parameters()}
    step(inputs(recipe, step.views.draws, 0))
    return {name: value.detach() - before[name] for name, value in step.net.named_parameters()}


def test_what_lies_below_the_head_may_have_a_learning_rate_of_its_own() -> None:
    whole, slower = moved(), moved(lr_body=0.25)
    for name, change in whole.items():
        part = 1.0 if name.startswith("head.") else 0.25
        torch.testing.assert_close(slower[name], part * change, rtol=1e-3, atol=1e-7)
        assert change.abs().max() > 1e-5


def test_adamw_against_numpy() -> None:
    rng = np.random.default_rng(0)
    value, mean, square = rng.normal(size=(5, 4)), np.zeros((5, 4)), np.zeros((5, 4))
    parameter, lr = nn.Parameter(torch.from_numpy(value.copy())), torch.tensor(0.03, dtype=torch.float64)
    recipe = replace(tiny.RECIPE, optimiser="adamw", momentum=0.7)
    made = make_optimiser([{**group, "lr": lr} for group in decay_weights([parameter], 0.1)], recipe)
    for step in range(1, 6):
        gradient = rng.normal(size=(5, 4))
        parameter.grad = torch.from_numpy(gradient)
        made.step()
        mean, square = 0.7 * mean + 0.3 * gradient, 0.999 * square + 0.001 * gradient**2
        value = value * (1 - 0.03 * 0.1)
        value = value - 0.03 * (mean / (1 - 0.7**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-9)


def test_short_runs_are_not_compiled() -> None:
    machine = Machine(torch.device("cpu"), "fp32", compile=True, graph=False)
    for steps in (WORTH_COMPILING - 1, WORTH_COMPILING):
        with mock.patch.object(step_module, "compiled") as asked:
            a_step(replace(tiny.RECIPE, batch=2, images=2 * steps), "supervised", machine)
        assert {call.args[1].compile for call in asked.call_args_list} == {steps >= WORTH_COMPILING}


@pytest.fixture
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a run is."""
    monkeypatch.setattr(step_module, "WORTH_COMPILING", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("_compiled")
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_everything_that_is_compiled_is_kept_in_the_compilers_cache() -> None:
    counters = torch._dynamo.utils.counters["aot_autograd"]
    before = counters["autograd_cache_bypass"]
    machine = Machine(torch.device("cpu"), "bf16", compile=True, graph=False)
    recipe = replace(LEARNING, size=8, batch=2)
    step = a_step(recipe, machine=machine)
    step(inputs(recipe, step.views.draws, 0))
    assert (
        counters["autograd_cache_miss"] + counters["autograd_cache_hit"] >= 5
    )  # views, loss, probes, prediction, rates
    assert counters["autograd_cache_bypass"] == before


def gpu_step(name: str, strong: str, machine: Machine) -> tuple[Step, Recipe]:
    recipe = replace(tiny.RECIPE, size=32, batch=8, uratio=3, strong=strong, mirror=True, network="wrn-small")
    torch.manual_seed(0)
    return a_step(recipe, name, machine), recipe


@pytest.mark.gpu
@pytest.mark.usefixtures("_compiled")
@CUDA
@pytest.mark.parametrize("name", methods.METHODS)
@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_read_back(name: str, compiled: bool) -> None:
    machine = Machine(torch.device("cuda"), "bf16", compile=compiled, graph=compiled)
    step, recipe = gpu_step(name, "cta", machine)
    captured = Captured(step, machine)
    batches = [inputs(recipe, step.views.draws, number, device="cuda") for number in range(WARM_STEPS + 4)]
    for number, batch in enumerate(batches):
        quiet = number <= WARM_STEPS  # the first steps compile, choose algorithms and capture
        torch.cuda.set_sync_debug_mode("default" if quiet else "error")
        try:
            captured(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert step.meter.read()[1] == -1
    assert int(step.meter.steps) == len(batches)


@pytest.mark.gpu
@pytest.mark.usefixtures("_compiled")
@CUDA
@pytest.mark.parametrize("name", ["adamatch", "mcd"])
def test_captured_steps_equal_eager_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    ends = []
    for fast in (False, True):
        machine = Machine(torch.device("cuda"), "fp32", compile=fast, graph=fast)
        step, recipe = gpu_step(name, "cutout", machine)
        captured = Captured(step, machine)
        for number in range(20):
            captured(inputs(recipe, step.views.draws, number, lr=0.003, device="cuda"))
        ends.append({key: value.float().cpu() for key, value in step.state().items()})
    eager, fast_end = ends
    assert eager.keys() == fast_end.keys()
    for key, value in eager.items():
        difference = (fast_end[key] - value).abs().max() if value.numel() else torch.zeros(())
        assert difference <= 2e-3 + 2e-2 * value.abs().max(), key

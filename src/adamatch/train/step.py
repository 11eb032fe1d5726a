"""One training step: views, the method's phases, optimisers, weight average, probes. No host reads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from adamatch.augment.ctaugment import Policy
from adamatch.augment.views import Picked, Views
from adamatch.base import ranks
from adamatch.config.recipe import Recipe
from adamatch.methods.contract import Batch, Method, Metrics
from adamatch.networks.average import WeightAverage
from adamatch.networks.norm import BatchNorm, keep_statistics
from adamatch.train.meter import Meter
from adamatch.train.optim import decay_weights, make_optimiser, optimiser_state
from adamatch.train.speed import Inputs, Machine, compiled

SAVED = ("net", "method", "views", "average")
WORTH_COMPILING = 5000  # steps
# Optimiser state, and its names in a checkpoint.
MEMORIES = {"momentum_buffer": "momentum", "exp_avg": "mean", "exp_avg_sq": "square", "step": "steps"}


class Step:
    """All that a step changes, and the step itself. `state` and `restore` are for checkpoints."""

    def __init__(
        self, net: nn.Module, method: Method, recipe: Recipe, machine: Machine, say: Callable[[str], None]
    ) -> None:
        device = machine.device
        self.net = net.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
        for module in net.modules():
            if isinstance(module, BatchNorm):
                module.momentum = 1 - recipe.ema_decay
                module.shared = recipe.batch_norm == "global"
        if recipe.batch_norm == "kept":
            keep_statistics(net)
        self.method = method.to(device)
        self.views: Views | Picked = Picked()
        if not recipe.frozen:
            self.views = Views(recipe.size, strong=recipe.strong, mirror=recipe.mirror).to(machine.images)
        self.average = WeightAverage(net, recipe.ema_decay)
        self.machine = machine
        self.lr, self.lr_body = (torch.full((), recipe.lr, device=device) for _ in range(2))
        self.body = recipe.lr_body
        # One optimiser per phase: each has a momentum of its own.
        self.trained = [_parameters(net, method, phase.trains) for phase in method.phases]
        self.optimisers = [make_optimiser(self._groups(parameters, recipe), recipe) for parameters in self.trained]
        self.apart = _per_rank(net) if ranks.count() > 1 else []
        self.meter = Meter(device)
        # Compiling takes a minute and more: not worth it in a short run, whose step is one CUDA graph all the same.
        how = machine if recipe.last_step >= WORTH_COMPILING else replace(machine, compile=False)
        self._view = compiled(_view, how, say)
        self._loss = compiled(_loss, how, say)
        self._predict = compiled(_predict, how, say)
        self._probe = compiled(_probe, how, say)
        self._learn = compiled(_learn, how, say)

    def __call__(self, inputs: Inputs) -> None:
        self.lr.copy_(inputs.lr)
        self.lr_body.copy_(inputs.lr * self.body)
        batch = Batch(*(each.to(self.machine.device) for each in self._view(self.views, inputs)))
        metrics: Metrics = {}
        for number in range(len(self.method.phases)):
            with self.machine.autocast():
                loss, measured = self._loss(self.method, number, self.net, batch)
            self._follow(loss, number)
            metrics |= {**measured, "loss": metrics.get("loss", 0) + loss.detach()}
        if self.apart:
            torch._foreach_copy_(self.apart, ranks.averaged(self.apart))
        self.average.update(self.net)
        if isinstance(self.views, Views) and self.views.learns:
            self._learn_views(self.views, inputs)
        self.meter.add(metrics)

    def _groups(self, parameters: list[nn.Parameter], recipe: Recipe) -> list[dict[str, Any]]:
        """An optimiser's groups: what lies below the head may have a learning rate of its own."""
        decay = recipe.weight_decay if self.method.weight_decay else 0.0
        if recipe.lr_body == 1.0:
            return [{**group, "lr": self.lr} for group in decay_weights(parameters, decay)]
        heads = {id(parameter) for parameter in _parameters(self.net, self.method, "heads")}
        parts = [parameter for parameter in parameters if id(parameter) in heads], self.lr
        below = [parameter for parameter in parameters if id(parameter) not in heads], self.lr_body
        return [{**group, "lr": lr} for part, lr in (parts, below) for group in decay_weights(part, decay)]

    def _follow(self, loss: Tensor, phase: int) -> None:
        """One optimiser step on the parameters that this phase trains."""
        parameters, optimiser = self.trained[phase], self.optimisers[phase]
        gradients = ranks.averaged(torch.autograd.grad(loss, parameters, allow_unused=True))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else _laid_out_like(parameter, gradient)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _learn_views(self, views: Views, inputs: Inputs) -> None:
        """CTAugment: see how well the averaged network recognises labelled images under random policies."""
        probes, policy = self._probe(views, inputs)
        with self.machine.autocast():
            predicted = self._predict(self.average.net, probes.to(self.machine.device)).to(probes.device)
        self._learn(views, policy, predicted, inputs.y_pr)

    @torch.no_grad()
    def finite(self) -> bool:
        """Whether the network's weights and statistics are finite (a host read: not for within a step)."""
        state, average = self.average.net.state_dict(), self.average
        return bool(torch.stack([state[name].isfinite().all() for name in state.keys() - average.copied]).all())

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on."""
        tensors: dict[str, Tensor] = {}
        for name in SAVED:
            tensors |= {f"{name}.{key}": value for key, value in getattr(self, name).state_dict().items()}
        for name, _, memory in self._memories():
            for key, value in memory.items():
                tensors[f"{MEMORIES[key]}.{name}"] = value
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name in SAVED:
            part = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
            getattr(self, name).load_state_dict(part)
        for name, parameter, memory in self._memories():
            for key, prefix in MEMORIES.items():
                if (saved := tensors.get(f"{prefix}.{name}")) is not None:
                    memory[key] = optimiser_state(parameter, saved)

    def _memories(self) -> Iterator[tuple[str, nn.Parameter, dict[str, Tensor]]]:
        """A name, the parameter and the optimiser's memory of it, for each parameter of each phase."""
        for phase, (parameters, optimiser) in enumerate(zip(self.trained, self.optimisers, strict=True)):
            for number, parameter in enumerate(parameters):
                yield f"{phase}.{number}", parameter, optimiser.state[parameter]


# Functions of modules rather than methods, so that a later run in the same process finds them compiled. They are called
# under autocast instead of entering it: what enters it is not kept in the compiler's cache, and every process would
# trace it again.


def _view(views: Views | Picked, inputs: Inputs) -> Batch:
    n_sl, n_tu = len(inputs.x_sl), len(inputs.x_tu)
    weak, strong = views(torch.cat([inputs.x_sl, inputs.x_tu]), inputs.u[: n_sl + n_tu])
    return Batch(
        x_sl_w=weak[:n_sl],
        x_sl_s=strong[:n_sl],
        y_sl=inputs.y_sl,
        x_tu_w=weak[n_sl:],
        x_tu_s=strong[n_sl:],
        progress=inputs.progress,
        lam=inputs.lam,
        y_tu_first=inputs.y_tu_first,
    )


def _loss(method: Method, phase: int, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
    return method.phases[phase].loss(net, batch)


def _predict(net: nn.Module, x: Tensor) -> Tensor:
    return net(x).float().softmax(1)  # type: ignore[no-any-return]


def _probe(views: Views, inputs: Inputs) -> tuple[Tensor, Policy]:
    return views.probe(inputs.x_pr, inputs.u[-len(inputs.x_pr) :])


def _learn(views: Views, policy: Policy, predicted: Tensor, labels: Tensor) -> None:
    views.learn(policy, predicted, labels)


def _laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A gradient in its parameter's memory layout: the fused optimiser pairs elements without looking at strides."""
    strides = zip(parameter.stride(), gradient.stride(), parameter.shape, strict=True)
    same = all(mine == its for mine, its, count in strides if count > 1)
    return gradient if same else torch.empty_like(parameter).copy_(gradient)


def _per_rank(net: nn.Module) -> list[Tensor]:
    """Running statistics that each rank takes from its own images; they are averaged to stay equal on all ranks."""
    modules = [module for module in net.modules() if not (isinstance(module, BatchNorm) and module.shared)]
    return [each for module in modules for each in module.buffers(recurse=False) if each.is_floating_point()]


def _parameters(net: nn.Module, method: Method, part: str) -> list[nn.Parameter]:
    """The parameters a phase trains: "all", the "heads" (the network's and the method's), or the "features" below.

    None that are frozen (requires_grad=False).
    """
    own = list(method.parameters())
    if part == "all":
        found = [*net.parameters(), *own]
    else:
        found = [*net.head.parameters(), *own]  # type: ignore[union-attr]
        if part == "features":
            heads = {id(parameter) for parameter in found}
            found = [parameter for parameter in net.parameters() if id(parameter) not in heads]
    return [parameter for parameter in found if parameter.requires_grad]

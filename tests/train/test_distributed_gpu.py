"""On a GPU: compiled steps of two ranks that share it against those of one process, and exchanges in a CUDA graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from train import several, tiny

from adamatch import methods, networks
from adamatch.base import ranks
from adamatch.networks.norm import BatchNorm
from adamatch.train import distributed
from adamatch.train import step as step_module
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution
from adamatch.train.speed import Machine
from adamatch.train.step import Step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STEPS = 3


def steps(name: str, device: str) -> dict[str, Tensor]:
    """The state after a few compiled steps, on the host."""
    machine = Machine(torch.device(device), "fp32", compile=True, graph=False)
    run, problem = several.a_run(method=name, network="wrn-small"), tiny.problem()
    torch.manual_seed(0)
    net = networks.build(run.recipe.network, 3)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.slope = 1.0  # no bend: one value that rounds to its other side would be a thousandth of a gradient
    method = methods.build(name, classes=3, net=net, options={})
    step = Step(net, method, run.recipe, machine, pytest.fail)
    batches = Batches(run, problem, step, Execution(machine, "device"))
    for done in range(STEPS):
        step(batches.next(done))
    return {key: value.cpu() for key, value in step.state().items()}


def compare(folder: Path, device: str, names: tuple[str, ...]) -> None:
    """Gloo, as NCCL takes no two ranks on one GPU; a process group of one's own is joined as torchrun's is."""
    torch.backends.cudnn.allow_tf32 = False
    step_module.WORTH_COMPILING = 0  # in this process, which ends with the comparison
    wanted = {name: steps(name, device) for name in names}
    dist.init_process_group("gloo")
    with distributed.joined(torch.device(device)):
        assert ranks.count() == 2
        for name in names:
            found = steps(name, device)
            for key, value in wanted[name].items():
                difference = (found[key].double() - value.double()).abs().max() if value.numel() else 0.0
                assert difference <= 1e-6 + 1e-5 * value.double().abs().max(), (name, key, difference)
    assert dist.is_initialized()  # it is not ours to end
    dist.destroy_process_group()


def test_two_ranks_on_one_gpu(tmp_path: Path) -> None:
    assert several.on_ranks(2, compare, tmp_path, "cuda", ("adamatch", "mcd"), seconds=500) == [0, 0]


@contextmanager
def nccl() -> Iterator[None]:
    """A group of one: its exchanges are NCCL's, and give back what they are given."""
    dist.init_process_group("nccl", init_method=f"tcp://localhost:{several.free_port()}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_exchanges_in_a_cuda_graph() -> None:
    """Compiled, with their gradients, captured and replayed with other numbers."""
    weight, x = torch.full((3,), 2.0, device="cuda", requires_grad=True), torch.zeros(3, device="cuda")

    @torch.compile(dynamic=False)
    def loss(x: Tensor) -> Tensor:
        y = x * weight
        value: Tensor = torch.ops.adamatch.total(y).square().sum() + torch.ops.adamatch.every(y, 1)[0].sum()
        return value

    def gradient() -> Tensor:
        return torch.autograd.grad(loss(x), weight)[0]

    with nccl():
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for _ in range(3):
                gradient()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = gradient()
        for number in range(4):
            x.copy_(torch.arange(3.0) + number)
            graph.replay()
            torch.testing.assert_close(found, 2 * x * x * 2 + x)

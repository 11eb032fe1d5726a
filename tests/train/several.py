"""Processes that do a run together, as torchrun would start them, and runs in float64 to compare them by."""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from train import tiny

from adamatch import cli
from adamatch.base.errors import Interruption
from adamatch.config.run import Run
from adamatch.networks.wideresnet import WideResNet
from adamatch.train import checkpoint, distributed, heartbeat
from adamatch.train.speed import Captured

CPU = torch.device("cpu")


def on_ranks(count: int, function: Callable[..., None], *args: Any, seconds: float = 120) -> list[int]:
    """Exit codes of `count` processes that call the function, each with the environment that torchrun gives it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    port = free_port()
    processes = [context.Process(target=_ranked, args=(rank, count, port, function, *args)) for rank in range(count)]
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):  # else they do not find what to import
        for process in processes:
            process.start()
    for process in processes:
        process.join(seconds)
    running = [rank for rank, process in enumerate(processes) if process.exitcode is None]
    for rank in running:
        processes[rank].kill()
    assert not running, f"ranks {running} are still running"
    return [process.exitcode or 0 for process in processes]


def said(folder: Path) -> list[str]:
    """What each rank printed (see `speaking`)."""
    return [file.read_text() for file in sorted(folder.glob("said-*"))]


def speaking(folder: Path) -> None:
    """From now on this rank prints into a file."""
    with (folder / f"said-{os.environ['RANK']}").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def command(folder: Path, words: dict[int, str], hasty: bool = True) -> None:
    """The command line with these words of this rank, or those of rank 0; what is printed is in `said`."""
    speaking(folder)
    if hasty:
        for module in (heartbeat, distributed):
            module.BEAT = 0.1  # type: ignore[attr-defined]  # a dead rank is found out in seconds
    sys.argv = ["adamatch", *words.get(int(os.environ["RANK"]), words[0]).split()]
    cli.main()


def _ranked(rank: int, count: int, port: int, function: Callable[..., None], *args: Any) -> None:
    os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{count}", "LOCAL_WORLD_SIZE": f"{count}"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": f"{port}"}
    torch.set_num_threads(1)
    function(*args)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


class Precise(WideResNet):
    """A small network in float64, whatever its images are in."""

    def __init__(self, classes: int = 3, widths: tuple[int, ...] = (4, 8), stem: int = 4) -> None:
        super().__init__(classes, widths=widths, blocks=1, stem=stem)
        self.double()

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        return super().features(x.double(), groups)


def a_run(**changes: Any) -> Run:
    """12 steps of 8 labelled images, with CTAugment."""
    return tiny.a_run(**{"batch": 8, "images": 96, "strong": "cta", "tau": 0.9, **changes})


def do(cases: dict[str, Run], folder: Path, stop: int = 0) -> None:
    """Do these runs in float64, each in a folder by its name, whose last checkpoint stays; `stop` one at this step."""
    torch.set_default_dtype(torch.float64)
    if stop and os.environ["RANK"] == "1":
        tiny.at_call(Captured, "__call__", stop, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with distributed.joined(CPU), mock.patch("adamatch.train.run_folder.shutil.rmtree"):
            for name, run in cases.items():
                torch.manual_seed(0)
                tiny.solve(run, folder / name, net=Precise(), seconds_per_checkpoint=1000)
    except Interruption:
        assert stop
    finally:
        torch.set_default_dtype(torch.float32)


def state(out: Path) -> dict[str, Tensor]:
    """All that the next step would depend on, of all generations."""
    found: dict[str, Tensor] = {}
    for checkpoints in sorted(out.rglob("checkpoints")):
        loaded = checkpoint.load(checkpoints, print)
        assert loaded is not None
        found |= {f"{checkpoints.parent.name} {name}": value for name, value in loaded[0].items()}
    return found


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    assert {name.split(" ")[1] for name in found} == {name.split(" ")[1] for name in wanted}
    assert len(found) == len(wanted) > 0
    for (name, mine), (_, theirs) in zip(sorted(found.items()), sorted(wanted.items()), strict=True):
        assert mine.dtype == theirs.dtype, name
        assert mine.shape == theirs.shape, name
        assert mine.numel() == 0 or float((mine.double() - theirs.double()).abs().max()) <= tolerance, name

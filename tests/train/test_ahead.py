"""Kernels compiled in advance: which ones, for which passes; nothing is started where nothing is to be compiled."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from adamatch.base import regular_files
from adamatch.config.recipe import Recipe
from adamatch.kernels import runtime
from adamatch.methods.parts import forward_guessing, forward_joint, forward_twice
from adamatch.train import precompile

RECIPE = Recipe(network="efficientnet-lite0", size=32, images=100, batch=2, weight_decay=0.002)
CUDA = torch.device("cuda")


class Passes(nn.Module):
    """Notes what is sent through it."""

    takes_groups = True

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)  # without one there is nothing to do twice
        self.seen = list[precompile.Pass]()

    def forward(self, x: torch.Tensor, groups: tuple[int, ...] | None = None) -> torch.Tensor:
        self.seen.append((len(x), groups))
        return x.flatten(1)


def test_passes_are_those_of_the_methods() -> None:
    net, x_sl, x_tu = Passes(), torch.zeros(2 * 2, 3, 1, 1), torch.zeros(2 * 3, 3, 1, 1)
    forward_twice(net, x_sl, x_tu, x_tu)
    forward_guessing(net, x_sl, x_tu, x_tu)
    forward_joint(net, x_sl)
    assert net.seen == [precompile._pass(name, RECIPE) for name in ("adamatch", "fixmatch+", "supervised")]
    assert precompile._pass("mcd", RECIPE) is None


@pytest.mark.slow
@pytest.mark.skipif(not runtime.AVAILABLE, reason="needs Triton")
def test_every_kernel_of_a_pass_is_compiled_by_one_process(tmp_path: Path) -> None:
    """In processes of their own, as it is done: what they change in torch and Triton does not come back."""
    passes = [precompile._pass("supervised", RECIPE), precompile._pass("fixmatch+", RECIPE)]
    program = """
import json, sys
from adamatch.train import precompile
asked, number = sys.argv[1], int(sys.argv[2])
network, size, passes, _, count = json.loads(asked)
launches = precompile._launches(network, size, passes)
mine = [f"{kernel.__name__} {arguments} {options}" for kernel, arguments, options in launches]
print(json.dumps([mine, mine[number::count]]))
launchers = []
precompile._launches, precompile._launcher = lambda *_: launches[:2], launchers.append  # which needs a GPU's libraries
precompile._compile_part(asked, 1)
assert [each.name for each in launchers] == [launches[1][0].__name__]
"""
    asked = json.dumps([RECIPE.network, 32, passes, [9, 0], 2])
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    found = []
    for number in range(2):
        command = [sys.executable, "-c", program, asked, str(number)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found.append(json.loads(done.stdout))
    (every, first), (again, second) = found
    assert every == again
    assert sorted(first + second) == sorted(every)
    assert len(every) == len(set(every)) > 50
    names = {each.split()[0] for each in every}
    assert names >= {"_moments", "_apply", "_grad_sums", "_grad_input", "_convolve", "_spread"}
    assert len(list(tmp_path.rglob("*.cubin"))) == 1  # the second of two


@pytest.mark.parametrize("network", ["efficientnet-lite0", "wrn-28-2"])
def test_nothing_is_started_without_a_gpu(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", pytest.fail)
    with precompile.compiled(replace(RECIPE, network=network), ("adamatch",), torch.device("cpu")):
        pass


class Worker:
    """A process that is started and does nothing."""

    started: list[list[str]]
    killed: int

    def __init__(self, command: list[str], **_: object) -> None:
        Worker.started.append(command)

    def wait(self, seconds: float) -> int:
        return 0

    def kill(self) -> None:
        Worker.killed += 1


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Triton's, on a machine with a GPU and six cores."""
    Worker.started, Worker.killed = [], 0
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(runtime, "AVAILABLE", True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("adamatch.base.system.cores", lambda: 6)
    monkeypatch.setattr("subprocess.Popen", Worker)
    return tmp_path / "cache"


@pytest.mark.skipif(not runtime.AVAILABLE, reason="needs Triton")
def test_what_is_compiled_once_is_not_compiled_again_until_a_kernel_changes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for methods, count in ((("adamatch", "supervised"), 4), (("adamatch",), 4), (("adamatch", "fixmatch+"), 8)):
        with precompile.compiled(RECIPE, methods, CUDA):
            pass
        assert len(Worker.started) == count
    first, second = ([tuple(each) for each in json.loads(command[-2])[2]] for command in Worker.started[::4])
    assert first == [(20, [4, 16]), (4, None)]
    assert second == [(16, None)]
    read = regular_files.read_file
    changed = "norm_kernels.py"
    monkeypatch.setattr(precompile, "read_file", lambda path: read(path) + b"#" * (path.name == changed))
    with precompile.compiled(RECIPE, ("adamatch",), CUDA):
        pass
    assert len(Worker.started) == 12


@pytest.mark.skipif(not runtime.AVAILABLE, reason="needs Triton")
def test_workers_end_with_the_reading_that_failed(cache: Path) -> None:
    with pytest.raises(OSError, match="no such"), precompile.compiled(RECIPE, ("adamatch",), CUDA):
        raise OSError("no such folder")
    assert (len(Worker.started), Worker.killed) == (4, 4)
    assert not list(cache.glob("adamatch-*"))


@pytest.mark.skipif(not runtime.AVAILABLE, reason="needs Triton")
def test_of_processes_that_start_together_one_compiles(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with precompile.compiled(RECIPE, ("adamatch",), CUDA), precompile.compiled(RECIPE, ("supervised",), CUDA):
        assert len(Worker.started) == 4
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/none")  # nothing can be made there
    with precompile.compiled(RECIPE, ("adamatch",), CUDA):
        assert len(Worker.started) == 4

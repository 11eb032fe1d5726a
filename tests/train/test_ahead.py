"""Kernels compiled ahead: which layers, for which passes, and that nothing happens where there is nothing to compile."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from adamatch import nets
from adamatch.methods.parts import forward_joint, forward_twice
from adamatch.nets import kernels
from adamatch.nets.norm import BatchNorm, keep_statistics
from adamatch.settings import PRETRAINED
from adamatch.train import ahead
from adamatch.train.run import Recipe

RECIPE = Recipe(network="efficientnet-lite0", size=32, **{**PRETRAINED, "batch": 2})
KEPT = replace(RECIPE, statistics="kept")


class Passes(nn.Module):
    """Notes what is sent through it."""

    takes_groups = True

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.seen = nn.BatchNorm2d(3), list[ahead.Pass]()

    def forward(self, x: torch.Tensor, groups: tuple[int, ...] | None = None) -> torch.Tensor:
        self.seen.append((len(x), groups, "global" if self.norm.training else "kept"))
        return x.flatten(1)


def test_passes_are_those_of_the_methods() -> None:
    net, x_sl, x_tu = Passes(), torch.zeros(2 * 2, 3, 1, 1), torch.zeros(2 * 2 * 3, 3, 1, 1)
    forward_twice(net, x_sl, x_tu)
    forward_joint(net, x_sl, x_tu)
    forward_joint(net, x_sl)
    assert net.seen == [ahead._pass(name, RECIPE) for name in ("adamatch", "fixmatch+", "supervised")]
    keep_statistics(net)
    forward_twice(net, x_sl, x_tu)
    assert net.seen[-1] == (4 + 12, None, "kept") == ahead._pass("adamatch", KEPT)
    assert ahead._pass("mcd", RECIPE) is None


def test_every_kind_of_layer_is_compiled_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nets.build("efficientnet-lite0", 2)
    assert isinstance(net, nets.EfficientNetLite)
    passes = [ahead._pass("adamatch", RECIPE), ahead._pass("adamatch", KEPT)]
    shapes = [[shape for _, shape in ahead._layers(net, 32, found[0])] for found in passes if found]
    assert [(len(set(each)), len(each)) for each in shapes] == [(8, 14), (8, 14)]  # most of two kinds of layer
    done: set[tuple[tuple[int, ...], bool]] = set()
    plain = ahead._layers

    def note(layer: nn.Module, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        for norm in layer.modules():
            if isinstance(norm, BatchNorm) and not given[0].is_meta:  # those only tell shapes
                done.add((tuple(given[0].shape), norm.training))

    def noted(*given: Any) -> list[tuple[nn.Module, tuple[int, ...]]]:
        found = plain(*given)
        for layer, _ in found:
            layer.register_forward_hook(note)
        return found

    monkeypatch.setattr(ahead, "_layers", noted)
    for number in range(3):
        ahead._compile_part(json.dumps([RECIPE.network, 32, passes, "cpu", 3]), number)
    assert done == {(shape, training) for each, training in zip(shapes, (True, False), strict=True) for shape in each}


@pytest.mark.parametrize("network", ["efficientnet-lite0", "wrn-28-2"])
def test_nothing_is_started_without_a_gpu(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", pytest.fail)
    with ahead.compiled([replace(RECIPE, network=network)], ("adamatch",), torch.device("cpu")):
        pass


def test_what_is_compiled_once_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[list[str]] = []

    class Worker:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def wait(self, seconds: float) -> int:
            return 0

        def kill(self) -> None:
            pass

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr("subprocess.Popen", Worker)
    monkeypatch.setattr(ahead, "_load_libraries", lambda device: None)
    for recipes, methods, count in (
        ([RECIPE], ("adamatch", "supervised"), 4),
        ([RECIPE], ("adamatch",), 4),
        ([RECIPE, KEPT], ("adamatch", "fixmatch+"), 8),
    ):
        with ahead.compiled(recipes, methods, torch.device("cuda")):
            pass
        assert len(started) == count
    first, second = ([tuple(each) for each in json.loads(command[-2])[2]] for command in started[::4])
    assert first == [(20, [4, 16], "global"), (4, None, "global")]
    assert second == [(16, None, "global"), (16, None, "kept")]


def test_workers_end_with_the_reading_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = []

    class Worker:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def kill(self) -> None:
            killed.append(self)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr("subprocess.Popen", Worker)
    with pytest.raises(OSError, match="no such"), ahead.compiled([RECIPE], ("adamatch",), torch.device("cuda")):
        raise OSError("no such folder")
    assert len(killed) == 4
    assert not list(tmp_path.glob("adamatch-*"))


def test_of_processes_that_start_together_one_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr("subprocess.Popen", pytest.fail)
    other = ahead._alone()
    assert other is not None
    with ahead.compiled([RECIPE], ("adamatch",), torch.device("cuda")):
        pass
    other.release()
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/none")  # nothing can be made there
    with ahead.compiled([RECIPE], ("adamatch",), torch.device("cuda")):
        pass

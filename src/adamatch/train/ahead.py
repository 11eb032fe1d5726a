"""Triton kernels compiled ahead: by several processes at once, while images are read. The first step finds them in a cache.

Alone, the first step compiles one kernel after the other, which can take about as long as a short run itself.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import BaseFileLock
from torch import Tensor, nn

from adamatch import locks, nets
from adamatch.nets import kernels
from adamatch.nets.efficientnet_lite import EfficientNetLite
from adamatch.nets.norm import keep_statistics
from adamatch.train.run import Recipe

# Images that go through a network at once, the groups among them, and where batch norm has its statistics from.
Pass = tuple[int, tuple[int, ...] | None, str]
MOST = 12  # processes
SECONDS = 90  # after which the step compiles itself what is missing


@contextmanager
def compiled(recipes: Sequence[Recipe], methods: Sequence[str], device: torch.device) -> Iterator[None]:
    """Compile what an EfficientNet-Lite needs to train by these methods while the block runs; at its end all is there.

    Of several recipes each: which of them it will be may depend on the images.
    """
    count = min(MOST, (os.cpu_count() or 1) - 2)
    able = kernels.AVAILABLE and device.type == "cuda" and count >= 2
    passes = list(dict.fromkeys(each for recipe in recipes for each in _missing(recipe, methods))) if able else []
    lock = _alone() if passes else None
    if lock is None:
        yield
        return
    network = recipes[0].network, recipes[0].size
    asked = json.dumps([*network, passes, str(device), count])
    command = [sys.executable, "-m", "adamatch.train.ahead", asked]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    workers = [subprocess.Popen([*command, str(number)], **quiet) for number in range(count)]  # type: ignore[call-overload]
    try:
        yield
        _load_libraries(device)
        if all(worker.wait(SECONDS) == 0 for worker in workers):
            for each in passes:
                _marker(*network, each).touch()
    except subprocess.TimeoutExpired:
        pass
    finally:
        for worker in workers:
            worker.kill()
        lock.release()


def _missing(recipe: Recipe, methods: Sequence[str]) -> list[Pass]:
    """What goes through the network, and has not been compiled yet."""
    if not recipe.network.startswith("efficientnet-lite") or recipe.frozen:
        return []
    found = [one for method in methods if (one := _pass(method, recipe))]
    return [one for one in found if not _marker(recipe.network, recipe.size, one).exists()]


def _alone() -> BaseFileLock | None:
    """A lock that one process has, of several that start at the same time: None for the others, and where none can be had."""
    try:
        _cache().mkdir(parents=True, exist_ok=True)
        return locks.take(_cache() / "adamatch.lock")
    except OSError:
        return None


def _pass(method: str, recipe: Recipe) -> Pass | None:
    """What a method sends through its network, where there is one labelled pool."""
    labelled, unlabelled = 2 * recipe.batch, 2 * recipe.batch * recipe.uratio
    match method:
        case "adamatch" if recipe.statistics != "kept":
            return 2 * labelled + unlabelled, (labelled, labelled + unlabelled), recipe.statistics
        case "adamatch" | "fixmatch+":
            return labelled + unlabelled, None, recipe.statistics
        case "supervised":
            return labelled, None, recipe.statistics
    return None


def _marker(network: str, size: int, one: Pass) -> Path:
    """A file in Triton's cache that says that a pass was compiled by this version, for a GPU of this kind."""
    import triton

    sources = b"".join(path.read_bytes() for path in sorted(Path(kernels.__file__).parent.glob("kernels*.py")))
    facts = [network, size, one, torch.cuda.get_device_capability(), triton.__version__, str(sources)]
    return _cache() / f"adamatch-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"


def _cache() -> Path:
    """Triton's folder."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")


def _load_libraries(device: torch.device) -> None:
    """Those of a GPU take seconds the first time."""
    x = torch.zeros(8, 8, 8, 8, device=device, dtype=torch.bfloat16)
    torch.conv2d(x, x[:, :, :1, :1]).sum().item()


def _compile_part(asked: str, number: int) -> None:
    """Every `count`-th layer, from that of its own number on, forwards and back."""
    network, size, passes, device, count = json.loads(asked)
    net = nets.build(network, 2)
    assert isinstance(net, EfficientNetLite)
    layers = [(layer, shape, *how) for n, *how in passes for layer, shape in _layers(net, size, n)]
    net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer, shape, groups, statistics in layers[number::count]:
        layer.train()
        if statistics == "kept":
            keep_statistics(layer)
        x = torch.zeros(shape, device=device, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            y: Tensor = layer(x.requires_grad_(), tuple(groups) if groups else None)
        y.sum().backward()  # type: ignore[no-untyped-call]


def _layers(net: EfficientNetLite, size: int, n: int) -> list[tuple[nn.Module, tuple[int, ...]]]:
    """Layers that have kernels and the shapes of their inputs, each kind once."""
    found: dict[object, tuple[nn.Module, tuple[int, ...]]] = {}

    def note(layer: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        kind = (type(layer), given[0].shape, result.shape, tuple(each.shape for each in layer.parameters()))
        found.setdefault(kind, (layer, tuple(given[0].shape)))

    hooks = [layer.register_forward_hook(note) for layer in (net.bn1, *net.in_order, net.bn2)]
    with torch.no_grad():
        torch.func.functional_call(net, _shapes_of(net), torch.empty(n, 3, size, size, device="meta"))
    for hook in hooks:
        hook.remove()
    return list(found.values())


def _shapes_of(net: nn.Module) -> dict[str, Tensor]:
    return {name: each.to("meta") for name, each in (*net.named_parameters(), *net.named_buffers())}


if __name__ == "__main__":
    _compile_part(sys.argv[1], int(sys.argv[2]))

"""Triton kernels compiled by several processes at once while images are read, into Triton's cache.

Compiled one after the other in the first step, they can take about as long as a short run. These processes leave the
GPU alone: fake images, which have shapes only, go through the network, and the kernels it would launch are compiled.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from adamatch import networks
from adamatch.base import locks, system
from adamatch.base.regular_files import read_file
from adamatch.config.recipe import Recipe
from adamatch.kernels import runtime

Pass = tuple[int, tuple[int, ...] | None]  # images that go through a network at once, and the groups among them
Launch = tuple[Any, list[Any], dict[str, Any]]  # a kernel, its arguments (of tensors their dtypes), and options
MOST = 12  # processes
SECONDS = 90  # after which the step compiles itself what is missing


@contextmanager
def compiled(recipe: Recipe, methods: Sequence[str], device: torch.device) -> Iterator[None]:
    """Compile what an EfficientNet-Lite needs to train by these methods until the block ends."""
    count = min(MOST, system.cores() - 2)
    able = runtime.AVAILABLE and device.type == "cuda" and torch.version.hip is None and count >= 2
    passes = _missing(recipe, methods) if able else []
    lock = None
    if passes:
        with suppress(OSError):  # where nothing can be written, or another process compiles already, the step does it
            _cache().mkdir(parents=True, exist_ok=True)
            lock = locks.take(_cache() / "adamatch.lock")
    if lock is None:
        yield
        return
    asked = json.dumps([recipe.network, recipe.size, passes, torch.cuda.get_device_capability(), count])
    command = [sys.executable, "-m", "adamatch.train.precompile", asked]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    workers = [subprocess.Popen([*command, str(number)], **quiet) for number in range(count)]  # type: ignore[call-overload]
    try:
        yield
        with suppress(subprocess.TimeoutExpired):
            if all(worker.wait(SECONDS) == 0 for worker in workers):
                for each in passes:
                    _marker(recipe, each).touch()
    finally:
        for worker in workers:
            worker.kill()
        lock.release()


def _missing(recipe: Recipe, methods: Sequence[str]) -> list[Pass]:
    """What goes through the network, and has not been compiled yet."""
    if not recipe.network.startswith("efficientnet-lite") or recipe.frozen:
        return []
    found = [one for method in methods if (one := _pass(method, recipe))]
    return [one for one in found if not _marker(recipe, one).exists()]


def _pass(method: str, recipe: Recipe) -> Pass | None:
    """What a method sends through its network, where there is one labelled pool."""
    labelled, unlabelled = 2 * recipe.batch, 2 * recipe.batch * recipe.uratio
    passes: dict[str, Pass] = {
        "adamatch": (2 * labelled + unlabelled, (labelled, labelled + unlabelled)),
        "fixmatch+": (labelled + unlabelled, None),
        "supervised": (labelled, None),
    }
    return passes.get(method)


def _marker(recipe: Recipe, one: Pass) -> Path:
    """A file in Triton's cache that says that a pass was compiled by this version, for a GPU of this kind."""
    import triton

    sources = b"".join(read_file(path) for path in sorted(Path(runtime.__file__).parent.glob("*.py")))
    machine = (torch.cuda.get_device_capability(), triton.__version__, hashlib.sha256(sources).hexdigest())
    facts = json.dumps([recipe.network, recipe.size, one, machine])
    return _cache() / f"adamatch-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def _cache() -> Path:
    """Triton's folder."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")


def _compile_part(asked: str, number: int) -> None:
    """Every `count`-th kernel, from that of its own number on."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    network, size, passes, (major, minor), count = json.loads(asked)
    target = GPUTarget("cuda", 10 * major + minor, 32)
    # In place of Triton's driver, which would use the GPU.
    stand_in = {
        "get_current_target": lambda: target,
        "get_current_device": lambda: 0,
        "get_current_stream": lambda _: 0,
    }
    driver.set_active(SimpleNamespace(**stand_in))
    for kernel, arguments, options in _launches(network, size, passes)[number::count]:
        _launcher(kernel.warmup(*arguments, grid=(1,), **options))


def _launcher(compiled: Any) -> None:
    """What calls a kernel is compiled as well, once for kernels with the same kinds of arguments."""
    from triton.backends.nvidia.driver import CudaLauncher

    CudaLauncher(compiled.src, compiled.metadata)


def _launches(network: str, size: int, passes: Sequence[Pass]) -> list[Launch]:
    """What passes launch, forwards and backwards, each kind once."""
    found: dict[object, Launch] = {}

    def note(kernel: Any, given: Sequence[Any], options: dict[str, Any]) -> None:
        arguments = [each.dtype if isinstance(each, Tensor) else each for each in given]
        named = zip(kernel.params, arguments, strict=True)
        kinds = [each if parameter.is_constexpr else _kind(each) for parameter, each in named]
        found.setdefault((kernel.__name__, *kinds, *options.items()), (kernel, arguments, options))

    runtime.DEVICES.append("cpu")
    runtime.WATCHERS.append(note)
    with FakeTensorMode(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        for n, groups in passes:
            net = networks.build(network, 2).train()
            x = torch.empty(n, 3, size, size).contiguous(memory_format=torch.channels_last)
            y: Tensor = net(x, groups=tuple(groups)) if groups else net(x)
            y.float().sum().backward()  # type: ignore[no-untyped-call]
    return list(found.values())


def _kind(argument: object) -> object:
    """What Triton compiles a kernel for: of numbers, whether they are 1 or multiples of 16."""
    if not isinstance(argument, int):
        return type(argument) if isinstance(argument, float) else argument
    return argument == 1, argument % 16 == 0, argument.bit_length() > 31


if __name__ == "__main__":
    _compile_part(sys.argv[1], int(sys.argv[2]))

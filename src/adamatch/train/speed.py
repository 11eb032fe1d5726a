"""Device, precision, compilation, and the step as one CUDA graph: decided here and nowhere else."""

import gc
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, unknown

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVar("Given", bound=NamedTuple)
DEVICES = ("auto", "cpu", "cuda", "cuda:0", "mps")
PRECISIONS = ("auto", "bf16", "fp32")
RECOMPILE_LIMIT = 64  # versions of one function: methods, networks and sizes of the runs of one process
WARM_STEPS = 3  # eager steps before a capture: they compile, choose algorithms and allocate


@dataclass(frozen=True)
class Machine:
    """Where and how a step runs."""

    device: torch.device
    precision: str  # "bf16" or "fp32"; losses (but that of pre-training), alignment and statistics are float32
    compile: bool
    graph: bool
    at_a_time: int = 1  # runs that share the GPU, this one counted: its seconds depend on the others

    def __str__(self) -> str:
        threads = torch.get_num_threads()
        name = f"{threads} CPU thread{'s' * (threads > 1)} ({platform.machine()})"
        if self.device.type == "cuda":
            name = torch.cuda.get_device_name(self.device)
        elif self.device.type == "mps":
            name = f"the GPU of a Mac beside {name}"
        shared = f", {self.at_a_time} runs at a time" if self.at_a_time > 1 else ""
        return f"{name}, {self.precision}{', compiled' * self.compile}{', CUDA graph' * self.graph}{shared}"

    @property
    def images(self) -> torch.device:
        """Where images are stored and augmented: a Mac's GPU has no float64, which augmentation needs."""
        return torch.device("cpu") if self.device.type == "mps" else self.device

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False)


def choose(device: str = "auto", precision: str = "auto", compile: bool | None = None) -> Machine:  # noqa: A002
    """The fastest settings, unless told otherwise: bf16, compiled and captured on a GPU; float32 and eager on a CPU.

    A Mac's GPU ("mps") is used when it is asked for: float32 and eager, with views on the CPU.
    """
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise unknown("device", device, DEVICES) from None
    on_gpu, cpu, asked = chosen.type == "cuda", argument("device", "cpu"), f"device {device!r} was asked for and"
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise unknown("device", device, DEVICES)
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"{asked} there is no GPU of a Mac: use {cpu}")
    if on_gpu and not torch.cuda.is_available():
        raise InputError(f"{asked} no CUDA device is there: use {cpu}")
    if on_gpu and (chosen.index or 0) >= (count := torch.cuda.device_count()):
        raise InputError(f"{asked} there are {count}: use {argument('device', 'cuda:0')} to cuda:{count - 1}")
    if precision == "auto":
        precision = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
    fast = on_gpu if compile is None else compile
    return Machine(chosen, precision, compile=fast, graph=on_gpu and fast)


def compiled(function: Callable[P, T], machine: Machine, say: Callable[[str], None]) -> Callable[P, T]:
    """The function compiled; uncompiled where the machine does not compile, or (with a message) the compiler fails."""
    if not machine.compile:
        return function
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    fast: Callable[P, T] | None = torch.compile(function, dynamic=False)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if fast is not None:
            try:
                return fast(*args, **kwargs)
            except torch._dynamo.exc.TorchDynamoException as error:
                fast = None
                why = (str(error).splitlines() or [type(error).__name__])[0]
                say(f"compilation failed, continuing without it: {why}")
        return function(*args, **kwargs)

    return call


class Inputs(NamedTuple):
    """What changes from step to step; all on the device, always of the same shapes."""

    x_sl: Tensor  # uint8 [n_sl, 3, size, size]
    y_sl: Tensor  # [n_sl, k]
    x_tu: Tensor  # uint8 [n_tu, 3, size, size]
    x_pr: Tensor  # uint8 [n_pr, 3, size, size]: probes of CTAugment, images whose labels are known: mostly x_sl
    y_pr: Tensor  # [n_pr, k]
    u: Tensor  # [n_sl + n_tu + n_pr, draws]: uniforms for the views of labelled and unlabelled images, and for probes
    lam: Tensor  # [2 * n_sl, k]: uniforms for the interpolation
    progress: Tensor  # []
    lr: Tensor  # []
    y_tu_first: Tensor  # [n_tu, k]: labels from before training, times their weights; [0, k] where they are not needed


class Captured(Generic[Given]):
    """Runs a step, after a few eager ones, as one CUDA graph: no launch costs, and no work for the host in between."""

    def __init__(self, step: Callable[[Given], None], machine: Machine) -> None:
        self.step, self.machine = step, machine
        self.static: Given | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0

    def __call__(self, inputs: Given) -> None:
        if not self.machine.graph:
            self.step(inputs)
            return
        if self.static is None:
            self.static = inputs._make(tensor.clone() for tensor in inputs)
        for mine, new in zip(self.static, inputs, strict=True):
            mine.copy_(new)
        if self.done < WARM_STEPS:  # on a stream of its own, as a capture needs its warm-up to be
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.step(self.static)
            torch.cuda.current_stream().wait_stream(side)
        else:
            if self.graph is None:
                gc.collect()  # an earlier run in this process may hold memory in cycles; the capture gives it back
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):  # records the step without running it
                    self.step(self.static)
            self.graph.replay()
        self.done += 1

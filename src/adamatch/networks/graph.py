"""A module of somebody's own as data: its operations in JSON, by torch.export; opened again without its code.

torch.export's own file (.pt2) is not used for this: opening one may unpickle objects and look up any function of torch by
name, so that a file made by a stranger can run a program. Here nothing is called but PyTorch's core operators, which compute
tensors from tensors, and arithmetic on sizes.
"""

import base64
import copy
import io
import json
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adamatch.base.errors import InputError

VERSION = 1
CLOSE = 1e-4  # logits of the module and of its copy, on the same images
SIZES: dict[str, Callable[..., Any]] = {  # what exported programs do beside tensor operators
    name: getattr(operator, name) for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")
}
NAMED = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


def describe(net: nn.Module, size: int, known: str = "") -> str:
    """JSON from which `Graph` computes what `net` does in evaluation mode, for images [n, 3, size, size] and any n.

    `known`, such a text, is taken where it still holds: making one takes seconds. Raises InputError where there is none: the
    module asks its data which way to go, or needs operators beyond PyTorch's core.
    """
    net = copy.deepcopy(net).cpu().eval()
    images = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    with suppress(Exception):
        if _apart(known, net, images) <= CLOSE:
            return known
    try:
        with quietly(), torch.no_grad():
            text = json.dumps(_facts(export(net, images).run_decompositions(), net.state_dict().keys()))
        apart = _apart(text, net, images)
    except Exception as error:  # whatever somebody else's module, and torch on it, may raise
        raise InputError(f"torch.export cannot take {type(net).__name__} ({first_line(error)})") from None
    if not apart <= CLOSE:
        raise InputError(f"torch.export's copy of {type(net).__name__} computes something else (by {apart:.2g})")
    return text


@torch.no_grad()
def _apart(text: str, net: nn.Module, images: Tensor) -> float:
    copied = Graph(text, net.state_dict())
    return max(float((copied(x) - net(x)).abs().max()) for x in (images, images[:1]))


def export(net: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """The program that `net` is for any number of images like these."""
    asked: dict[str, Any] = {"args": (images,), "dynamic_shapes": ({0: torch.export.Dim("n")},)}
    try:
        return torch.export.export(net, strict=False, **asked)
    except Exception:  # reading the module's code takes longer, and gets through where len(x) would be one fixed number
        return torch.export.export(net, strict=True, **asked)


class Graph(nn.Module):
    """What `describe` wrote, with the module's tensors under their own names: an ordinary module, for evaluation."""

    def __init__(self, text: str, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        facts = json.loads(text)
        if facts["version"] != VERSION:
            raise ValueError(f"format {facts['version']}, this version of adamatch reads {VERSION}")
        self._facts = facts  # names that no module's own tensors have
        self._functions = [_function(name) for name, _, _ in facts["steps"]]
        self._constants = nn.Module()
        for number, constant in enumerate(facts["constants"]):
            self._constants.register_buffer(str(number), _tensor(constant), persistent=False)
        for name, tensor in tensors.items():
            *path, leaf = name.split(".")
            parent: nn.Module = self
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent.get_submodule(part)
            parent.register_buffer(leaf, tensor.clone())
        self._held(x=torch.empty(0))  # all that is needed is there

    def forward(self, x: Tensor) -> Tensor:
        values = self._held(x)

        def value(given: Any) -> Any:
            if isinstance(given, list):
                return [value(each) for each in given]
            if not isinstance(given, dict):
                return given
            ((kind, name),) = given.items()
            if kind == "value":
                return values[name]
            if kind == "device":
                return x.device
            found = getattr(torch, name)
            if not isinstance(found, NAMED[kind]):
                raise TypeError(f"{name} is no {kind}")
            return found

        with torch.autocast(x.device.type, enabled=False):  # core operators do not mix precisions
            for function, (_, args, kwargs), spent in zip(
                self._functions, self._facts["steps"], self._facts["last_use"], strict=True
            ):
                values.append(function(*value(args), **{name: value(each) for name, each in kwargs.items()}))
                for at in spent:
                    values[at] = None  # its memory is free again
        result: Tensor = value(self._facts["output"])
        return result

    def _held(self, x: Tensor) -> list[Any]:
        """What a program begins with: the images, tensors of the module by name, constants by number."""
        found = []
        for name in self._facts["inputs"]:
            tensor = (
                self._constants.get_buffer(str(name)) if isinstance(name, int) else self.get_buffer(name) if name else x
            )
            found.append(tensor)
        return found


@contextmanager
def quietly() -> Iterator[None]:
    """Without what torch has to say to developers while it exports."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _facts(program: torch.export.ExportedProgram, own: Any) -> dict[str, Any]:
    """Inputs (names of tensors, numbers of constants, None for the images), steps, and which values are done with when."""
    specs = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    nodes, constants, inputs = list(program.graph.nodes), [], []
    for node in nodes:
        if node.op == "placeholder":
            name = specs[node.name]
            if name is not None and name not in own:  # not of its state dict
                constants.append(_content(program.constants[name]))
                name = len(constants) - 1
            inputs.append(name)
    needed = set(nodes[-1].all_input_nodes)
    for node in reversed(nodes):
        if node in needed:
            needed |= set(node.all_input_nodes)
    called = [node for node in nodes if node.op == "call_function" and node in needed]
    place = {node: at for at, node in enumerate([*(each for each in nodes if each.op == "placeholder"), *called])}
    steps = [[_name(node.target), _plain(node.args, place), _plain(node.kwargs, place)] for node in called]
    last: dict[int, int] = {}
    for at, node in enumerate(called):
        last |= {place[each]: at for each in node.all_input_nodes if each.op == "call_function"}
    last_use = [[place for place, at in last.items() if at == step] for step in range(len(called))]
    (output,) = nodes[-1].args[0]
    kept = _plain(output, place)
    facts = {"version": VERSION, "inputs": inputs, "constants": constants, "steps": steps, "output": kept}
    return facts | {"last_use": [[each for each in spent if {"value": each} != kept] for spent in last_use]}


def _name(function: Any) -> str:
    name = f"aten::{function._schema.name.removeprefix('aten::')}.{function._overloadname}" if _core(function) else ""
    name = name or next((name for name, known in SIZES.items() if known is function), "")
    if not name:
        raise TypeError(f"{function} is none of PyTorch's core operators")
    return name


def _function(name: str) -> Callable[..., Any]:
    if name in SIZES:
        return SIZES[name]
    plain, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, plain, None), overload, None)
    if not name.startswith("aten::") or not _core(found):
        raise TypeError(f"{name} is none of PyTorch's core operators")
    return found  # type: ignore[return-value]  # an operator


def _core(function: Any) -> bool:
    return (
        isinstance(function, torch._ops.OpOverload) and function.namespace == "aten" and torch.Tag.core in function.tags
    )


def _plain(given: Any, place: Mapping[Any, int]) -> Any:
    if isinstance(given, torch.fx.Node):
        return {"value": place[given]}
    if isinstance(given, (list, tuple)):
        return [_plain(each, place) for each in given]
    if isinstance(given, Mapping):
        return {name: _plain(each, place) for name, each in given.items()}
    if isinstance(given, torch.device):
        return {"device": None}  # that of the images
    for kind, known in NAMED.items():
        if isinstance(given, known):
            return {kind: str(given).removeprefix("torch.")}
    if given is None or isinstance(given, (bool, int, float, str)):
        return given
    raise TypeError(f"{given!r} has no place in a file")


def _content(tensor: Tensor) -> list[Any]:
    content = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), base64.b64encode(content).decode()]


def _tensor(content: list[Any]) -> Tensor:
    dtype, shape, text = content
    if not isinstance(kind := getattr(torch, dtype), torch.dtype):
        raise TypeError(f"{dtype} is no dtype")
    values = torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())
    return values.view(kind).reshape(shape)

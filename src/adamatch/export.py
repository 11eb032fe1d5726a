"""A classifier as one file for use elsewhere, ONNX or torch.export's: uint8 images in, probabilities out.

The file takes pixels uint8 [n, size, size, 3] (RGB), n open; normalisation and softmax are inside. Resizing is not:
training reads an image by a bilinear resize to a multiple of the size and a mean over blocks (`images.decode.square`),
which Pillow rounds in between, and ONNX has no operator that does. `examples/infer_onnx.py` has a function for it.
"""

import copy
import hashlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

import adamatch
from adamatch.augment.views import normalise
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, reason, unknown
from adamatch.base.files import destination, read_checked, write_whole, writing
from adamatch.base.regular_files import WEIGHTS
from adamatch.evaluate import predict
from adamatch.images.decode import SIXTEEN_BITS, Shape
from adamatch.images.store import Pixels
from adamatch.train import speed

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
CLOSE = 1e-4  # in probability, between the file and `predict`
OPSET = 18
NEEDED = ("onnx", "onnxscript", "onnxruntime")
INSTALL = "pip install 'adamatch[export]'"

Run = Callable[[Pixels], NDArray[np.float32]]


def export(
    net: nn.Module,
    file: str | Path,
    to: str | None = None,
    *,
    classes: tuple[str, ...],
    size: int,
    network: str = "",
    shape: Shape = "squeeze",
    white: int = 0,
) -> float:
    """Write one file; returns the largest difference of its probabilities to those of `predict`.

    to: "onnx" or "torch" (a program of torch.export); None: as the file's ending says, .onnx or .pt2.
    """
    file = Path(file)
    end = destination(file)
    to = format_of(file, to)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None] if to == "onnx" else []
    if missing:
        raise InputError(f"an ONNX file needs {', '.join(missing)}: {INSTALL}")
    net = copy.deepcopy(net).cpu().eval()
    facts = {
        "adamatch": adamatch.__version__,
        "network": network or type(net).__name__,
        "classes": json.dumps(classes),  # in ASCII: names of folders need not be text
        "size": str(size),
        "shape": shape,
        "white": str(white or SIXTEEN_BITS),  # of 16-bit images that do not say how many bits they use
        "input": f"uint8 RGB [n, {size}, {size}, 3]",
        "output": f"probabilities [n, {len(classes)}]",
        "sha256": _checksum(net),  # of model.safetensors
    }
    try:
        with _quietly():
            program = _program(net, size)
            content = (_onnx if to == "onnx" else _archive)(program, facts)
            run = partial(_run_onnx, _session(content)) if to == "onnx" else _module(program)
    except Exception as error:  # whatever somebody's own module, and torch or ONNX on it, may raise
        raise InputError(f"{type(net).__name__} cannot be exported ({reason(error)})") from None
    difference = _difference(net, size, run)
    if not difference <= CLOSE:
        raise InputError(f"{file} would differ from predict by {difference:.2g} in probability: it was not written")
    with writing(file):
        write_whole(end, lambda part: part.write_bytes(content))
    return difference


def format_of(file: Path, to: str | None) -> str:
    """The format that is asked for, else the one that the file's ending says. An ending that is known has to agree."""
    if to is not None and to not in SUFFIXES:
        raise unknown("format", to, SUFFIXES)
    said = {suffix: name for name, suffix in SUFFIXES.items()}.get(file.suffix.lower())
    if to is not None and said not in (to, None):
        remedy = f"let it end in {SUFFIXES[to]}, or leave {argument('to')} out"
        raise InputError(f"{file} ends in {file.suffix}, but {argument('to')} is {to}: {remedy}")
    found = to or said
    if found is None:
        remedy = f"let it end in .onnx or .pt2, or give {argument('to')}"
        raise InputError(f"{file} does not say of which format it is: {remedy}")
    return found


class OnnxNetwork(nn.Module):
    """The network in an ONNX file that `export` wrote, for predictions on a CPU without the code of its module."""

    def __init__(self, file: Path, checksum: str) -> None:
        """`checksum` is that of model.safetensors: the file has to be made of the same weights."""
        super().__init__()
        self.file = file
        if missing := [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]:
            raise InputError(f"{file} needs {' and '.join(missing)}: {INSTALL}")
        try:
            found = read_checked(file, WEIGHTS)
            _check_operators(found)
            self.session = _session(found)
            made_of = self.session.get_modelmeta().custom_metadata_map.get("sha256")
        except Exception as error:  # whatever ONNX and its runtime raise
            raise InputError(f"{file} cannot be read ({reason(error)}): make it anew with model.export") from None
        if made_of != checksum:
            raise InputError(f"{file} is of other weights than model.safetensors: make it anew with model.export")

    def forward(self, x: Tensor) -> Tensor:
        """x: normalised [n, 3, size, size] -> logits [n, k], as far as probabilities tell them."""
        images = (x * 128 + 127.5).round().to(torch.uint8).permute(0, 2, 3, 1)
        try:
            return torch.from_numpy(_run_onnx(self.session, images.numpy())).log()
        except Exception as error:  # a stranger's file may open, and not fit together
            raise InputError(f"{self.file} does not work ({reason(error)}): make it anew with model.export") from None


class _Whole(nn.Module):
    """The network with what stands before and after it in `predict`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """images: uint8 [n, size, size, 3] -> probabilities [n, k]."""
        logits: Tensor = self.net(normalise(images.permute(0, 3, 1, 2)))
        return logits.float().softmax(1)


@torch.no_grad()
def _program(net: nn.Module, size: int) -> torch.export.ExportedProgram:
    """For any number of images."""
    images = torch.zeros(3, size, size, 3, dtype=torch.uint8)
    asked: dict[str, Any] = {"args": (images,), "dynamic_shapes": ({0: torch.export.Dim("n")},)}
    try:
        program = torch.export.export(_Whole(net), strict=False, **asked)
    except Exception:  # reading the module's code takes longer, and gets through where len(x) would be one fixed number
        program = torch.export.export(_Whole(net), strict=True, **asked)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # where somebody's files lie is nobody's business
    return program


def _onnx(program: torch.export.ExportedProgram, facts: dict[str, str]) -> bytes:
    import onnx

    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["probabilities"]}
    made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False, **names)
    assert made is not None
    proto = made.model_proto
    proto.producer_name, proto.producer_version = "adamatch", adamatch.__version__
    for each in (proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        each.ClearField("metadata_props")  # the exporter's notes
    onnx.helper.set_model_props(proto, facts)
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    return content


def _archive(program: torch.export.ExportedProgram, facts: dict[str, str]) -> bytes:
    content = io.BytesIO()  # on a disk that is full, torch ends the process
    torch.export.save(program, content, extra_files={"adamatch.json": json.dumps(facts, indent=1)})
    return content.getvalue()


def _session(content: bytes) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _check_operators(content: bytes) -> None:
    """Standard ones alone: no loops or branches, nobody's own operators, no tensors in other files."""
    import onnx

    proto = onnx.load_model_from_string(content)
    attributes = [each for node in proto.graph.node for each in node.attribute]
    tensors = [*proto.graph.initializer, *(each.t for each in attributes)]
    if (
        proto.functions
        or any(node.domain not in ("", "ai.onnx") for node in proto.graph.node)
        or any(each.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for each in attributes)
        or any(each.data_location == onnx.TensorProto.EXTERNAL or each.external_data for each in tensors)
    ):
        raise ValueError("it has operators that adamatch does not write")


def _run_onnx(session: Any, images: Pixels) -> NDArray[np.float32]:
    found: NDArray[np.float32] = session.run(["probabilities"], {"images": images})[0]
    return found


def _module(program: torch.export.ExportedProgram) -> Run:
    module = program.module()

    @torch.no_grad()
    def run(images: Pixels) -> NDArray[np.float32]:
        found: NDArray[np.float32] = module(torch.from_numpy(images)).numpy()
        return found

    return run


def _checksum(net: nn.Module) -> str:
    """Of its weights as a safetensors file, which is made in memory: a disk may be full."""
    layout = torch.contiguous_format
    tensors = {name: each.detach().clone(memory_format=layout) for name, each in net.state_dict().items()}
    return hashlib.sha256(save(tensors)).hexdigest()


def _difference(net: nn.Module, size: int, run: Run) -> float:
    """The largest one in probability, over images of many kinds, one at a time and several at once."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(128 - width, 128 + width, (size, size, 3)) for width in (1, 8, 32, 64, 128) for _ in range(3)]
    ramp = np.linspace(0, 255, size)
    ramps = [ramp[:, None, None] * color + ramp[None, :, None] * (1 - color) for color in rng.random((5, 1, 1, 3))]
    flat = [np.full((size, size, 3), level) for level in (0, 128, 255)]
    images = np.stack([*noise, *ramps, *flat]).astype(np.uint8)
    expected = predict(net, images, speed.choose("cpu", "fp32", False))
    return float(np.abs(np.concatenate([run(images[:1]), run(images[1:])]) - expected).max())


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch has to say to developers while it exports."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

"""A model as one file for use elsewhere, ONNX or torch.export's: uint8 images in, probabilities out; compared with `predict`.

The file takes pixels uint8 [n, size, size, 3] (RGB), n open; normalisation and softmax are inside. Making such pixels from an
image of any size is not: training reads an image by a bilinear resize to a multiple of the size and a mean over blocks
(`data.decode.square`), which Pillow rounds in between, and ONNX has no operator that does. `examples/infer_onnx.py` has a
function of a few lines for it that needs NumPy and Pillow alone and gives the same pixels.
"""

import copy
import hashlib
import importlib.util
import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

import adamatch
from adamatch.augment.views import normalise
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, unknown
from adamatch.base.files import place, write_whole, writing
from adamatch.evaluate import predict
from adamatch.images.decode import SIXTEEN_BITS
from adamatch.images.store import Pixels
from adamatch.train import speed

if TYPE_CHECKING:
    from adamatch.model import Model

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
CLOSE = 1e-4  # in probability, between the file and `predict`
OPSET = 18
NEEDED = ("onnx", "onnxscript", "onnxruntime")
INSTALL = "pip install 'adamatch[export]'"


def export(model: "Model", file: str | Path, to: str | None = None) -> float:
    """Write the model as one file; returns the largest difference of its probabilities to those of `predict`.

    to: "onnx" or "torch" (a program of torch.export); None: as the file's ending says, .onnx or .pt2.
    """
    file = Path(file)
    end = place(file)
    to = format_of(file, to)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None] if to == "onnx" else []
    if missing:
        raise InputError(f"an ONNX file needs {', '.join(missing)}: {INSTALL}")
    made = (_onnx if to == "onnx" else _torch)(_program(model), facts(model))
    difference = math.inf

    def write(part: Path) -> None:
        nonlocal difference
        part.write_bytes(made)
        difference = _difference(model, (_run_onnx if to == "onnx" else _run_torch)(part))
        if not difference <= CLOSE:
            raise InputError(f"{file} would differ from predict by {difference:.2g} in probability: it was not written")

    with writing(file):
        write_whole(end, write)
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
        raise InputError(
            f"{file} does not say of which format it is: let it end in .onnx or .pt2, or give {argument('to')}"
        )
    return found


def facts(model: "Model") -> dict[str, str]:
    """What is written into the file: all that somebody needs to use it without its run."""
    layout = torch.contiguous_format  # all in memory: a disk may be full
    weights = {
        name: each.detach().to("cpu", copy=True, memory_format=layout) for name, each in model.net.state_dict().items()
    }
    return {
        "adamatch": adamatch.__version__,
        "network": model.network or type(model.net).__name__,
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "size": str(model.size),
        "shape": model.shape,
        "white": str(model.white or SIXTEEN_BITS),  # of 16-bit images that do not say how many bits they use
        "input": f"uint8 RGB [n, {model.size}, {model.size}, 3]",
        "output": f"probabilities [n, {len(model.classes)}]",
        "sha256": hashlib.sha256(save(weights)).hexdigest(),  # of model.safetensors
    }


class _Whole(nn.Module):
    """The network with what stands before and after it in `predict`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """images: uint8 [n, size, size, 3] -> probabilities [n, k]."""
        logits: Tensor = self.net(normalise(images.permute(0, 3, 1, 2)))
        return logits.float().softmax(1)


def _program(model: "Model") -> torch.export.ExportedProgram:
    whole = _Whole(copy.deepcopy(model.net)).cpu().eval()
    images = torch.zeros(3, model.size, model.size, 3, dtype=torch.uint8)
    try:
        with _quietly(), torch.no_grad():
            program = _exported(whole, images)
    except Exception as error:  # whatever somebody's own module, and torch on it, may raise
        raise InputError(f"torch.export cannot take {type(model.net).__name__} ({_first_line(error)})") from None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # where somebody's files lie is nobody's business
    return program


def _exported(net: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """The program that `net` is for any number of images like these."""
    asked: dict[str, Any] = {"args": (images,), "dynamic_shapes": ({0: torch.export.Dim("n")},)}
    try:
        return torch.export.export(net, strict=False, **asked)
    except Exception:  # reading the module's code takes longer, and gets through where len(x) would be one fixed number
        return torch.export.export(net, strict=True, **asked)


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


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _onnx(program: torch.export.ExportedProgram, told: dict[str, str]) -> bytes:
    import onnx

    with _quietly():
        made = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=["images"],
            output_names=["probabilities"],
            verbose=False,
        )
    assert made is not None
    proto = made.model_proto
    proto.producer_name, proto.producer_version = "adamatch", adamatch.__version__
    for each in (proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        each.ClearField("metadata_props")  # the exporter's notes
    onnx.helper.set_model_props(proto, told)
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    return content


def _run_onnx(file: Path) -> Callable[[Pixels], NDArray[np.float32]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

    def run(images: Pixels) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run(["probabilities"], {"images": images})[0]
        return found

    return run


def _torch(program: torch.export.ExportedProgram, told: dict[str, str]) -> bytes:
    content = io.BytesIO()  # on a disk that is full, torch ends the process
    with _quietly():
        torch.export.save(program, content, extra_files={"adamatch.json": json.dumps(told, indent=1)})
    return content.getvalue()


def _run_torch(file: Path) -> Callable[[Pixels], NDArray[np.float32]]:
    with _quietly():
        module = torch.export.load(file).module()  # a file of our own: a stranger's could run a program

    @torch.no_grad()
    def run(images: Pixels) -> NDArray[np.float32]:
        found: NDArray[np.float32] = module(torch.from_numpy(images)).numpy()
        return found

    return run


def _difference(model: "Model", run: Callable[[Pixels], NDArray[np.float32]]) -> float:
    """The largest one in probability, over images of many kinds, one at a time and several at once."""
    images = _images(model.size)
    machine = speed.choose("cpu", "fp32", False)
    expected = predict(copy.deepcopy(model.net).cpu().eval(), images, machine)
    found = np.concatenate([run(images[:1]), run(images[1:])])
    return float(np.abs(found - expected).max())


def _images(size: int) -> Pixels:
    """Noise of several strengths, ramps of colours, black and white: uint8 [n, size, size, 3]."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(128 - width, 128 + width, (size, size, 3)) for width in (1, 8, 32, 64, 128) for _ in range(3)]
    ramp = np.linspace(0, 255, size)
    ramps = [ramp[:, None, None] * color + ramp[None, :, None] * (1 - color) for color in rng.random((5, 1, 1, 3))]
    flat = [np.full((size, size, 3), level) for level in (0, 128, 255)]
    return np.stack([*noise, *ramps, *flat]).astype(np.uint8)

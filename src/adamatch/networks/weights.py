"""Starting weights: from a file or from timm, into any network, with a report of what fitted."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adamatch.base.errors import InputError, shown
from adamatch.networks.pretrained import TIMM, Timm, timm_mean, timm_state

Shape = tuple[int, ...]
FORMS = "a .safetensors file, a file of torch.save(net.state_dict()), or timm:NAME"
CONTAINERS = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
)  # where training programs put the state dict in their files
LONGEST = 200  # characters of a name that is told
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "backbone.")  # what wrappers put before every name
RENAMED = (  # torchvision's names of a residual network's parts, and what ResNetV2 (as timm) calls them
    (re.compile(r"^conv1\."), lambda _: "stem.conv."),
    (re.compile(r"^layer(\d{1,3})\."), lambda found: f"stages.{int(found[1]) - 1}.blocks."),
    (re.compile(r"\.bn(\d)\."), lambda found: f".norm{found[1]}."),
    (re.compile(r"\.(?:downsample|shortcut)\.0\."), lambda _: ".downsample.conv."),
    (re.compile(r"^(?:head\.fc|fc|classifier|linear)\."), lambda _: "head."),
)
NORMS_ELSEWHERE = (
    "its norms stand elsewhere than this network's (a ResNet without pre-activation?): "
    "convolutions were loaded by name, norms were not"
)
NO_STATISTICS = "it has no batch-norm statistics (trained with another norm?): the running ones start from 0 and 1"


@dataclass(frozen=True)
class Report:
    """What came of loading. Names are the network's, except in `unused`; `str()` is for people."""

    where: str
    loaded: Mapping[str, str]  # name here -> name there
    fresh: tuple[str, ...]  # found nowhere there: they stay as initialised
    misfits: Mapping[str, tuple[Shape, Shape]]  # found in another shape, not loaded: shape here, shape there
    unused: tuple[str, ...]  # names there that nothing here wanted
    head: str  # loaded, or new and why
    new_head: bool
    share: float  # part of the network's parameters that was loaded
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        renamed = sum(here != there for here, there in self.loaded.items())
        lines = [
            f"weights of {shown(self.where)}: {len(self.loaded)} tensors loaded, {self.share:.1%} of the network's parameters"
        ]
        lines += [f"  {renamed} of them have another name there"] if renamed else []
        lines.append(f"  head: {self.head}")
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
    body = {name: value for name, value in ours.items() if name not in head}
    their_head = _their_head(theirs, head, body)
    other = {name: value for name, value in theirs.items() if name not in their_head}
    pairs = {name: name for name in body if name in other}
    alike, more = _aliases(body, other, pairs)
    pairs |= alike
    pairs |= _in_order(body, other, pairs)
    found = {name: there for name, there in pairs.items() if body[name].shape == other[there].shape}
    misfits = {name: (_shape(body[name]), _shape(other[there])) for name, there in pairs.items() if name not in found}
    if not found:
        raise InputError(_nothing(str(where), len(theirs), misfits))
    if _has_statistics(body) and not _has_statistics(other):
        more.append(NO_STATISTICS)
    same_head = bool(head) and [ours[name].shape for name in head] == [theirs[name].shape for name in their_head]
    if same_head:
        found |= dict(zip(head, their_head, strict=True))
    with torch.no_grad():
        for name, there in found.items():
            ours[name].copy_(theirs[there])
    parameters = {name: value.numel() for name, value in net.named_parameters()}
    return Report(
        where=str(where),
        loaded=found,
        fresh=tuple(name for name in body if name not in pairs),
        misfits=misfits,
        unused=tuple(name for name in other if name not in pairs.values()),
        new_head=bool(head) and not same_head,
        head=_head_text(ours, head, theirs, their_head, same_head),
        share=sum(parameters.get(name, 0) for name in found) / max(1, sum(parameters.values())),
        notes=(*_pixels(net, str(where)), *more),
    )


def read_weights(where: str) -> dict[str, Tensor]:
    """The tensors of a file or of a timm model, by name."""
    if where.startswith(TIMM):
        return _floating(timm_state(where.removeprefix(TIMM)))
    path = Path(where)
    if not path.is_file():
        raise InputError(f"{where} is no file of weights: give {FORMS}")
    try:
        state = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
        for name in CONTAINERS:
            if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
                state = state[name]
        tensors = _floating(state) if isinstance(state, Mapping) else {}
    except Exception:  # on damaged files the libraries raise almost anything, and at length
        raise InputError(f"{where} cannot be read as weights: give {FORMS}") from None
    if not tensors:
        raise InputError(f"{where} holds no named tensors: give {FORMS}")
    return tensors


def _pixels(net: nn.Module, where: str) -> list[str]:
    """A note where images will look otherwise than those the weights were trained on."""
    if not where.startswith(TIMM) or isinstance(net, Timm):  # which gives them as they should be
        return []
    mean = timm_mean(where)
    return [] if mean == (0.5, 0.5, 0.5) else [f"trained on pixels with mean {mean}; here they are (x - 127.5) / 128"]


def _floating(state: Mapping[str, object]) -> dict[str, Tensor]:
    """Without counters; a classifier written as a 1x1 convolution, as timm's ResNetV2 has it, becomes a matrix."""
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor) and _is_plain(value)}
    for name in ("head.fc.weight", "fc.weight"):
        if name in tensors and tensors[name].shape[2:] == (1, 1):
            tensors[name] = tensors[name].flatten(1)
    return tensors


def _is_plain(value: Tensor) -> bool:
    return value.is_floating_point() and value.layout == torch.strided and not value.is_meta


def _head(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the last matrix and its bias."""
    matrices = [name for name, value in tensors.items() if value.ndim == 2]
    if not matrices:
        return []
    names = (matrices[-1], matrices[-1].removesuffix("weight") + "bias")
    return [name for name in names if name in tensors]


def _their_head(theirs: Mapping[str, Tensor], head: list[str], body: Mapping[str, Tensor]) -> list[str]:
    """What is called as ours; else the last matrix, unless it belongs to the body."""
    by_alias = {_alias(name): name for name in theirs}
    if named := [by_alias[_alias(name)] for name in head if _alias(name) in by_alias]:
        return named
    last = _head(theirs)
    return [] if {_alias(name) for name in last} & {_alias(name) for name in body} else last


def _aliases(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], done: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Pairs, name here -> name there, of what has one name once wrappers are gone and parts are named alike."""
    by_alias = {_alias(name): name for name in theirs if name not in done.values()}
    pairs = {name: by_alias[_alias(name)] for name in ours if name not in done and _alias(name) in by_alias}
    norms = {name for name in pairs if ours[name].ndim == 1}
    if all(ours[name].shape == theirs[pairs[name]].shape for name in norms):
        return pairs, []
    return {name: there for name, there in pairs.items() if name not in norms}, [NORMS_ELSEWHERE]


def _alias(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    for pattern, new in RENAMED:
        name = pattern.sub(new, name)
    return name


def _in_order(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], done: Mapping[str, str]) -> dict[str, str]:
    """Pairs of what is left of each kind, where one order of shapes on both sides leaves no doubt which is which."""
    pairs: dict[str, str] = {}
    left = [name for name in theirs if name not in done.values()]
    mine = [name for name in ours if name not in done]
    for kind in dict.fromkeys(_kind(name, ours[name]) for name in mine):
        here = [name for name in mine if _kind(name, ours[name]) == kind]
        there = [name for name in left if _kind(name, theirs[name]) == kind]
        if [ours[name].shape for name in here] == [theirs[name].shape for name in there]:
            pairs |= dict(zip(here, there, strict=True))
    return pairs


def _kind(name: str, value: Tensor) -> str:
    return f"{value.ndim}-dimensional {name.rpartition('.')[2]}"


def _head_text(
    ours: Mapping[str, Tensor], head: list[str], theirs: Mapping[str, Tensor], their_head: list[str], same: bool
) -> str:
    if not head:
        return "this network has none"
    if same:
        return "loaded, it has the same shape there"
    there = f"there it has {_text(_shape(theirs[their_head[0]]))}" if their_head else "there is none there"
    return f"new, {_text(_shape(ours[head[0]]))}; {there}"


def _nothing(where: str, count: int, misfits: Mapping[str, tuple[Shape, Shape]]) -> str:
    example = ""
    for name, (here, there) in list(misfits.items())[:1]:
        example = f" ({name} is {_text(there)} there and {_text(here)} here)"
    return f"{where}: none of its {count} tensors fits this network{example}: give weights of the same architecture"


def _has_statistics(names: Iterable[str]) -> bool:
    return any(name.endswith("running_mean") for name in names)


def _shape(value: Tensor) -> Shape:
    return tuple(value.shape)


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _some(names: list[str] | tuple[str, ...], most: int = 6) -> str:
    return ", ".join(shown(name)[:LONGEST] for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )

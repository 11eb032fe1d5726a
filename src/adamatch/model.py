"""A trained classifier: predict, evaluate, save, load. On disk: safetensors for weights, JSON for all else."""

import hashlib
import json
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn

from adamatch import card, hub, networks
from adamatch import export as exporting
from adamatch.ask import estimate
from adamatch.ask.estimate import Estimate
from adamatch.ask.questions import Questions
from adamatch.base import locks, manifest, ranks
from adamatch.base.errors import InputError, reason, shortened
from adamatch.base.files import checksum, listed, make_folder, read_checked, read_sealed, sealed, write_atomically
from adamatch.base.regular_files import WEIGHTS
from adamatch.config.recipe import LARGEST_SIZE
from adamatch.evaluate import Score, predict, score
from adamatch.images.decode import SIXTEEN_BITS, Shape
from adamatch.images.reading import read, stream
from adamatch.initialise.embed import features
from adamatch.kernels import runtime
from adamatch.networks.frozen import sooner
from adamatch.predictions import Predictions
from adamatch.report import page
from adamatch.train import speed
from adamatch.train.checkpoint import write_tensors
from adamatch.train.resume import EARLIER
from adamatch.train.speed import Machine
from adamatch.verdict import summary

VERSION = 1
FILES = ("model.safetensors", "model.json")
ONNX = "model.onnx"  # in a run's folder: for networks of one's own, predictions without their code
NAMED = 10  # classes that are named


@dataclass(frozen=True, repr=False)
class Model:
    """A network with the names of its classes and the image size that it takes."""

    net: nn.Module
    classes: tuple[str, ...]
    size: int
    network: str = ""  # its name, for `networks.build`; empty for a user's own
    machine: Machine = field(default_factory=speed.choose)
    history: dict[str, Any] = field(default_factory=dict)  # what training said of itself
    shape: Shape = "squeeze"  # how a rectangle becomes a square
    folder: Path | None = None  # the run's, where there is one
    white: int = 0  # which value of 16-bit images is white; 0: not known, it is found among those that are given

    def __repr__(self) -> str:
        """What it is and how good it may be."""
        width = max(len(name) for name, _ in self._facts())
        return "\n".join(["adamatch.Model", *(f"  {name:{width}}  {value}" for name, value in self._facts())])

    def _repr_html_(self) -> str:
        """The same in notebooks; names are text, never markup."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        names = ", ".join(self.classes[:NAMED]) + (", ..." if len(self.classes) > NAMED else "")
        network = self.network or type(self.net).__name__
        facts = [
            ("network", f"{network}, images of {self.size} x {self.size}"),
            ("classes", f"{len(self.classes)}: {names}"),
        ]
        accuracy, verdict = self.history.get("accuracy"), self.history.get("judge")
        if accuracy is not None:
            facts.append(("measured on labelled target images", f"{accuracy:.1f} %"))
        return facts + (summary.table(verdict, measured=accuracy is not None) if verdict else [])

    def predict(self, images: Any, *, skip_bad: bool = False) -> Predictions:
        """Of an image, a folder, a pattern, an address, a list of these, arrays or a dataset (docs/inputs.md)."""
        parts = list(self.stream(images, skip_bad=skip_bad)[1]) if not _is_empty(images) else [self._none()]
        skipped = {name: why for part in parts for name, why in part.skipped.items()}
        paths = tuple(path for part in parts for path in part.paths)
        notes = tuple(note for part in parts for note in part.notes)
        return Predictions(paths, np.concatenate([part.probabilities for part in parts]), self.classes, skipped, notes)

    def predict_proba(self, images: Any, *, skip_bad: bool = False) -> NDArray[np.float32]:
        """Probabilities (n, k) alone, in the order of `classes`."""
        return self.predict(images, skip_bad=skip_bad).probabilities

    def features(self, images: Any, *, skip_bad: bool = False) -> NDArray[np.float32]:
        """What the network's last layer sees of each image (n, d), for searching, clustering or drawing."""
        if not hasattr(self.net, "features"):
            raise InputError(f"{type(self.net).__name__} has no method features(x): a network of one's own needs one")
        if _is_empty(images):
            return self.features(np.zeros((1, self.size, self.size, 3), np.uint8))[:0]
        stores = stream(images, size=self.size, shape=self.shape, white=self.white, skip_bad=skip_bad)[1]
        with runtime.off(self.net):
            found = [features(self.net, [each.images], self.machine, len(each.images)).cpu() for each in stores]
        return torch.cat(found).numpy()

    def to(self, device: str) -> Self:
        """The same model on another device: cpu, cuda, cuda:1, mps."""
        machine = speed.choose(device)
        return replace(self, net=self.net.to(machine.device), machine=machine)

    def _none(self) -> Predictions:
        """Of no images."""
        return Predictions((), np.zeros((0, len(self.classes)), np.float32), self.classes)

    def stream(self, images: Any, *, skip_bad: bool = False) -> tuple[int, Iterator[Predictions]]:
        """The same for any number of images: how many (0: not known), and predictions a portion at a time."""
        count, stores = stream(images, size=self.size, shape=self.shape, white=self.white, skip_bad=skip_bad)

        net = sooner(self.net, self.machine.device)

        def portions() -> Iterator[Predictions]:
            for store in stores:
                probabilities = predict(net, store.images, self.machine)
                files, notes = tuple(store.info["files"]), tuple(store.info.get("notes", ()))
                yield Predictions(files, probabilities, self.classes, store.info["skipped"], notes)

        return count, portions()

    def evaluate(self, images: Any, *, skip_bad: bool = False) -> Score:
        """Accuracy, in all and per class, on labelled images: a folder per class, a CSV, arrays, a dataset."""
        how: dict[str, Any] = {"size": self.size, "shape": self.shape, "white": self.white, "skip_bad": skip_bad}
        store = read(images, classes=self.classes, labelled=True, drop_unknown=True, **how)
        found = score(predict(sooner(self.net, self.machine.device), store.images, self.machine), store)
        return replace(found, skipped=store.info.get("skipped", {}), notes=tuple(store.info.get("notes", ())))

    def ask(self, number: int = 30, *, more: int = 0, seed: int = 0, images: Any = None) -> Questions:
        """Draw target images for a person to name: `number` in all, `more` once these are answered (docs/ask.md).

        `images`: the target, where it was given as an array.
        """
        return Questions(self._run("questions need"), number, more=more, seed=seed, images=images)

    @property
    def accuracy(self) -> Estimate | None:
        """On the target, in percent, from a person's answers (`ask`); None where there are none."""
        found = None if self.folder is None else estimate.summary(self.folder)
        return None if found is None else found.accuracy

    def _run(self, what: str) -> Path:
        if self.folder is None:
            raise InputError(
                f"this model is of no run: {what} the folder that fit or train made (adamatch.load(FOLDER))"
            )
        return self.folder

    def report(self, *, show: bool = False) -> Path:
        """Make the page of the model's run anew: report.html in its folder. `show` opens it. Returns where it is."""
        made = page.write(self._run("a page needs"), load=lambda _: self)
        if show:
            webbrowser.open(made.absolute().as_uri())
        return made

    def export(self, file: str | Path, *, to: str | None = None) -> float:
        """One file for use elsewhere, .onnx or .pt2 (torch.export): uint8 images in, probabilities out.

        Returns the largest difference of its probabilities to those of `predict`; above 1e-4 no file is written.
        """
        about: dict[str, Any] = {"network": self.network, "shape": self.shape, "white": self.white}
        folder, name = Path(file).parent, Path(file).name
        manifest.forget(folder, name)
        difference = exporting.export(self.net, file, to, classes=self.classes, size=self.size, **about)
        if (folder / "model.json").is_file():
            manifest.complete(folder, *FILES, name)
        return difference

    def save(self, folder: str | Path) -> Path:
        """model.safetensors, and model.json with the checksum of that and of itself; manifest.json lists both."""
        folder = Path(folder)
        make_folder(folder)
        manifest.forget(folder, *FILES)
        write_tensors(folder / "model.safetensors", self.net.state_dict())
        facts = {
            "version": VERSION,
            "classes": self.classes,
            "size": self.size,
            "network": self.network,
            "shape": self.shape,
            "pixels": "(x-127.5)/128",
            "history": self.history,
            **({"white": self.white} if self.white else {}),
            "sha256": checksum(folder / "model.safetensors"),
        }
        write_atomically(folder / "model.json", json.dumps(sealed(facts), indent=1))
        manifest.complete(folder, *FILES)
        return folder

    def push_to_hub(self, repo: str, *, private: bool = True) -> str:
        """To the Hugging Face Hub as NAME/REPO: model, card and ONNX file alone. Returns the address of its page.

        The card is README.md as it is in the run's folder: look at it before, it names the folders of the images.
        """
        public = replace(self, history=hub.public(self.history))
        with TemporaryDirectory() as name:
            made = public.save(name)
            facts: dict[str, Any] = {"classes": self.classes, "network": self.network, "size": self.size}
            write_atomically(made / card.CARD, card.text(**facts, history=public.history))
            for each in (card.CARD, ONNX):
                if self.folder is not None and (self.folder / each).exists():
                    (made / each).write_bytes(read_checked(self.folder / each, hub.FILES[each]))
            manifest.complete(made)
            return hub.push(made, repo, private=private)

    @classmethod
    def load(cls, folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Self:
        """A saved model; a network of one's own has to be given as `net`, with any weights. hf://NAME/REPO: the Hub."""
        folder = ranks.from_first(lambda: hub.local(folder))
        facts, machine = ranks.from_first(lambda: facts_of(folder)), speed.choose(device)
        if net is None:
            if not facts["network"]:
                once = f"adamatch.load({str(folder)!r}, net=...).export({str(folder / ONNX)!r})"
                raise InputError(
                    f"{folder} holds a network of your own: build it and give it as net= to adamatch.load "
                    f"(for the command line, do once: {once})"
                )
            net = networks.build(facts["network"], len(facts["classes"]))
        tensors = ranks.from_first(lambda: _tensors(folder / "model.safetensors", facts["sha256"]))
        try:
            net.load_state_dict(tensors)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[-1].strip()
            raise InputError(
                f"{folder}/model.safetensors holds another network than this {type(net).__name__} ({first})"
            ) from None
        return cls._of(facts, net.to(machine.device).eval(), machine, folder)

    @classmethod
    def load_for_predictions(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """For predictions alone: a network of one's own comes from the ONNX file beside it, if there is one."""
        folder = hub.local(folder)
        facts = facts_of(folder)
        if facts["network"] or not (folder / ONNX).is_file():
            return cls.load(folder, device=device)
        if ONNX not in listed(folder):
            raise InputError(f"{folder / ONNX} is not in its manifest.json: make it anew with model.export")
        return cls._of(facts, exporting.OnnxNetwork(folder / ONNX, facts["sha256"]), speed.choose("cpu"), folder)

    @classmethod
    def _of(cls, facts: dict[str, Any], net: nn.Module, machine: Machine, folder: Path) -> Self:
        about = {name: facts[name] for name in ("size", "network", "history", "shape")}
        more: dict[str, Any] = {"machine": machine, "folder": folder, "white": facts.get("white", 0)}
        model = cls(net, tuple(facts["classes"]), **about, **more)
        try:
            repr(model)
        except Exception:  # its history is of any shape, where somebody else made the file
            raise _damaged(folder) from None
        return model


def _is_empty(images: Any) -> bool:
    """An empty list, tuple or array: nothing in, nothing out."""
    return isinstance(images, (list, tuple, np.ndarray)) and len(images) == 0


def load(folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Model:
    """Open what `fit` saved, in a folder or on the Hub (hf://NAME/REPO or hf://NAME/REPO@REVISION).

    A network of your own has to be given as `net`.
    """
    return Model.load(folder, net=net, device=device)


def facts_of(folder: Path) -> dict[str, Any]:
    """What model.json says."""
    try:
        facts = read_sealed(folder / "model.json")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder} holds no model (no model.json): {_remedy(folder)}") from None
    except InputError:
        raise
    except ValueError:
        raise _damaged(folder) from None
    if facts.get("version") != VERSION:
        raise InputError(
            f"{folder}/model.json was written by another version of adamatch (format "
            f"{shortened(facts.get('version'))}, this one reads {VERSION}): load it with that version, or train again"
        )
    if not _is_sound(facts):
        raise _damaged(folder)
    return facts


def _is_sound(facts: dict[str, Any]) -> bool:
    """Whether model.json says what `save` may have written: its checksum does not tell who made it."""
    kinds = {"classes": list, "size": int, "network": str, "shape": str, "history": dict, "sha256": str}
    if any(type(facts.get(name)) is not kind for name, kind in kinds.items()):
        return False
    classes, white = facts["classes"], facts.get("white", 0)
    named = all(isinstance(name, str) and name for name in classes) and len({*classes}) == len(classes) > 0
    images = 0 < facts["size"] <= LARGEST_SIZE and facts["shape"] in get_args(Shape)
    return named and images and type(white) is int and 0 <= white <= SIXTEEN_BITS


def _damaged(folder: Path) -> InputError:
    return InputError(f"{folder}/model.json is damaged: train again, or copy it anew")


def _remedy(folder: Path) -> str:
    """What to do about a folder without a model."""
    if (folder / "result.json").is_file():
        return "its run is finished and the file was removed: copy it anew, or train again with --overwrite"
    if not (folder / "run.json").is_file():
        return "give the folder that `adamatch fit --out` made"
    remedy = "wait for it" if locks.is_locked(folder / ".lock") else "run the same command again"
    if (folder / EARLIER / "model.json").is_file():
        remedy += f", or take {folder / EARLIER}, the run before it"
    return f"its run is not finished: {remedy}"


def _tensors(path: Path, known: str) -> dict[str, Tensor]:
    """The weights, of which model.json has the checksum."""
    again = "train again, or copy it anew"
    try:
        found = read_checked(path, WEIGHTS)
        if hashlib.sha256(found).hexdigest() != known:
            raise ValueError
        tensors = parse_tensors(found)
    except FileNotFoundError:
        raise InputError(f"{path.parent} is incomplete, {path.name} is missing: {again}") from None
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{path} was changed since it was saved (its checksum differs): {again}") from None
    except Exception as error:  # what a stranger made may have a right checksum
        raise InputError(f"{path} cannot be read ({reason(error)}): {again}") from None
    if any(each.isnan().any() for each in tensors.values() if each.is_floating_point()):
        raise InputError(f"{path} holds weights that are no numbers (NaN): {again}")
    return tensors

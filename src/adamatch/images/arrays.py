"""Arrays and datasets -> stores in memory."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.images.decode import Shape, square, to_rgb, white_of
from adamatch.images.items import class_names, items, length, refuse
from adamatch.images.store import Labels, Pixels, Store

SHAPES = "(n, height, width, 3), (n, 3, height, width) or (n, height, width)"


def from_arrays(
    images: Any,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    size: int | None = None,
    shape: Shape = "squeeze",
    *,
    white: int = 0,
) -> Store:
    """Images as uint8, uint16 or floats in [0, 1], of shape NHWC, NCHW or NHW; labels are class indices or class names.

    One image, HWC, CHW or HW, is a batch of one. (3, h, w) is one image in colour, unless there are three labels.
    `white` is that of uint16; 0: 4095 where nothing is above it, else 65535.
    """
    images = _array(images)
    info: dict[str, Any] = {"origin": "arrays"}
    if images.dtype == np.uint16 and images.size:
        info["white"] = white = white or white_of(int(images.max()))
    labels = None if labels is None else _array(labels)
    pixels = _pixels(images, white, None if labels is None else len(labels))
    _, height, width, channels = pixels.shape
    size = size or min(height, width)
    if (height, width, channels) != (size, size, 3):
        pixels = np.stack(
            [
                square(to_rgb(Image.fromarray(image.squeeze(-1) if channels == 1 else image)), size, shape)
                for image in pixels
            ]
        )
    if labels is None:
        return Store(pixels, None, tuple(classes or ()), info)
    indices, names = _indices(labels, classes)
    if len(indices) != len(pixels):
        raise InputError(f"there are {len(pixels)} images and {len(indices)} labels: there must be one label per image")
    return Store(pixels, indices, names, info)


def from_dataset(
    dataset: Any,
    *,
    size: int | None = None,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    shape: Shape = "squeeze",
    white: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """A dataset of (image, label) or of images alone, torch's or HuggingFace's, or a list of either.

    An image is a Pillow image, an array, a tensor or a path. `white` is that of 16 bits; 0: each image's own.
    """
    refuse(dataset)
    count = length(dataset)
    numbered = None if labelled is False else class_names(dataset)
    classes = numbered or classes
    images: list[Pixels] = []
    labels: list[Any] = []
    for image, label in items(dataset, labelled=labelled, white=white):
        if size is None:
            size = min(image.size) if isinstance(image, Image.Image) else from_arrays(_alone(image)).size
        images.append(as_square(image, size, shape, f"image {len(images)} of the dataset", white))
        labels.extend(label)
        if progress:
            progress(len(images), count)
    if not images:
        raise InputError("the dataset is empty")
    if labels and len(labels) != len(images):
        raise InputError(f"the dataset labels {len(labels)} of its {len(images)} images: label all of them, or none")
    if (
        numbered and np.asarray(labels).dtype.kind in "iu"
    ):  # they count the dataset's names, even where these are numbers
        labels = [numbered[number] for number in _checked(np.asarray(labels), len(numbered))]
    return replace(from_arrays(np.stack(images), labels or None, classes), info={"origin": "dataset"})


def choose(
    store: Store,
    *,
    size: int | None,
    classes: Sequence[str] | None,
    labelled: bool | None,
    name: str,
    leave: bool = False,
) -> Store:
    """A store at the size, with the classes in the order and with or without the labels that are asked for.

    `leave`: images of other classes are left out, rather than an error.
    """
    if size and size != store.size:
        resized = np.stack([square(Image.fromarray(image), size) for image in store.images])
        store = replace(store, images=resized)
    if labelled is False or store.labels is None:
        if labelled:
            raise InputError(f"{name} has no labels, and here they are needed")
        return replace(store, labels=None, classes=tuple(classes or store.classes))
    if labelled and classes is None and len(store.classes) < 2:
        raise InputError(f"{name} has one class only ({store.classes[0]}): a classifier needs at least two")
    if classes is not None and tuple(classes) != store.classes:
        names, notes = [store.classes[label] for label in store.labels], list(store.info.get("notes", ()))
        rows = known(names, classes, name, notes) if leave else list(range(len(names)))
        labels = translate([names[row] for row in rows], classes, name)
        images = store.images if len(rows) == len(names) else store.images[rows]
        store = Store(images, labels, tuple(classes), {**store.info, "notes": notes})
    return store


def known(names: Sequence[str], classes: Sequence[str], where: str, notes: list[str]) -> list[int]:
    """The rows of those of `names` that are classes; what is left out is said."""
    learnt = set(classes)
    rows = [row for row, name in enumerate(names) if name in learnt]
    strange = sorted(set(names) - set(classes))
    if not rows:
        names_apart = f"it has {some(map(repr, strange))}, not {some(map(repr, classes))}{_alike(strange, classes)}"
        raise InputError(f"{where} has none of the classes that were learnt: {names_apart}")
    if strange:
        count = len(names) - len(rows)
        notes.append(
            f"{where}: {count} of {len(names)} images are of classes that were not learnt ({some(map(repr, strange))}): left "
            f"out{_alike(strange, classes)}"
        )
    return rows


def some(names: Iterable[str], most: int = 5) -> str:
    """The first of many names, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def translate(names: Sequence[str], classes: Sequence[str], where: str) -> Labels:
    """The index in `classes` of each of `names`; a name that is not there is an error that lists it."""
    known = {name: index for index, name in enumerate(classes)}
    strange = sorted(set(names) - set(known))
    if strange:
        raise InputError(
            f"{where} has classes that were not learnt: {some(map(repr, strange))} (there are {some(map(repr, classes), 10)})"
            f"{_alike(strange, classes)}"
        )
    return np.array([known[name] for name in names], np.int64)


def _alike(strange: Iterable[str], classes: Iterable[str]) -> str:
    """A remedy where names differ by little."""
    plain = {_plain(name) for name in classes}
    some_are = any(_plain(name) in plain for name in strange)
    return (
        "; some names differ in upper and lower case, blanks or kinds of accents alone: rename these"
        if some_are
        else ""
    )


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", " ".join(name.split())).casefold()


def _array(values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values  # which NumPy does not know
    return np.asarray(values)


def _alone(image: Any) -> NDArray[Any]:
    """One image HWC, CHW or HW as a batch."""
    values = _array(image)
    return values[None, ..., None] if values.ndim == 2 else values[None]


def _pixels(images: NDArray[Any], white: int, count: int | None) -> Pixels:
    """NHWC, NCHW or NHW, uint8, uint16 (of this white) or float in [0, 1] -> NHWC uint8 with 1, 3 or 4 channels.

    `count` labels tell whether three dimensions are one image or many grey ones.
    """
    if images.ndim == 2:
        images = images[None, ..., None]
    elif images.ndim == 3 and count != len(images) and (images.shape[-1] in (1, 3, 4) or images.shape[0] in (1, 3)):
        images = images[None]
    elif images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[-1] not in (1, 3, 4) and images.shape[1] in (1, 3, 4):
        images = images.transpose(0, 2, 3, 1)
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        more = ": of more than three channels choose three" if images.ndim == 4 else ""
        raise InputError(f"images of shape {images.shape} were given: {SHAPES} is needed{more}")
    if not images.size:
        raise InputError("the array holds no images")
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    if images.dtype == np.uint16:
        dark: Pixels = np.rint(images * (255 / white)).clip(0, 255).astype(np.uint8)
        return dark
    if not np.issubdtype(images.dtype, np.floating):
        raise InputError(
            f"images of type {images.dtype} were given: uint8, uint16, or floats between 0 and 1, are needed"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # also refuses NaN
        raise InputError(
            f"float images run from {low:.3g} to {high:.3g}: scale them to [0, 1] (and leave out any normalisation)"
        )
    scaled: Pixels = np.rint(images * 255).astype(np.uint8)
    return scaled


def as_square(image: Any, size: int, shape: Shape, name: str, white: int) -> Pixels:
    """One image of any kind, called `name` where something is wrong with it; `white` is that of 16 bits (0: its own)."""
    if isinstance(image, Image.Image):
        return square(to_rgb(image, white), size, shape)
    try:
        store = from_arrays(_alone(image), size=size, shape=shape, white=white)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    pixels: Pixels = store.images[0]
    return pixels


def _indices(labels: NDArray[Any], classes: Sequence[str] | None) -> tuple[Labels, tuple[str, ...]]:
    """Class indices and class names, from numbers or names. Numbers name their classes, unless there are names to count."""
    if labels.ndim != 1:
        raise InputError(
            f"labels of shape {labels.shape} were given: one class index or class name per image is needed"
        )
    if labels.dtype.kind in "US" or (labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels)):
        words = {str(label) for label in labels}
        names = (*(classes or ()), *sorted(words - set(classes or ())))  # `choose` sees to those that are not asked for
        return translate([str(label) for label in labels], names, "the array of labels"), names
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"labels of type {labels.dtype} were given: class indices (integers) or class names are needed"
        )
    if classes is None or all(name.isdecimal() for name in classes):
        found = sorted(set(labels.tolist()))
        if found[0] < 0:
            raise InputError(f"labels run from {found[0]} to {found[-1]}: class numbers are 0 and more")
        names = tuple(classes) if classes is not None else tuple(map(str, found))
        return translate([str(label) for label in labels.tolist()], names, "the array of labels"), names
    return _checked(labels, len(classes)), tuple(classes)


def _checked(labels: NDArray[Any], classes: int) -> Labels:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise InputError(
            f"labels run from {low} to {high}, but there are {classes} classes: 0 to {classes - 1} is allowed"
        )
    return labels.astype(np.int64)

"""Arrays and torch datasets -> stores in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from adamatch.data.decode import Shape, read_image, square, to_rgb
from adamatch.data.store import Labels, Pixels, Store
from adamatch.errors import InputError

SHAPES = "(n, height, width, 3), (n, 3, height, width) or (n, height, width)"


def from_arrays(
    images: Any,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    size: int | None = None,
    shape: Shape = "squeeze",
) -> Store:
    """Images as uint8, or floats in [0, 1], of shape NHWC, NCHW or NHW; labels are class indices or class names."""
    pixels = _pixels(_array(images))
    _, height, width, channels = pixels.shape
    size = size or min(height, width)
    if (height, width, channels) != (size, size, 3):
        pixels = np.stack(
            [square(to_rgb(Image.fromarray(image.squeeze(-1) if channels == 1 else image)), size, shape) for image in pixels]
        )
    if labels is None:
        return Store(pixels, None, tuple(classes or ()), {"origin": "arrays"})
    indices, names = _indices(_array(labels), classes)
    if len(indices) != len(pixels):
        raise InputError(f"there are {len(pixels)} images and {len(indices)} labels: there must be one label per image")
    return Store(pixels, indices, names, {"origin": "arrays"})


def from_dataset(
    dataset: Any,
    *,
    size: int | None = None,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    shape: Shape = "squeeze",
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """A torch dataset of (image, label) or of images alone, where an image is a Pillow image, an array, a tensor or a path."""
    if isinstance(dataset, DataLoader):
        raise InputError("a DataLoader was given: give its dataset (loader.dataset)")
    count = len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else 0
    if labelled is not False:
        classes = _names(dataset) or classes
    images: list[Pixels] = []
    labels: list[Any] = []
    for item in (dataset[i] for i in range(count)) if count and not isinstance(dataset, IterableDataset) else dataset:
        image, *rest = item if isinstance(item, tuple | list) else (item,)
        if isinstance(image, str | Path):
            image = read_image(image)
        if size is None:
            size = min(image.size) if isinstance(image, Image.Image) else from_arrays(_array(image)[None]).size
        images.append(_square(image, size, shape, f"image {len(images)} of the dataset"))
        labels.extend(rest[:1] if labelled is not False else [])
        if progress:
            progress(len(images), count)
    if not images:
        raise InputError("the dataset is empty")
    if labels and len(labels) != len(images):
        raise InputError(f"the dataset labels {len(labels)} of its {len(images)} images: label all of them, or none")
    return replace(from_arrays(np.stack(images), labels or None, classes), info={"origin": "dataset"})


def _names(dataset: Any) -> list[str] | None:
    """The dataset's names of classes, or those of the dataset that it is a part of (Subset)."""
    while getattr(dataset, "classes", None) is None and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    named = getattr(dataset, "classes", None)
    return None if named is None else [str(name) for name in named]


def choose(store: Store, *, size: int | None, classes: Sequence[str] | None, labelled: bool | None, name: str) -> Store:
    """A store at the size, with the classes in the order and with or without the labels that are asked for."""
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
        order = translate(store.classes, classes, name)
        store = replace(store, labels=order[store.labels], classes=tuple(classes))
    return store


def translate(names: Sequence[str], classes: Sequence[str], where: str) -> Labels:
    """The index in `classes` of each of `names`; a name that is not there is an error that lists it."""
    known = {name: index for index, name in enumerate(classes)}
    strange = sorted(set(names) - set(known))
    if strange:
        listed = ", ".join(strange[:5]) + (f" and {len(strange) - 5} more" if len(strange) > 5 else "")
        raise InputError(f"{where} has classes that were not learnt: {listed} (there are {', '.join(list(classes)[:10])})")
    return np.array([known[name] for name in names], np.int64)


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _pixels(images: NDArray[Any]) -> Pixels:
    """NHWC, NCHW or NHW, uint8 or float in [0, 1] -> NHWC uint8 with 1, 3 or 4 channels."""
    if images.ndim == 3 and images.shape[-1] in (3, 4):
        raise InputError(f"one image of shape {images.shape} was given: {SHAPES} is needed (for one image, image[None])")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[-1] not in (1, 3, 4) and images.shape[1] in (1, 3, 4):
        images = images.transpose(0, 2, 3, 1)
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        raise InputError(f"images of shape {images.shape} were given: {SHAPES} is needed")
    if not images.size:
        raise InputError("the array holds no images")
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    if not np.issubdtype(images.dtype, np.floating):
        raise InputError(f"images of type {images.dtype} were given: uint8, or floats between 0 and 1, are needed")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # also refuses NaN
        raise InputError(
            f"float images run from {low:.3g} to {high:.3g}: scale them to [0, 1] (and leave out any normalisation)"
        )
    scaled: Pixels = np.rint(images * 255).astype(np.uint8)
    return scaled


def _square(image: Any, size: int, shape: Shape, name: str) -> Pixels:
    if isinstance(image, Image.Image):
        return square(to_rgb(image), size, shape)
    try:
        store = from_arrays(_array(image)[None], size=size, shape=shape)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    pixels: Pixels = store.images[0]
    return pixels


def _indices(labels: NDArray[Any], classes: Sequence[str] | None) -> tuple[Labels, tuple[str, ...]]:
    """Class indices and class names, from numbers or names. Numbers name their classes, unless there are names to count."""
    if labels.ndim != 1:
        raise InputError(f"labels of shape {labels.shape} were given: one class index or class name per image is needed")
    if labels.dtype.kind in "US" or (labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels)):
        names = tuple(classes) if classes is not None else tuple(sorted({str(label) for label in labels}))
        return translate([str(label) for label in labels], names, "the array of labels"), names
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels of type {labels.dtype} were given: class indices (integers) or class names are needed")
    if classes is None or all(name.isdecimal() for name in classes):
        found = sorted(set(labels.tolist()))
        if found[0] < 0:
            raise InputError(f"labels run from {found[0]} to {found[-1]}: class numbers are 0 and more")
        names = tuple(classes) if classes is not None else tuple(map(str, found))
        return translate([str(label) for label in labels.tolist()], names, "the array of labels"), names
    low, high = int(labels.min()), int(labels.max())
    names = tuple(classes)
    if low < 0 or high >= len(names):
        raise InputError(
            f"labels run from {low} to {high}, but there are {len(names)} classes: 0 to {len(names) - 1} is allowed"
        )
    return labels.astype(np.int64), names

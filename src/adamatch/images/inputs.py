"""The door: what a user gives as images in Python -> one of the forms that are read. Nothing in a file comes by here.

Patterns become the files that match, addresses `Url`s, open files their bytes, a dict of classes pairs of an image and
its label, and a DataLoader its dataset. What has such a form already is returned itself.
"""

import glob
import itertools
import operator
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate, default_convert

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST
from adamatch.base.urls import Url, is_url
from adamatch.images.items import is_hub
from adamatch.images.listing import Wanted, is_list, list_files


def normalised(images: Any) -> Any:
    """The forms are: names of files and folders, arrays, a store, and datasets, of which a list of images is one."""
    if isinstance(images, DataLoader):
        return normalised(_dataset(images))
    if isinstance(images, Mapping):
        return images if is_hub(images) else _by_class(images)
    if isinstance(images, (set, frozenset)):
        return normalised(sorted(images, key=str))
    if _holds_bytes(images):
        return [_bytes(images)]
    if isinstance(images, Iterator):
        first = list(itertools.islice(images, 1))
        every = (each for image in itertools.chain(first, images) for each in _each(image))
        return list(every) if _are_names(first) else every
    if getattr(images, "ndim", 0) == 1 and hasattr(images, "tolist"):  # an array or a column
        return values if _are_names(values := images.tolist()) else images
    if isinstance(images, tuple) and len(images) == 2 and isinstance(images[0], (list, tuple)):
        return _with_labels(images)
    if isinstance(images, list) or _are_names(images):
        found = [each for image in images for each in _each(image)]
        return images if len(found) == len(images) and all(map(operator.is_, found, images)) else found
    found = _each(images)
    return images if found[0] is images else found  # a pattern or an address


def given_by_name(images: Any) -> set[str]:
    """Single files and addresses that were given one by one, without a pattern: these are meant."""
    many = images if isinstance(images, (list, tuple, set, frozenset)) else [images]
    names = [each for each in many if isinstance(each, (str, Path)) and not is_list(each)]
    return {str(each) for each in names if is_url(each) or os.path.isfile(each)}


def _each(image: Any) -> list[Any]:
    """One item as it is read: a pattern as the files that match, all else as a list of one."""
    if isinstance(image, (str, Path)):
        if is_url(image):
            return [image if isinstance(image, Url) else Url(image)]
        return _matching(image) if glob.has_magic(str(image)) and not os.path.exists(image) else [image]
    if isinstance(image, tuple) and len(image) == 2:  # with its label
        found = _each(image[0])
        return [image] if found[0] is image[0] else [(each, image[1]) for each in found]
    return [_bytes(image) if _holds_bytes(image) else image]


def _matching(pattern: str | Path) -> list[Path]:
    found = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
    if not found:
        raise InputError(f"no file matches {pattern}: is the folder right?")
    return found


def _holds_bytes(image: Any) -> bool:
    return isinstance(image, (bytes, bytearray, memoryview)) or hasattr(image, "read")  # an open file


def _bytes(image: Any) -> bytes:
    """Of an open file all that is left."""
    if not hasattr(image, "read"):
        return bytes(image)
    name = f"the open file {getattr(image, 'name', '')}".strip()
    try:
        content = image.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: it is closed, or it is text in another encoding
        raise InputError(f"{name} cannot be read ({reason(error)}): open it as open(path, 'rb')") from None
    if not isinstance(content, bytes):
        raise InputError(f"{name} was opened as text: open it as open(path, 'rb')")
    if len(content) > LARGEST:
        raise InputError(f"{name} has more than the {LARGEST >> 20} MiB that an image may have")
    return content


def _with_labels(images: tuple[Any, Any]) -> Any:
    """(images, labels) as pairs, where these images are no names of files and no arrays."""
    items, labels = images[0], _listed(images[1])
    found = [_each(item) for item in items]
    plain = all(len(each) == 1 and each[0] is item for each, item in zip(found, items, strict=True))
    if plain and not any(isinstance(item, (bytes, Image.Image)) for item in items):
        return images
    if len(labels) != len(items):
        raise InputError(f"there are {len(items)} images and {len(labels)} labels: there must be one label per image")
    return [(each, label) for many, label in zip(found, labels, strict=True) for each in many]


def _by_class(images: Mapping[Any, Any]) -> Any:
    """{class: images} as pairs of an image and its class. {name: folder} stays: the folders may hold classes."""
    if not images or all(map(_is_source, images.values())):
        return images
    pairs = []
    for name, value in images.items():
        found = _of_class(value)
        if found is None:
            return images
        if not found:
            raise InputError(f"{name} holds no images: give some, or leave it out")
        pairs += [(each, str(name)) for each in found]
    return pairs


def _of_class(value: Any) -> list[Any] | None:
    """The images of a class; None where these are no images without labels."""
    if isinstance(value, list) or _are_names(value):
        return [each for image in value for each in _each(image)]
    if isinstance(value, (str, Path)) and os.path.isdir(value):
        return list(list_files(value, Wanted(labelled=False))[0])
    if isinstance(value, (str, Path, Image.Image)) or _holds_bytes(value):
        return _each(value)
    shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
    one = len(shape) == 2 or (len(shape) == 3 and (shape[-1] in (1, 3, 4) or shape[0] in (1, 3)))
    return [value] if one else list(value) if len(shape) in (3, 4) else None


def _is_source(value: Any) -> bool:
    """Whether it names folders or lists, which may have labels."""
    names = value if isinstance(value, (list, tuple)) else [value]
    return _are_names(names) and all(is_list(each) or os.path.isdir(each) for each in names)


def _dataset(loader: DataLoader[Any]) -> Any:
    """A loader's dataset, where the loader does nothing but draw each of its images once, in batches."""
    batches: Any = loader.batch_sampler
    own_batches = type(loader).__iter__ is not DataLoader.__iter__ or type(batches) not in (BatchSampler, type(None))
    if own_batches or loader.collate_fn not in (default_collate, default_convert):
        what = "makes its batches in a way of its own" if own_batches else "has a collate_fn of its own"
        raise InputError(f"this DataLoader {what}, which is not used here: give its dataset (loader.dataset)")
    sampler: Any = loader.sampler if batches is None else batches.sampler
    all_once = isinstance(sampler, RandomSampler) and not sampler.replacement
    all_once = all_once and sampler.num_samples == len(sampler.data_source)
    if not (all_once or isinstance(sampler, SequentialSampler) or isinstance(loader.dataset, IterableDataset)):
        remedy = "give these as a dataset, such as torch.utils.data.Subset(loader.dataset, numbers)"
        raise InputError(f"this DataLoader draws its images with a {type(sampler).__name__}: {remedy}")
    return loader.dataset


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _are_names(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and bool(values) and all(isinstance(each, (str, Path)) for each in values)

"""Arrays -> stores in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.base import system
from adamatch.base.errors import InputError, reason
from adamatch.images.decode import Shape, Square, square, to_rgb, white_of
from adamatch.images.labels import translate
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
    `white` is that of uint16; 0: 4095 where nothing is above it, else 65535. `size` None: the images' own.
    """
    images = _array(images)
    whole = images.dtype == np.uint8 and images.flags.c_contiguous  # it is not copied
    if not whole and images.size * images.itemsize > system.free_memory():
        raise InputError(f"an array of shape {images.shape} does not fit into memory: give its images in portions")
    if images.dtype == np.uint16 and images.size:
        white = white or white_of(int(images.max()))
    info = {"white": white if images.dtype == np.uint16 else 0}
    labels = None if labels is None else _array(labels)
    pixels = _pixels(images, white, None if labels is None else len(labels))
    _, height, width, channels = pixels.shape
    size = size or min(height, width)
    if (height, width, channels) != (size, size, 3):
        grey = channels == 1
        pictures = (to_rgb(Image.fromarray(image.squeeze(-1) if grey else image)) for image in pixels)
        pixels = np.stack([square(picture, size, shape) for picture in pictures])
    if labels is None:
        return Store(pixels, None, tuple(classes or ()), info)
    indices, names = _indices(labels, classes)
    if len(indices) != len(pixels):
        raise InputError(f"there are {len(pixels)} images and {len(indices)} labels: there must be one label per image")
    return Store(pixels, indices, names, info)


def one_square(image: Any, how: Square, name: str) -> Pixels:
    """One image of any kind; an error calls it `name`."""
    if isinstance(image, Image.Image):
        try:
            return square(to_rgb(image, how.white), how.size, how.shape)
        except Exception as error:  # one that is closed, or whose file is damaged
            raise InputError(f"{name} cannot be read ({reason(error)})") from None
    values = _array(image)
    batch = values[None, ..., None] if values.ndim == 2 else values[None]
    try:
        store = from_arrays(batch, size=how.size, shape=how.shape, white=how.white)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    pixels: Pixels = store.images[0]
    return pixels


def check_indices(labels: NDArray[Any], classes: int) -> Labels:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        allowed = f"there are {classes} classes: 0 to {classes - 1} is allowed"
        raise InputError(f"labels run from {low} to {high}, but {allowed}")
    return labels.astype(np.int64)


def _array(values: Any) -> NDArray[Any]:
    if np.ma.is_masked(values):
        raise InputError("masked arrays are not read: give values for what is masked, with .filled(0) for example")
    if not hasattr(values, "detach"):
        return np.asarray(values)
    try:
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values  # which NumPy does not know
        return np.asarray(values)
    except (RuntimeError, TypeError) as error:  # of tensors that hold no values, or not in rows
        raise InputError(f"this tensor cannot be read ({reason(error)}): give an ordinary one") from None


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
        return np.rint(images * (255 / white)).clip(0, 255).astype(np.uint8)
    if not np.issubdtype(images.dtype, np.floating):
        needed = "uint8, uint16, or floats between 0 and 1, are needed"
        raise InputError(f"images of type {images.dtype} were given: {needed}")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # also refuses NaN
        remedy = "scale them to [0, 1] (and leave out any normalisation)"
        raise InputError(f"float images run from {low:.3g} to {high:.3g}: {remedy}")
    pixels: Pixels = np.rint(images * 255).astype(np.uint8)
    return pixels


def _indices(labels: NDArray[Any], classes: Sequence[str] | None) -> tuple[Labels, tuple[str, ...]]:
    """Class indices and class names. Numbers are indices into `classes`; without these, a number names its class."""
    if labels.ndim != 1:
        needed = "one class index or class name per image is needed"
        raise InputError(f"labels of shape {labels.shape} were given: {needed}")
    words = labels.dtype.kind in "US" or (labels.dtype.kind == "O" and all(isinstance(each, str) for each in labels))
    if not words and labels.dtype.kind not in "iu":
        needed = "class indices (integers) or class names are needed"
        raise InputError(f"labels of type {labels.dtype} were given: {needed}")
    said = [str(label) for label in labels.tolist()]
    if words:
        known = tuple(classes or ())
        names = (*known, *sorted(set(said) - set(known)))  # `with_classes` sees to those that are not wanted
    elif classes is not None and not all(name.isdecimal() for name in classes):
        return check_indices(labels, len(classes)), tuple(classes)
    else:
        found = sorted(set(labels.tolist()))
        if found[0] < 0:
            raise InputError(f"labels run from {found[0]} to {found[-1]}: class numbers are 0 and more")
        names = tuple(classes) if classes is not None else tuple(map(str, found))
    return translate(said, names, "the array of labels"), names

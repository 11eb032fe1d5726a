"""Every file is opened for reading here: regular files only, and none larger than it may be."""

import errno
import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError

LARGEST = 1 << 28  # bytes of a file, or of a member of an archive, that is read whole
WEIGHTS = 1 << 33  # of tensors
IRREGULAR = "it is a folder, a pipe or a device, not a regular file"


def open_file(path: Path, largest: int | None = LARGEST) -> io.BufferedReader:
    """A file that the user gives, perhaps by a link. `largest` None: of any size."""
    try:
        return opened(path, largest)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def opened(path: Path, largest: int | None = LARGEST, *, own: bool = False) -> io.BufferedReader:
    """The same, but errors of the disk are passed on.

    `own`: a file in a folder that this package wrote, perhaps at a stranger's: a link may lead out of it.
    """
    flags = ("O_NONBLOCK", "O_BINARY", *(("O_NOFOLLOW",) if own else ()))
    try:
        # A pipe that nobody writes to blocks an ordinary open, before it can be told from a file.
        number = os.open(path, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))
    except OSError as error:
        if own and error.errno == errno.ELOOP:
            raise InputError(f"{path} is a link: put the file itself there") from None
        raise
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        os.close(number)
        raise InputError(f"{path} cannot be read ({IRREGULAR})")
    if largest is not None and status.st_size > largest:
        os.close(number)
        size = f"{status.st_size / 2**20:,.0f} MiB"
        raise InputError(f"{path} has {size}, more than the {largest >> 20} MiB that it may have")
    return os.fdopen(number, "rb")


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """All of a file that the user gives."""
    with open_file(path, largest) as file:
        try:
            return _all(file)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from None


def read_own(path: Path, largest: int = LARGEST) -> bytes:
    """All of a file of this package; errors of the disk are passed on."""
    with opened(path, largest, own=True) as file:
        return _all(file)


def mapped(path: Path, mode: Literal["r", "r+"] = "r") -> Any:
    """The array in an .npy file of this package, left on the disk."""
    opened(path, None, own=True).close()
    return np.load(path, mmap_mode=mode, allow_pickle=False)


def arrays_in(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file. Of a damaged one NumPy and zipfile raise errors of all kinds."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise ValueError(f"it would unpack to more than {LARGEST >> 20} MiB")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _all(file: io.BufferedReader) -> bytes:
    return file.read(os.fstat(file.fileno()).st_size)  # not read(): a file without a size, as in /proc, may have no end

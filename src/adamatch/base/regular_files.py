"""Files from outside are read here: regular files only, and none larger than it may be."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from adamatch.base.errors import InputError

LARGEST = 1 << 28  # bytes of a file, or of a member of an archive, that is read whole


def open_file(path: Path, largest: int | None = LARGEST) -> BinaryIO:
    """Open a regular file: a pipe would be waited for, and a device may never end. `largest` None: of any size."""
    try:
        # A pipe that nobody writes to blocks an ordinary open, before it can be told from a file.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        os.close(number)
        raise InputError(f"{path} cannot be read (it is a folder, a pipe or a device, not a regular file)")
    if largest is not None and status.st_size > largest:
        os.close(number)
        size = f"{status.st_size / 2**20:,.0f} MiB"
        raise InputError(f"{path} has {size}, more than the {largest >> 20} MiB that it may have")
    return os.fdopen(number, "rb")


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """All of a regular file."""
    with open_file(path, largest) as file:
        try:
            # Not read(): a file without a size, as in /proc, may have no end.
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from None

"""Pickles that mean harm, in place of one of CIFAR's; run as a program, it lets each of them try, in a process of its own.

`python -m sets.hostile_pickles FOLDER` prints a line for each: its name, and what became of it.
"""

import os
import pickle
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from published import formats, hostile

ROOM = 2 << 30  # bytes of memory, beyond what the process has when it starts
SECONDS = 20


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def binary(value: bytes) -> bytes:
    return b"T" + len(value).to_bytes(4, "little") + value


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


NDARRAY, DTYPE, MAKE = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n"
FILL, ENCODE = b"cnumpy.core.numeric\n_frombuffer\n", b"c_codecs\nencode\n"
BYTES = DTYPE + b"(" + text("u1") + b"K\x00K\x01tR"  # the type of an unsigned byte
OBJECTS = DTYPE + b"(" + text("O8") + b"K\x00K\x01tR"
EMPTY = MAKE + NDARRAY + b"K\x00\x85" + binary(b"b") + b"\x87R"


def array(shape: bytes, kind: bytes, data: bytes) -> bytes:
    return EMPTY + b"(K\x01" + shape + kind + b"\x89" + data + b"tb"


IMAGE = array(b"K\x01M\x00\x0c\x86", BYTES, binary(bytes(3072)))  # what one image is in a sound file


def batch(labels: bytes, images: bytes = IMAGE) -> bytes:
    """CIFAR's dictionary with these operations in the place of its labels, or of its images."""
    return b"\x80\x02}(" + text("labels") + labels + text("data") + images + b"u."


def doubled(times: int) -> bytes:
    """A list of two of a list of two of ...: a few bytes that are 2^times numbers once they are unfolded."""
    return b"]K\x01aq\x00" + b"".join(
        b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(times)
    )


HARMFUL: dict[str, bytes] = {
    "an array of objects over bytes of its choice": batch(
        NDARRAY + b"K\x01\x85" + text("O") + binary(b"A" * 8) + b"\x87R"
    ),
    "the same, made as a new object": batch(NDARRAY + b"K\x01\x85" + text("O") + binary(b"A" * 8) + b"\x87\x81"),
    "the same, as an instance": batch(b"(K\x01\x85" + text("O") + binary(b"A" * 8) + b"inumpy\nndarray\n"),
    "memory that nobody wrote": batch(b"]K\x01a", NDARRAY + b"(K\x01M\x00\x0c\x86" + text("u1") + b"tR"),
    "an array of objects, filled": batch(array(b"K\x01\x85", OBJECTS, binary(b"A" * 8))),
    "an array of objects in a buffer": batch(
        FILL + b"(" + binary(b"A" * 8) + OBJECTS + b"K\x01\x85" + text("C") + b"tR"
    ),
    "a type that becomes objects later": batch(
        array(b"K\x01\x85", BYTES + b"(K\x03" + text("O") + b"NNNJ\xff\xff\xff\xffK\x00tb", binary(b"A" * 8))
    ),
    "a shape beyond its bytes": batch(array(number(2**62) + b"\x85", BYTES, binary(b"A" * 8))),
    "a negative shape": batch(array(number(-8) + b"\x85", BYTES, binary(b"A" * 8))),
    "a shape of a thousand sides": batch(array(b"(" + b"K\x01" * 1000 + b"t", BYTES, binary(b"A"))),
    "attributes for a stand-in": batch(MAKE + b"}" + text("__code__") + b"Nsb"),
    "attributes for numpy": batch(NDARRAY + b"N}" + text("x") + b"K\x01s\x86b"),
    "a key of a million tuples": batch(b"})" + b"\x85" * 1_000_000 + b"K\x01s"),
    "a name of a million tuples": batch(b")" + b"\x85" * 1_000_000 + text("x") + b"\x93"),
    "a million lists in each other": batch(b"]" * 1_000_000 + b"a" * 999_999),
    "a list in itself": batch(b"]q\x00h\x00a"),
    "a list that unfolds": batch(doubled(60)),
    "a memo of four billion places": batch(b"Nr\xff\xff\xff\xff"),
    "another name by its number": batch(b"\x82\x01"),
    "an object kept elsewhere": batch(b"Pelsewhere\n"),
    "a buffer from outside": batch(b"\x97"),
    "a codec that unpacks": batch(ENCODE + text("x" * 100) + text("zlib_codec") + b"\x86R"),
    "labels that are no numbers": batch(b"](" + text("a") + b"NK\x01e"),
    "labels of a thousand digits": batch(b"]L" + b"9" * 1000 + b"L\na"),
    **{f"it runs {name}": data for name, data in hostile.PICKLES.items()},
    "it runs a command, protocol 4": pickle.dumps({b"labels": hostile.Bomb()}, 4),
}


def try_all(folder: Path) -> None:
    from adamatch.base.errors import InputError
    from adamatch.datasets import cifar
    from adamatch.datasets.source import Found

    def attempt(data: bytes) -> str:
        formats.tar(folder / "cifar-10-python.tar.gz", {"cifar-10-batches-py/test_batch": data})
        try:
            split = cifar.read(Found(folder), "cifar10")["test"]()
        except InputError as error:
            return "refused" if "\n" not in str(error) and len(str(error)) < 1000 else f"refused at length: {error}"
        return f"read: {split.count} images"

    images, labels = formats.random_images(3, 3072), [1, 2, 3]
    sound = {b"data": images, b"labels": labels}
    for name, data in {**HARMFUL, "a sound one": pickle.dumps(sound, 2)}.items():
        # One process after the other, each a copy of this one: what dies is known by name, and the rest goes on.
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
            _end(attempt, data)
        _, status = os.waitpid(child, 0)
        ended = f"died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else (folder / "told").read_text()
        print(f"{name}: {ended}", flush=True)


def _end(attempt: Any, data: bytes) -> None:
    try:
        told = attempt(data)
    except BaseException as error:
        told = f"traceback: {type(error).__name__}"
    Path("told").write_text(told)
    os._exit(0)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    try_all(Path.cwd())

"""CIFAR's pickles, read without an unpickler: plain values and arrays of numbers come out, and nothing in the file is called.

The operations are taken one by one from `pickletools`, and the few that these files use are done here. A name in the file
(numpy.ndarray, ...) stays a pair of words; an array stays what the file says of it until the end, and then NumPy gets bytes, a
type of number and a shape that were checked. The library's unpickler is no base for this: it hashes, and makes room for, what
a file wants, and so can be brought down by one.
"""

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, reason

NUMBER = re.compile(r"[<>|=]?([uif][1248])")
DIMENSIONS = 8


class _Name(NamedTuple):
    module: str
    name: str


@dataclass
class _Kind:
    """Stands for numpy.dtype."""

    code: str
    order: str = "|"


@dataclass
class _Array:
    """Stands for numpy.ndarray: first empty, then filled in."""

    shape: Any = (0,)
    kind: Any = None
    columns_first: Any = False
    data: Any = b""


def unpickle(data: bytes, where: str) -> dict[bytes, Any]:
    """A pickled dictionary of plain values and numeric arrays, as CIFAR's are; everything else in it is refused, not run."""
    try:
        value = _Machine().run(data)
        if not isinstance(value, dict):
            raise InputError("is not one of CIFAR's pickles: it holds no dictionary")
        return {_as_bytes(key): _made(item) if isinstance(item, _Array) else item for key, item in value.items()}
    except InputError as error:
        raise InputError(f"{where} {error}") from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise InputError(f"{where} is a damaged pickle ({reason(error)}): fetch it again") from None


class _Machine:
    """A pickle's stack and memo. Made anew for each pickle: no file can leave anything behind for the next one."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # what stands below each mark
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name == "STOP":
                break
            if name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name in VALUES:
                self.stack.append(argument)
            elif name in BYTES and isinstance(
                argument, str
            ):  # the strings of Python 2, which pickletools gives as latin-1
                self.stack.append(argument.encode("latin1"))
            elif name in BYTES and isinstance(argument, bytes | bytearray):
                self.stack.append(bytes(argument))
            elif name in DONE:
                DONE[name](self, argument)
            else:
                raise InputError(f"is not one of CIFAR's pickles: they have no {name} in them: refused")
        (value,) = self.stack
        return value

    def mark(self, _: Any) -> None:
        self.below.append(self.stack)
        self.stack = []

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def put(self, key: Any) -> None:
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def get(self, key: Any) -> None:
        self.stack.append(self.memo[key])

    def tuple_of(self, count: int) -> None:
        items = self.stack[len(self.stack) - count :]
        if len(items) != count:
            raise ValueError("the stack is too short")
        self.stack[len(self.stack) - count :] = [tuple(items)]

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("appends to what is no list")
        self.stack[-1].extend(items)

    def set(self, items: list[Any]) -> None:
        """Only texts are keys: the hash of nested tuples takes as much of the C stack as a file wants."""
        if (
            type(self.stack[-1]) is not dict
            or len(items) % 2
            or not all(type(key) in (str, bytes) for key in items[::2])
        ):
            raise InputError("is not one of CIFAR's pickles: its dictionary has other keys than texts: refused")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def dictionary(self, items: list[Any]) -> None:
        self.stack.append({})
        self.set(items)

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str) and (module, name) in KNOWN):
            raise InputError(f"would run {_word(module)[:80]}.{_word(name)[:80]} when unpickled: refused")
        self.stack.append(_Name(module, name))

    def two_on_top(self) -> tuple[Any, Any]:
        second, first = self.stack.pop(), self.stack.pop()
        return first, second

    def call(self, _: Any) -> None:
        """Nothing is called: the few calls that describe an array of numbers are told apart by their names."""
        called, given = self.two_on_top()
        if not (isinstance(called, _Name) and isinstance(given, tuple) and KNOWN[called] is not None):
            raise InputError("would call something else than an array's parts when unpickled: refused")
        self.stack.append(KNOWN[called](*given))  # type: ignore[misc]

    def build(self, _: Any) -> None:
        value, state = self.two_on_top()
        if isinstance(value, _Kind) and isinstance(state, tuple) and len(state) > 1:
            value.order = _word(state[1])
        elif isinstance(value, _Array) and isinstance(state, tuple) and len(state) == 5:
            _, value.shape, value.kind, value.columns_first, value.data = state
        else:
            raise InputError("would change something else than an array when unpickled: refused")
        self.stack.append(value)


def _made(array: _Array) -> NDArray[Any]:
    """The array that was described, of bytes of its own."""
    kind, shape, data = array.kind, array.shape, array.data
    if not isinstance(kind, _Kind) or not isinstance(data, bytes):
        raise InputError("holds an array of something else than numbers: refused")
    dtype = np.dtype(f"{kind.order if kind.order in ('<', '>') else '='}{kind.code}")
    if not (
        isinstance(shape, tuple) and len(shape) <= DIMENSIONS and all(type(side) is int and side >= 0 for side in shape)
    ):
        raise InputError("holds an array of no shape: refused")
    if prod(shape) * dtype.itemsize != len(data):
        raise InputError(f"holds an array of shape {shape} in {len(data)} bytes: fetch it again")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if array.columns_first is True else "C")


def _number_type(name: Any, *_: Any) -> _Kind:
    found = NUMBER.fullmatch(_word(name))
    if found is None or found[1] == "f1":
        raise InputError(f"holds an array of type {_word(name)[:80]!r}: refused")
    return _Kind(found[1], _word(name)[0])


def _latin(text: Any, _: Any) -> bytes:
    """How Python 3 writes bytes for Python 2."""
    if not isinstance(text, str):
        raise ValueError("encodes what is no text")
    return text.encode("latin1")


def _empty(*_: Any) -> _Array:
    return _Array()


def _filled(data: Any, kind: Any, shape: Any, order: Any) -> _Array:
    return _Array(shape, kind, order == "F", data)


def _word(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _as_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
VALUES |= {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
# What NumPy writes for an array; None: a name that is only handed to another.
KNOWN: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _number_type,
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy.core.numeric", "_frombuffer"): _filled,
    ("numpy._core.numeric", "_frombuffer"): _filled,
    ("_codecs", "encode"): _latin,
}
DONE: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
    "MARK": _Machine.mark,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "LIST": lambda m, _: m.push(m.above_mark()),
    "TUPLE": lambda m, _: m.push(tuple(m.above_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.above_mark()),
    "DICT": lambda m, _: m.dictionary(m.above_mark()),
    "SETITEM": lambda m, _: m.set(list(m.two_on_top())),
    "SETITEMS": lambda m, _: m.set(m.above_mark()),
    "GLOBAL": lambda m, argument: m.name(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.name(*m.two_on_top()),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}

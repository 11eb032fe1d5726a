"""Files as bad disks and other people leave them."""

import json
import random
from pathlib import Path

DEEP = "[" * 100_000
# JSON of other kinds than was written: none of them may raise anything but an error of one line.
STRANGE = (
    "",
    "null",
    "3",
    "[]",
    "{}",
    '"text"',
    "NaN",
    "9" * 5000,
    DEEP,
    '{"a": ' * 100_000,
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    '{"version": 1',
    "{}" * 3,
)


def flip(path: Path, seed: int) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    choose = random.Random(seed)
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def changed(path: Path, name: str, value: object) -> str:
    """The text of a JSON file with another value in it, and no checksum."""
    facts = json.loads(path.read_text())
    facts.pop("own_sha256", None)
    return json.dumps(facts | {name: value})


# Values of wrong kinds, sizes and depths.
VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    10**30,
    1e308,
    float("nan"),
    "",
    "x" * 10_000,
    [],
    [[]],
    [3],
    {},
    {"a": {}},
    [None, 1],
)

"""Ways to damage a file: bytes anywhere and, in some formats, contents whose checksums are made right again."""

import bz2
import gzip
import json
import re
import struct
import tarfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]

EXTREMES = (0, 1, -1, 127, 255, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63))
WORDS = (
    *(
        b"\0",
        b"\xff\xfe\xfd",
        b"\x1b[31m",
        b"[/bold]",
        b"=1+1",
        b"../../x",
        b"/etc/passwd",
        b"nan",
        b"1e999",
        b"-1",
        b" ",
    ),
    *(b"\xc2\xb2", b"9" * 5000, b"[" * 3000, b"{" * 3000, b"'", b'"', b"\r\n", b"\xe2\x80\xae", b"\xed\xb0\x80"),
    *(b"\\", b"%s", b"None"),
)
CHANGES = (
    *("flip", "flip", "flip", "byte", "byte", "number", "number", "cut", "remove", "insert", "repeat", "blank"),
    *("noise", "word"),
)
NUMBERS = ((">I", 32), ("<I", 32), (">H", 16), ("<H", 16), ("<Q", 64), (">Q", 64))


def raw(data: bytes, random: Random) -> bytes:
    """One to four changes of bytes, half of them near an end, where headers and directories are."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change(changed, random)
    return bytes(changed)


def _at(data: bytearray, random: Random) -> int:
    if not data:
        return 0
    near = random.random()
    if near < 0.35:
        return random.randrange(min(len(data), 512))
    return len(data) - 1 - random.randrange(min(len(data), 256)) if near < 0.5 else random.randrange(len(data))


def _change(data: bytearray, random: Random) -> None:
    at, length = _at(data, random), random.choice((1, 2, 4, 8, 64, 512))
    piece = bytes(data[at : at + length])
    match random.choice(CHANGES):
        case "flip":
            data[at : at + 1] = bytes(each ^ 1 << random.randrange(8) for each in piece[:1])
        case "byte":
            data[at : at + 1] = bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))])
        case "number":
            form, bits = random.choice(NUMBERS)
            data[at : at + bits // 8] = struct.pack(form, random.choice(EXTREMES) % 2**bits)
        case "cut":
            del data[at:]
        case "remove":
            del data[at : at + length]
        case "insert":
            data[at:at] = random.randbytes(length)
        case "repeat":
            start = _at(data, random)
            data[start:start] = piece
        case "blank":
            data[at : at + length] = random.choice((b"\0", b"\xff", b" ")) * len(piece)
        case "noise":
            data[at : at + length] = random.randbytes(len(piece))
        case "word":
            data[at:at] = random.choice(WORDS)


def text(data: bytes, random: Random) -> bytes:
    """A word, a number or a line of a text file becomes another, or comes twice, or goes."""
    for _ in range(random.choice((1, 1, 2))):
        pieces = re.split(rb"(\s+|,|:)", data)
        at = random.randrange(len(pieces))
        pieces[at] = random.choice((b"", pieces[at] * 2, random.choice(pieces), *[random.choice(WORDS)] * 3))
        data = b"".join(pieces)
    return data


def jsons(data: bytes, random: Random) -> bytes:
    """A value somewhere in a JSON file becomes one of another type, depth or size, or goes, or changes its name."""
    value = json.loads(data)
    places = [((), None, value)]
    _places(value, places)
    for _ in range(random.choice((1, 1, 2))):
        _, at, holder = random.choice(places)
        other = random.choice(VALUES)
        if at is None:
            return random.choice((json.dumps(other).encode(), *TEXTS))
        if isinstance(holder, dict) and random.random() < 0.2:
            held = holder.pop(at, None)
            if random.random() < 0.5:
                holder[f"{at}?"] = held
        elif isinstance(holder, dict) or at < len(holder):
            holder[at] = other
    written = json.dumps(value)
    return random.choice((written, written, written.replace("0", "9" * 400, 1))).encode()


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, -(2**63), 10**30, 1.5, float("nan"), float("inf"), -0.0, 1e308),
    *("", "x", "\x1b[2J", "[/bold]", "../..", "a" * 5000, "\ud800", "0", "1e5", "nan", "\0"),
    *([], {}, [1], ["x", 1], [[]], {"x": {}}, [None] * 50, {"step": 1}),
)
TEXTS = (b"[" * 100_000, b'{"a":' * 50_000, b"", b"null", b"[]", b'"x"', b"9" * 10_000, b"\xff\xfe", b"NaN", b"{}")


def _places(value: Any, found: list[Any]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found.append((None, key, value))
        _places(each, found)


def lines(data: bytes, random: Random) -> bytes:
    """The same in one line of a file of JSON lines."""
    rows = data.splitlines()
    at = random.randrange(len(rows))
    rows[at] = jsons(rows[at], random)
    return b"\n".join(rows) + b"\n"


def within_gzip(damage: Damage) -> Damage:
    return lambda data, random: gzip.compress(damage(gzip.decompress(data), random), 1, mtime=0)


def within_bz2(damage: Damage) -> Damage:
    return lambda data, random: bz2.compress(damage(bz2.decompress(data), random))


CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"iTXt", b"zTXt", b"eXIf", b"IEND", b"pHYs")


def png(data: bytes, random: Random) -> bytes:
    """A chunk is damaged, doubled or moved, and its checksum made right; or the pixels are damaged before packing."""
    chunks, at = [], 8
    while at < len(data):
        size = struct.unpack(">I", data[at : at + 4])[0]
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    number = random.randrange(len(chunks))
    kind, body = chunks[number]
    way = random.randrange(5)
    if way == 0 and kind == b"IHDR":
        body = struct.pack(">II", *(random.choice((0, 1, 7, 40, 5000, 2**31 - 1)) for _ in range(2))) + body[8:]
    elif way == 1 and kind == b"IDAT":
        body = zlib.compress(raw(zlib.decompress(body), random))
    elif way == 2:
        kind = random.choice(CHUNKS)
    else:
        body = raw(body, random)
    chunks[number] = kind, body
    if way == 3:
        chunks.insert(random.randrange(len(chunks)), chunks[number])
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def tar(data: bytes, random: Random) -> bytes:
    """A header's name, size, type or link becomes a bad one and its checksum right; or extensions come before it."""
    heads, at = [], 0
    while data[at : at + 512].strip(b"\0"):
        size = int(data[at + 124 : at + 135].strip(b"\0 ") or b"0", 8)
        heads.append(at)
        at += 512 + (size + 511) // 512 * 512
    at = random.choice(heads)
    head = bytearray(data[at : at + 512])
    way = random.randrange(6)
    if way == 0:
        head[:100] = random.choice(WORDS)[:100].ljust(100, b"\0")
    elif way == 1:
        size = random.choice((-1, -512, 2**40, 2**62, -(2**62)))
        head[124:136] = b"\x80" + size.to_bytes(11, "big") if size >= 0 else (256**12 + size).to_bytes(12, "big")
    elif way == 2:
        head[156] = random.choice(b"0123567SLKxgX\xff")
    elif way == 3:
        head[random.randrange(345)] = random.randrange(256)
    else:
        return data[:at] + _extension(random) * random.choice((1, 2, 1000)) + data[at:]
    return data[:at] + _summed(head) + data[at + 512 :]


EXTENSIONS = (
    *(
        b"a" * 600,
        b"../x\0",
        b"\xff" * 20,
        b"14 size=-1024\n",
        b"18 path=../../x.y\n",
        b"99999999999 path=x\n",
        b"6 =x\n",
    ),
    *(b"30 GNU.sparse.map=0,1,2,3,4,5\n", b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"),
    *(b"27 size=9999999999999999\n", b"21 hdrcharset=BINARY\n"),
)


def _extension(random: Random) -> bytes:
    """A long name, or attributes, as their own member before the one that they belong to."""
    body = random.choice(EXTENSIONS)
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = random.choice((b"L", b"K", b"x", b"g")), len(body)
    return head.tobuf(tarfile.GNU_FORMAT) + body.ljust(-(-len(body) // 512) * 512, b"\0")


def _summed(head: bytearray) -> bytes:
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


# flags, method, checksum, packed size, unpacked size, length of the name: where they are in either header
ZIP_FIELDS = ((6, 8, "<H"), (8, 10, "<H"), (14, 16, "<I"), (18, 20, "<I"), (22, 24, "<I"), (26, 28, "<H"))


def zipped(data: bytes, random: Random) -> bytes:
    """The same field of a member becomes the same bad value in both of its headers."""
    local = [at.start() for at in re.finditer(rb"PK\x03\x04", data)]
    central = [at.start() for at in re.finditer(rb"PK\x01\x02", data)]
    which = random.randrange(min(len(local), len(central)))
    changed = bytearray(data)
    here, there, form = random.choice(ZIP_FIELDS)
    value = random.choice((0, 1, 8, 9, 12, 14, 93, 0x800, 0x801, 99, 255, 2**15, 2**31, 2**32 - 1))
    if random.random() < 0.4:  # the name itself, perhaps said to be UTF-8
        word = random.choice(WORDS)[:8]
        for at, length in ((local[which] + 30, len(word)), (central[which] + 46, len(word))):
            changed[at : at + length] = word
        for at in (local[which] + 7, central[which] + 9):
            changed[at] |= 8 * random.randrange(2)
        return bytes(changed)
    for at in (local[which] + here, central[which] + there):
        struct.pack_into(form, changed, at, value % 2 ** (8 * struct.calcsize(form)))
    return bytes(changed)


def safetensors(data: bytes, random: Random) -> bytes:
    """The JSON head is changed and its length made right."""
    size = struct.unpack("<Q", data[:8])[0]
    head = jsons(data[8 : 8 + size], random)
    return struct.pack("<Q", len(head)) + head + data[8 + size :]


OPERATIONS = b"(0.12FIJKLMNPRSTUVXabcdeghijloprstu}]q)" + bytes(range(0x80, 0x98))


GLOBALS = (b"cnumpy\nndarray\n", b"c_codecs\nencode\n", b"cos\nsystem\n")


def pickled(data: bytes, random: Random) -> bytes:
    """Operations of the pickle machine are put in, left out or put for others."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        at = _at(changed, random)
        piece = bytes(random.choices(OPERATIONS, k=random.choice((1, 1, 2, 3, 8))))
        piece += random.choice((b"", b"", b"\xff\xff\xff\x7f", b"\0\0\0\0", *GLOBALS))
        changed[at : at + random.choice((0, 0, len(piece)))] = piece
    return bytes(changed)

"""Every kind of image becomes the RGB that a viewer shows, and every kind of damage one line."""

import contextlib
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError

from adamatch.base.errors import InputError
from adamatch.images import decode
from adamatch.images.decode import kinds, read_image, short_side, square


def picture(width: int = 40, height: int = 30) -> np.ndarray:
    """A picture without symmetry: red grows to the right, green downwards, one blue corner."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[..., 0] = np.linspace(0, 255, width)
    rgb[..., 1] = np.linspace(0, 255, height)[:, None]
    rgb[: height // 3, : width // 4, 2] = 255
    return rgb


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(content: bytes) -> np.ndarray:
    image = read_image(content)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_rgb_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(picture()), kind)
    (tmp_path / "image").write_bytes(content)
    for source in (content, tmp_path / "image", str(tmp_path / "image")):
        assert np.array_equal(np.asarray(read_image(source)), picture())


def test_transparency_shows_white() -> None:
    rgb, alpha = picture(), np.linspace(0, 255, 40).astype(np.uint8)[None, :].repeat(30, 0)
    over_white = np.rint(rgb * (alpha[..., None] / 255) + 255 * (1 - alpha[..., None] / 255))
    got = pixels(encoded(Image.fromarray(np.dstack([rgb, alpha]))))
    assert np.abs(got - over_white).max() <= 1
    grey = Image.merge("LA", [Image.fromarray(rgb[..., 0]), Image.fromarray(alpha)])
    assert np.abs(pixels(encoded(grey))[..., 2] - over_white[..., 0]).max() <= 1


def test_grey_black_and_white_palettes_and_one_transparent_colour() -> None:
    grey = picture()[..., 0]
    assert np.array_equal(pixels(encoded(Image.fromarray(grey))), np.stack([grey] * 3, -1))
    bits = np.indices((8, 8)).sum(0) % 2 == 0
    assert np.array_equal(pixels(encoded(Image.fromarray(bits)))[..., 1], bits * np.uint8(255))
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    rgb = palette.convert("RGB")
    assert pixels(encoded(palette)).tolist() == [[[10, 20, 30], [200, 100, 50]]]
    for clear in (
        encoded(palette, transparency=0),
        encoded(palette, "GIF", transparency=0),
        encoded(rgb, transparency=(10, 20, 30)),
    ):
        assert pixels(clear).tolist() == [[[255, 255, 255], [200, 100, 50]]]


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk(kind: str) -> None:
    inks = {(0, 0, 0, 0): (255, 255, 255), (255, 0, 0, 0): (0, 255, 255), (0, 0, 0, 255): (0, 0, 0)}
    for cmyk, rgb in inks.items():
        got = pixels(encoded(Image.new("CMYK", (16, 16), cmyk), kind))
        assert np.abs(got.astype(int) - rgb).max() <= 3


@pytest.mark.parametrize(("kind", "order"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
def test_sixteen_bit_grey_keeps_its_brightness(kind: str, order: str) -> None:
    deep = np.linspace(0, 65535, 64).astype(order).reshape(8, 8)
    mode = "I;16B" if order == ">u2" else "I;16"
    image = Image.frombytes(mode, (8, 8), deep.tobytes())
    expected = np.rint(deep.astype(float) / 257)
    assert np.array_equal(pixels(encoded(image, kind))[..., 0], expected)
    dark = Image.frombytes("I;16", (8, 8), (deep.astype("<u2") // 16).tobytes())
    assert pixels(encoded(dark, kind)).max() == 16, "not stretched"


def test_sixteen_bit_pgm() -> None:
    deep = np.array([[0, 200, 65535 // 2, 65535]], ">u2")
    assert pixels(b"P5 4 1 65535\n" + deep.tobytes())[0, :, 0].tolist() == [0, 1, 127, 255]
    assert pixels(b"P5 4 1 65535\n" + (deep // 400).astype(">u2").tobytes()).max() == 1, "a dark one stays dark"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 255]], np.int32), [0, 255]),
        (np.array([[0, 65535]], np.int32), [0, 255]),
        (np.array([[-100, 0, 100]], np.int32), [0, 128, 255]),
        (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
        (np.array([[0, 100, 255]], np.float32), [0, 100, 255]),
        (np.array([[-3, 0, 5]], np.float32), [0, 96, 255]),
        (np.array([[7e6, 7e6]], np.float32), [0, 0]),
    ],
)
def test_thirty_two_bit_grey(values: np.ndarray, expected: list[int]) -> None:
    assert pixels(encoded(Image.fromarray(values), "TIFF"))[0, :, 0].tolist() == expected


TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_exif_orientation_is_undone(orientation: int, kind: str) -> None:
    stored = Image.fromarray(np.ascontiguousarray(TURNS[orientation](picture())))  # as a camera held sideways stores it
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(pixels(encoded(stored, kind, exif=exif)), picture())


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_does_not_lose_the_picture() -> None:
    good = encoded(Image.fromarray(picture()), "JPEG", quality=95)
    broken = encoded(Image.fromarray(picture()), "JPEG", quality=95, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00")
    assert np.array_equal(pixels(broken), pixels(good))


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_show_their_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (pixels(content) == (255, 0, 0)).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_truncated_files_are_named(kind: str, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(picture()), kind)
    file = tmp_path / f"cut.{kind.lower()}"
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=rf"cut\.{kind.lower()} is (truncated|corrupt)") as caught:
        read_image(file)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=60)
@given(st.floats(0, 0.999), st.integers(0, 7), st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF"]))
def test_a_flipped_bit_is_either_read_or_reported(position: float, bit: int, kind: str) -> None:
    content = bytearray(encoded(Image.fromarray(picture()), kind))
    content[int(position * len(content))] ^= 1 << bit
    with contextlib.suppress(InputError):  # anything else fails the test
        assert read_image(bytes(content)).mode == "RGB"


def test_empty_missing_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "notes.png").write_text("this is a text")
    for name, message in (
        ("empty.png", r"empty\.png is empty \(0 bytes\)"),
        ("notes.png", r"notes\.png is not an image"),
        ("gone.png", r"gone\.png does not exist"),
        ("", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            read_image(tmp_path / name)


def test_a_decompression_bomb_is_refused_before_it_unfolds() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    with pytest.raises(InputError, match=r"bomb\.png has more than 179 million pixels"):
        read_image(bomb, "bomb.png")


@settings(max_examples=40)
@given(
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    size=st.integers(1, 40),
    colour=st.tuples(*[st.integers(0, 255)] * 3),
)
def test_a_constant_image_stays_constant(width: int, height: int, size: int, colour: tuple[int, int, int]) -> None:
    small = square(Image.new("RGB", (width, height), colour), size)
    assert small.shape == (size, size, 3)
    assert small.dtype == np.uint8
    assert (small == colour).all()


@settings(max_examples=40)
@given(across=st.integers(1, 6), down=st.integers(1, 6), size=st.integers(2, 16), seed=st.integers(0, 99))
def test_whole_factors_average_blocks(across: int, down: int, size: int, seed: int) -> None:
    large = np.random.default_rng(seed).integers(0, 256, (down * size, across * size, 3), dtype=np.uint8)
    small = square(Image.fromarray(large), size)
    blocks = large.reshape(size, down, size, across, 3).mean((1, 3))
    assert np.abs(small - blocks).max() <= 1, "rounded once per axis"
    assert abs(small.mean() - large.mean()) < 1
    assert (across, down) != (1, 1) or np.array_equal(small, large)


def test_growing_is_bicubic_and_a_mixed_shape_does_both() -> None:
    small = Image.fromarray(picture(10, 10))
    assert np.array_equal(square(small, 25), np.asarray(small.resize((25, 25), Image.Resampling.BICUBIC)))
    wide = Image.fromarray(picture(60, 10))
    halves = picture(60, 10).reshape(10, 20, 3, 3).mean(2)
    expected = Image.fromarray(np.rint(halves).astype(np.uint8)).resize((20, 20), Image.Resampling.BICUBIC)
    assert np.abs(square(wide, 20).astype(int) - np.asarray(expected)).max() <= 2


def test_postscript_is_no_image_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would hand it to Ghostscript."""
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *given, **_: pytest.fail("it was run"))
    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(harmed) =\n")
    with pytest.raises(InputError, match=r"a\.jpg is not an image of a kind that is read here \(JPEG, PNG, "):
        read_image(tmp_path / "a.jpg")
    with pytest.raises(UnidentifiedImageError):
        short_side(tmp_path / "a.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "TGA", "MPO"])
def test_formats_of_the_list_are_read(kind: str) -> None:
    assert pixels(encoded(Image.fromarray(picture()), kind)).shape == picture().shape
    assert kind in (*kinds(), "MPO")  # several JPEG images in one


@pytest.mark.parametrize("kind", ["EPS", "ICO", "PCX"])
def test_others_are_not(kind: str) -> None:
    image = Image.fromarray(picture(64, 64))
    with pytest.raises(InputError, match="is not an image of a kind"):
        read_image(encoded(image, kind))


def test_the_checksum_of_a_pngs_pixels_is_compared() -> None:
    """Pillow does not, when it loads them."""
    content = bytearray(encoded(Image.fromarray(picture())))
    at = content.index(b"IDAT")
    size = struct.unpack(">I", content[at - 4 : at])[0]
    content[at + 4 + size] ^= 1
    with pytest.raises(InputError, match=r"corrupt .*checksum in b'IDAT'"):
        read_image(bytes(content))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "I", "F"])
def test_bands_leave_no_seam(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large images are converted a band at a time; the bands of a small one, cut as thin, give the same picture."""
    grey = Image.fromarray(picture(40, 30)[..., 0])
    image = Image.fromarray(np.asarray(grey).astype(np.uint16) * 250) if mode == "I;16" else grey.convert(mode)
    if mode == "RGBA":
        image.putalpha(Image.fromarray(picture(40, 30)[..., 1]))
    if mode == "P":
        image.info["transparency"] = 7
    whole = np.asarray(decode.to_rgb(image))
    monkeypatch.setattr(decode, "BAND", 100)
    assert np.array_equal(np.asarray(decode.to_rgb(image)), whole)


def test_values_that_are_not_finite_in_any_band(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BAND", 100)
    values = picture(40, 30)[..., 0].astype(np.float32)
    values[29, 39] = np.nan
    with pytest.raises(InputError, match="not finite"):
        read_image(encoded(Image.fromarray(values), "TIFF"))

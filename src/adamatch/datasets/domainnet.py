"""DomainNet as published: a zip per domain, and two lists `<domain>_{train,test}.txt` of `domain/class/file label`."""

from functools import cache, partial
from pathlib import Path

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.datasets import source


def read(found: source.Found, domain: str) -> source.Splits:
    """The splits whose lists are there; images from the zip, or from the folder that it unpacks to."""
    archive = found.file(f"{domain}.zip", near="domainnet")
    lists = {split: found.file(f"{domain}_{split}.txt") for split in ("train", "test")}
    return {split: partial(_split, found, domain, archive, path) for split, path in lists.items() if path}


def _split(found: source.Found, domain: str, archive: Path | None, listing: Path) -> source.Split:
    names, numbers = source.parse_list(read_file(listing), str(listing))
    if not names:
        raise InputError(f"{listing} is empty: fetch it again")
    place = archive or next((f.parent for f in found.folders.get(domain, []) if (f.parent / names[0]).is_file()), None)
    if place is None:
        raise InputError(f"{listing} is there, but neither {domain}.zip nor the folder {domain}: fetch {domain}.zip")
    return source.from_names(place, names, numbers, class_names(found), listing)


@cache
def class_names(found: source.Found) -> tuple[str, ...]:
    """Class names out of all the lists together: one alone may lack a class (painting_train and painting_test do)."""
    seen: dict[int, str] = {}
    for name in (f"{domain}_{split}.txt" for domain in _COUNTS for split in ("train", "test")):
        if listing := found.file(name):
            for image, label in zip(*source.parse_list(read_file(listing), str(listing)), strict=True):
                folder = image.split("/")[-2] if "/" in image else ""
                if seen.setdefault(label, folder) != folder:
                    raise InputError(
                        f"{listing}: class {label} is {folder!r} here and {seen[label]!r} elsewhere: fetch it again"
                    )
    return tuple(seen.get(label, f"class {label}") for label in range(max(seen, default=-1) + 1))


_COUNTS = {
    "clipart": {"train": 33525, "test": 14604},
    "infograph": {"train": 36023, "test": 15582},
    "painting": {"train": 50416, "test": 21850},
    "quickdraw": {"train": 120750, "test": 51750},
    "real": {"train": 120906, "test": 52041},
    "sketch": {"train": 48212, "test": 20916},
}
_FILES = (
    ("clipart.zip", 1270909081, "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d"),
    ("clipart_train.txt", 1443819, "affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312"),
    ("clipart_test.txt", 628917, "62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b"),
    ("infograph.zip", 4338659804, "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa"),
    ("infograph_train.txt", 1683098, "36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda"),
    ("infograph_test.txt", 728028, "413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136"),
    ("painting.zip", 3679366174, "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015"),
    ("painting_train.txt", 2241901, "f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b"),
    ("painting_test.txt", 971888, "11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97"),
    ("quickdraw.zip", 459920701, "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84"),
    ("quickdraw_train.txt", 5164600, "3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f"),
    ("quickdraw_test.txt", 2213400, "2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf"),
    ("real.zip", 6062039589, "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63"),
    ("real_train.txt", 4440944, "19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289"),
    ("real_test.txt", 1911327, "2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c"),
    ("sketch.zip", 2633992926, "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc"),
    ("sketch_train.txt", 1960222, "72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f"),
    ("sketch_test.txt", 850581, "3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840"),
)


def _domain(name: str) -> source.Domain:
    hosts = ("http://csr.bu.edu/ftp/visda/2019/multi-source", "https://csr.bu.edu/ftp/visda/2019/multi-source")
    folders = {"txt": "/domainnet/txt", "zip": "/groundtruth" if name in ("clipart", "painting") else ""}
    mine = (facts for facts in _FILES if facts[0].startswith(name))
    files = [source.files_at([host + folders[facts[0][-3:]] for host in hosts], facts)[0] for facts in mine]
    page = "http://ai.bu.edu/DomainNet/ (cleaned version)"
    return source.Domain(tuple(files), _COUNTS[name], page, "non-profit research")


DOMAIN_NET = source.DataSet(
    {name: _domain(name) for name in _COUNTS},
    read,
    (64, 32, 128, 224),
    {f"domainnet{size}": size for size in (32, 64, 128, 224)},
)

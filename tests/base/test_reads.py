"""Files are opened for reading in one place, which takes regular files of a bounded size alone; and so are URLs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import adamatch

PACKAGE = Path(adamatch.__file__).parent
HERE = {"base/regular_files.py"}
READS = {"read_text", "read_bytes", "load_file", "safe_open", "memmap", "fromfile", "genfromtxt", "read_csv", "imread"}
CALLS = {"np.load", "torch.load", "np.loadtxt"}
WRITES = {"w", "wb", "a", "ab", "x", "xb", "r+b"}
# Stores; files that are open already; a folder; /proc; a lock; what is written to and read.
PERMITTED = {"Store.open", "cls.open", "webbrowser.open", "self.open", "member.open"}
PERMITTED |= {"archive.open", "tarfile.open"}
IN = {
    "ask/answers.py": {"os.open"},  # written to, never through a link
    "ask/server.py": {"(files('adamatch.ask') / 'page' / name).read_bytes"},  # the package's own
    "base/files.py": {"os.open"},
    "base/system.py": {"(PROC / name).read_text", "(group / f'memory.{name}').read_text"},
    "base/locks.py": {"path.open"},
    "base/urls.py": {"_opener().open"},
    "datasets/download.py": {"part.open", "urllib.request.urlopen"},  # the catalog's archives
    "datasets/numeric.py": {"np.loadtxt"},
    "grid/cost.py": {"(Path(__file__).parent / 'cost.toml').read_text"},  # the package's own
    "images/decode.py": {"Image.open"},
    "networks/weights.py": {"torch.load"},
}
IN["base/system.py"].add("(group / 'memory.stat').read_text")


FETCHES = {"urlopen", "urlretrieve", "build_opener", "HTTPConnection", "HTTPSConnection"}


def reads(tree: ast.AST) -> Iterator[str]:
    """Calls that read a file by its name, or fetch one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            writes = WRITES & {str(each.value) for each in given if isinstance(each, ast.Constant)}
            if (
                called in CALLS
                or called.split(".")[-1] in READS | FETCHES
                or (called.split(".")[-1] == "open" and not writes)
            ):
                yield called


def test_nothing_else_opens_a_file() -> None:
    found = []
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        permitted = PERMITTED | IN.get(name, set())
        if name not in HERE:
            found += [f"{name}: {call}" for call in reads(ast.parse(file.read_text())) if call not in permitted]
    assert not found, "\n".join(sorted(found))


def test_such_calls_are_seen() -> None:
    calls = ("open(p)", "p.open()", "p.open('rb')", "p.read_text()", "np.load(p)", "torch.load(p)", "load_file(p)")
    fetches = ("urlopen(u)", "urllib.request.urlopen(u, timeout=3)", "http.client.HTTPSConnection(h)")
    for call in (*calls, *fetches, "open(p, mode='r')", "x.y.read_bytes()", "os.open(p, 0)", "Image.open(p)"):
        assert list(reads(ast.parse(call))), call
    assert not list(reads(ast.parse("p.open('w'); open(p, 'ab'); opened(p); read_file(p)")))


from adamatch.images import reading
from adamatch.images.listing import Wanted, list_files
from adamatch.images.reading import median_side
from adamatch.images.arrays import from_arrays
from adamatch.images import items

def read(source, *, size=None, leave=False, workers=None, cache=None, **k):
    if hasattr(source, "shape") or (isinstance(source, tuple)): size = size or from_arrays(source[0] if isinstance(source, tuple) else source).size
    return reading.read(source, size=size or median_side(source) or 6, drop_unknown=leave, **k)
read_folder = read
def list_csv(file, **k):
    if "leave" in k: k["drop_unknown"] = k.pop("leave")
    return list_files(file, Wanted(**k))
list_images = list_csv
def from_dataset(d, size=6, **k):
    return items.from_dataset(d, size=size, **k)

"""What `cargo xtask models` leaves to Python: archives, inputs, and ONNX Runtime as the judge.

    judge.py unpack ARCHIVE FILE MODEL      takes a model out of a package; says its hash and licence
    judge.py inputs FOLDER NAME=RECIPE...   writes FOLDER/inputs.npz
    judge.py expect FOLDER                  runs FOLDER/model.onnx as it is; writes FOLDER/expected.npz
    judge.py compare FOLDER BACKEND         compares FOLDER/BACKEND.npz with what was expected

Every command prints one line of JSON. A recipe is KIND TYPE DIMS ARGUMENT...; see `RECIPES`.
"""

import email
import email.policy
import gzip
import hashlib
import json
import os
import sys
import tarfile
import zipfile

import numpy as np
import onnxruntime as ort

TYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "bool": np.bool_}

# Where no tolerance is derived, a result may differ by this many times what one rounding of the inputs
# and another order of the sums change.
ROUNDINGS = 16.0

# Rows of five bits, the uppermost first.
LETTERS = {
    "T": (31, 4, 4, 4, 4, 4, 4),
    "H": (17, 17, 17, 31, 17, 17, 17),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "L": (16, 16, 16, 16, 16, 16, 31),
    " ": (0, 0, 0, 0, 0, 0, 0),
}


class Archive:
    """A wheel, or what npm packs."""

    def __init__(self, path):
        self.wheel = path.endswith(".whl")
        self.file = zipfile.ZipFile(path) if self.wheel else tarfile.open(path)
        self.names = self.file.namelist() if self.wheel else self.file.getnames()

    def read(self, name):
        if self.wheel:
            return self.file.read(name)
        return self.file.extractfile(name).read()

    def licence(self):
        if not self.wheel:
            found = json.loads(self.read("package/package.json")).get("license", "not stated")
            found = found if isinstance(found, str) else found.get("type", "not stated")
            beside = found.removeprefix("SEE LICENSE IN ")
            if beside == found:
                return found
            lines = self.read(f"package/{beside}").decode().splitlines()
            return next(line.strip("# ") for line in lines if line.strip())
        (name,) = [n for n in self.names if n.endswith(".dist-info/METADATA") and n.count("/") == 1]
        fields = email.message_from_bytes(self.read(name), policy=email.policy.default)
        classes = [c.split(" :: ")[-1] for c in fields.get_all("Classifier", []) if c.startswith("License")]
        long = (fields.get("License") or "").strip().splitlines()
        for found in [fields.get("License-Expression"), *classes, *long[:1]]:
            if found and found != "UNKNOWN":
                return found
        return "not stated"


def unpack(archive, file, model):
    """`FILE#KEY` is a resource that a list of chunks holds; `.gz` is unpacked; weights beside the model
    come along."""
    archive = Archive(archive)
    name, _, key = file.partition("#")
    data = archive.read(name)
    if key:
        folder = os.path.dirname(name)
        chunks = json.loads(data)[key]["chunks"]
        data = b"".join(archive.read(f"{folder}/{chunk['hash']}") for chunk in chunks)
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    hashed = hashlib.sha256(data)
    os.makedirs(os.path.dirname(model), exist_ok=True)
    with open(model, "wb") as out:
        out.write(data)
    beside = name + ".data"
    if beside in archive.names:
        weights = archive.read(beside)
        hashed.update(weights)
        with open(os.path.join(os.path.dirname(model), os.path.basename(beside)), "wb") as out:
            out.write(weights)
    return {"sha256": hashed.hexdigest(), "licence": archive.licence(), "bytes": len(data)}


def picture(draw, dims, low=0.0, high=1.0):
    """Shaded areas, edges and two lines of writing, from LOW to HIGH; channels stand first or last."""
    last = dims[-1] in (1, 3)
    count, height, width = (dims[-1], *dims[-3:-1]) if last else dims[-3:]
    y, x = np.mgrid[0:height, 0:width] / np.array([height, width]).reshape(2, 1, 1)
    channels = []
    for c in range(count):
        p = 0.55 + 0.25 * np.sin(3 * x + c) * np.cos(2 * y)
        p[(x - 0.3) ** 2 + (y - 0.4) ** 2 < 0.04] = 0.8 - 0.15 * c
        p[(abs(x - 0.7) < 0.12) & (abs(y - 0.6) < 0.25)] = 0.2 + 0.1 * c
        channels.append(p)
    stack = np.stack(channels)
    size = max(1, height // 80)
    for k, letter in enumerate("THE HOLE TO HELL HEEL " * 2):
        top, left = height // 2 + (height // 6) * (k // 22), width // 12 + (6 * size) * (k % 22)
        for row, bits in enumerate(LETTERS[letter]):
            for column in range(5):
                if bits >> (4 - column) & 1:
                    y0, x0 = top + row * size, left + column * size
                    stack[:, y0 : y0 + size, x0 : x0 + size] = 0.05
    stack = np.clip(stack + 0.02 * draw.standard_normal(stack.shape), 0, 1)
    stack = stack.transpose(1, 2, 0) if last else stack
    return np.broadcast_to(low + (high - low) * stack, dims)


def speech(draw, dims, loudest=0.3, rate=16000):
    """Syllables of a voice of 120 Hz with three formants, and breath between them."""
    n = int(np.prod(dims))
    t = np.arange(n) / rate
    pitch = 120 * (1 + 0.08 * np.sin(2 * np.pi * 1.3 * t))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    wave = np.zeros(n)
    for k in range(1, 30):
        hertz = 120 * k
        gain = sum(g / (1 + ((hertz - f) / 120) ** 2) for f, g in ((600, 1.0), (1400, 0.6), (2600, 0.3)))
        wave += gain * np.sin(k * phase)
    wave *= np.clip(np.sin(2 * np.pi * 3.5 * t + 0.9), 0, 1) ** 0.7
    wave += 0.01 * draw.standard_normal(n)
    return (loudest * wave / np.abs(wave).max()).reshape(dims)


def features(draw, dims, mean=0.0, spread=1.0):
    """Numbers that change slowly along the last two dims, as spectra do."""
    x = draw.standard_normal(dims)
    for axis in range(max(0, len(dims) - 2), len(dims)):
        for i in range(1, dims[axis]):
            now, before = [slice(None)] * len(dims), [slice(None)] * len(dims)
            now[axis], before[axis] = i, i - 1
            x[tuple(now)] = 0.8 * x[tuple(before)] + 0.6 * x[tuple(now)]
    return mean + spread * x


def tokens(draw, dims, low, high):
    """Numbers of words from LOW to HIGH, frequent ones more often than others."""
    return np.floor(low + (high - low + 1) * draw.random(dims) ** 2)


def mask(_, dims, *lengths):
    """Ones as far as each row's length, then zeros."""
    place = np.arange(dims[-1])
    return np.stack([place < n for n in lengths]).reshape(dims)


def fill(_, dims, value):
    return np.full(dims, value)


def listed(_, dims, *values):
    return np.array(values).reshape(dims)


def script(_, dims):
    """The first and the last bytes of this file."""
    with open(__file__, "rb") as file:
        data = file.read()
    half = dims[-1] // 2
    return np.frombuffer(data[:half] + data[-half:], np.uint8).reshape(dims)


def distances(draw, dims):
    """Steps between the atoms of a chain with branches."""
    n = dims[-1]
    place = np.arange(n) + draw.integers(0, 2, n)
    return np.minimum(np.abs(place[:, None] - place[None, :]), 9).reshape(dims)


RECIPES = {f.__name__: f for f in (picture, speech, features, tokens, mask, fill, listed, script, distances)}


def make(folder, recipe, draw):
    kind, first, *rest = recipe.split()
    if kind == "from":
        path = os.path.join(os.path.dirname(folder), first, "expected.npz")
        return np.load(path)[rest[0]]
    dims = [] if rest[0] == "-" else [int(d) for d in rest[0].split("x")]
    return np.array(RECIPES[kind](draw, dims, *map(float, rest[1:]))).astype(TYPES[first])


def inputs(folder, *recipes):
    draw = np.random.default_rng(0)
    made = {}
    for entry in recipes:
        name, _, recipe = entry.rpartition("=")
        made[name] = make(folder, recipe, draw)
    np.savez(os.path.join(folder, "inputs.npz"), **made)
    return {"shapes": {n: "x".join(map(str, a.shape)) for n, a in made.items()}}


def tensors(named):
    """The results that are tensors."""
    return {n: a for n, a in named if isinstance(a, np.ndarray)}


def session(folder, plain=False):
    options = ort.SessionOptions()
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])


def expect(folder):
    runtime = session(folder)
    given = dict(np.load(f"{folder}/inputs.npz"))
    names = [o.name for o in runtime.get_outputs()]
    results = runtime.run(None, given)
    rounded = {n: np.nextafter(a, np.inf) if a.dtype.kind == "f" else a for n, a in given.items()}
    again = tensors(zip(names, session(folder, plain=True).run(None, rounded)))
    found = tensors(zip(names, results))
    np.savez(f"{folder}/expected.npz", **found)
    np.savez(f"{folder}/rounded.npz", **again)
    other = [n for n in names if n not in found]
    dull = [n for n, a in found.items() if a.size > 1 and np.ptp(a.astype(np.float64)) == 0]
    return {"outputs": {n: list(a.shape) for n, a in found.items()}, "no_tensors": other, "constant": dull}


def norm(a):
    return float(np.sqrt(np.sum(np.square(a))))


def compare(folder, backend):
    """`allowed.json` holds the derived tolerances by output, where there are any."""
    expected, got = np.load(f"{folder}/expected.npz"), np.load(f"{folder}/{backend}.npz")
    rounded = np.load(f"{folder}/rounded.npz")
    derived = {}
    if os.path.exists(f"{folder}/allowed.json"):
        with open(f"{folder}/allowed.json") as file:
            rows = json.load(file)["outputs"]
            # What is not finite is written as null.
            derived = {row["output"]: row for row in rows if row["allowed_max_abs"] is not None}
    faults, worst = [], 0.0
    for name in expected.files:
        if name not in got.files:
            faults.append(f"`{name}` is missing")
            continue
        a, b = expected[name], got[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            faults.append(f"`{name}` is {b.dtype}{list(b.shape)}, expected {a.dtype}{list(a.shape)}")
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0.0, np.abs(a - b))
        largest, relative = float(error.max(initial=0)), norm(error) / max(norm(a), 1e-300)
        row = derived.get(name)
        if row is None:
            c = rounded[name].astype(np.float64)
            moved = np.abs(a - c) if c.shape == a.shape else np.full(a.shape, np.inf)
            row = {
                "allowed_max_abs": ROUNDINGS * float(moved.max(initial=0)),
                "allowed_relative_l2": ROUNDINGS * norm(moved) / max(norm(a), 1e-300),
            }
        worst = max(worst, relative)
        if not largest <= row["allowed_max_abs"] or not relative <= row["allowed_relative_l2"]:
            faults.append(
                f"`{name}` differs by {largest:.3g} (allowed {row['allowed_max_abs']:.3g}), relative "
                f"{relative:.3g} (allowed {row['allowed_relative_l2']:.3g})"
            )
    return {"right": not faults, "faults": faults, "relative": worst}


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    print(json.dumps({"unpack": unpack, "inputs": inputs, "expect": expect, "compare": compare}[verb](*rest)))

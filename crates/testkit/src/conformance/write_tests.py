"""Writes the backend tests of the installed `onnx` package into the folder given as argument.

`node/` holds a model for each operator and way to use it, `simple/` small models, `light/` known networks
whose weights are all alike. Beside a model lie variants in which all operands but the first
(`constants.onnx`), and all of them (`all_constants.onnx`), are initializers: for operators whose operands
decide a shape.
"""

import os
import shutil
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases as collect_models
from onnx.backend.test.case.node import collect_testcases as collect_nodes


def store(path, kind, value, name):
    """Writes `PATH.pb`, or `PATH.seq.pb` for a list and `PATH.opt.pb` for an optional value."""
    if isinstance(value, onnx.TensorProto):
        proto, mark = value, ""
    elif kind == "tensor_type":
        proto, mark = numpy_helper.from_array(value, name), ""
    elif kind == "sequence_type":
        proto, mark = numpy_helper.from_list(value, name), ".seq"
    elif kind == "optional_type":
        proto, mark = numpy_helper.from_optional(value, name), ".opt"
    else:
        return
    with open(f"{path}{mark}.pb", "wb") as file:
        file.write(proto.SerializeToString())


def variant(model, inputs, kept):
    """The model with its inputs from `kept` on as initializers."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    for info, value in list(zip(model.graph.input, inputs))[kept:]:
        if info.type.WhichOneof("value") != "tensor_type":
            return None
        if not isinstance(value, onnx.TensorProto):
            value = numpy_helper.from_array(value, info.name)
        twin.graph.initializer.add().CopyFrom(value)
        twin.graph.initializer[-1].name = info.name
    del twin.graph.input[kept:]
    return twin


def make(folder, case):
    """The folder of a case, with its tolerance in it."""
    here = os.path.join(folder, case.name)
    os.makedirs(here)
    with open(os.path.join(here, "tolerance.txt"), "w") as file:
        file.write(f"{case.rtol} {case.atol}")
    return here


def write(folder, case):
    """A case that holds its model and data."""
    here = make(folder, case)
    with open(os.path.join(here, "model.onnx"), "wb") as file:
        file.write(case.model.SerializeToString())
    for name, kept in (("constants.onnx", 1), ("all_constants.onnx", 0)):
        twin = variant(case.model, case.data_sets[0][0], kept) if len(case.data_sets) == 1 else None
        if twin is not None:
            with open(os.path.join(here, name), "wb") as file:
                file.write(twin.SerializeToString())
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = os.path.join(here, f"test_data_set_{i}")
        os.makedirs(data)
        for prefix, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for j, value in enumerate(values):
                kind = infos[j].type.WhichOneof("value")
                store(os.path.join(data, f"{prefix}_{j}"), kind, value, infos[j].name)


def write_light(folder, case):
    """A known network: its file and results lie in the package, and its input rises from 0 to 1."""
    here = make(folder, case)
    path = os.path.join(os.path.dirname(onnx.__file__), os.path.relpath(case.url, "onnx"))
    shutil.copy(path, os.path.join(here, "model.onnx"))
    data = os.path.join(here, "test_data_set_0")
    os.makedirs(data)
    model = onnx.load(path)
    initialised = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in initialised]
    for i, info in enumerate(inputs):
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        count = int(np.prod(dims))
        value = (np.arange(count).reshape(dims) / count).astype(np.float32)
        store(os.path.join(data, f"input_{i}"), "tensor_type", value, info.name)
    for i in range(len(model.graph.output)):
        shutil.copy(f"{path[: -len('.onnx')]}_output_{i}.pb", os.path.join(data, f"output_{i}.pb"))


def main(folder):
    for case in collect_nodes(None):
        write(os.path.join(folder, "node"), case)
    for case in collect_models():
        if case.url is None:
            write(os.path.join(folder, "simple"), case)
        else:
            write_light(os.path.join(folder, "light"), case)


main(sys.argv[1])

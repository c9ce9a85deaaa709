"""Writes the node tests of the installed `onnx` package into the folder given as argument.

Beside each model lie variants in which all operands but the first (`constants.onnx`), and all of
them (`all_constants.onnx`), are initializers: for operators whose operands decide a shape.
"""

import os
import sys

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


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


def main(folder):
    for case in collect_testcases(None):
        here = os.path.join(folder, case.name)
        os.makedirs(here, exist_ok=True)
        with open(os.path.join(here, "model.onnx"), "wb") as file:
            file.write(case.model.SerializeToString())
        with open(os.path.join(here, "tolerance.txt"), "w") as file:
            file.write(f"{case.rtol} {case.atol}")
        for name, kept in (("constants.onnx", 1), ("all_constants.onnx", 0)):
            twin = variant(case.model, case.data_sets[0][0], kept) if len(case.data_sets) == 1 else None
            if twin is not None:
                with open(os.path.join(here, name), "wb") as file:
                    file.write(twin.SerializeToString())
        for i, (inputs, outputs) in enumerate(case.data_sets):
            data = os.path.join(here, f"test_data_set_{i}")
            os.makedirs(data, exist_ok=True)
            for prefix, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for j, value in enumerate(values):
                    kind = infos[j].type.WhichOneof("value")
                    store(os.path.join(data, f"{prefix}_{j}"), kind, value, infos[j].name)


main(sys.argv[1])

"""Writes the node tests of the installed `onnx` package into the folder given as argument."""

import os
import sys

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def store(path, kind, value, name):
    if isinstance(value, onnx.TensorProto):
        proto = value
    elif kind == "tensor_type":
        proto = numpy_helper.from_array(value, name)
    else:
        return
    with open(path, "wb") as file:
        file.write(proto.SerializeToString())


def main(folder):
    for case in collect_testcases(None):
        here = os.path.join(folder, case.name)
        os.makedirs(here, exist_ok=True)
        with open(os.path.join(here, "model.onnx"), "wb") as file:
            file.write(case.model.SerializeToString())
        for i, (inputs, outputs) in enumerate(case.data_sets):
            data = os.path.join(here, f"test_data_set_{i}")
            os.makedirs(data, exist_ok=True)
            for prefix, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for j, value in enumerate(values):
                    kind = infos[j].type.WhichOneof("value")
                    store(os.path.join(data, f"{prefix}_{j}.pb"), kind, value, infos[j].name)


main(sys.argv[1])

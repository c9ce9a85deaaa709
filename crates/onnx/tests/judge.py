"""Runs every case in a folder with onnxruntime and compares with the results that lie beside it.

A case is a folder with `model.onnx`, `input_I.pb` and `output_I.pb`, and perhaps the same model
without its large constants, `structure.onnx`, and these as `weight_I.pb`. Prints one line per case.
"""

import os
import sys

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def tensors(folder, prefix, infos):
    values = []
    for i in range(len(infos)):
        with open(os.path.join(folder, f"{prefix}_{i}.pb"), "rb") as file:
            values.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return values


def differs(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} is not {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return None if np.array_equal(got, want) else f"{got.tolist()} is not {want.tolist()}"
    epsilon = max(np.finfo(want.dtype).eps, 2.0**-23)
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = want[np.isfinite(want)]
    # Both sides round in the type of the result, in different orders.
    steps = 256 if epsilon < 1e-4 else 8
    bound = steps * epsilon * (np.abs(finite).max() if finite.size else 0.0)
    if want.size and np.allclose(got, want, rtol=0, atol=bound, equal_nan=True):
        return None
    return None if not want.size else f"error {np.nanmax(np.abs(got - want))} above {bound}"


# Element types that the runtime takes from nobody and gives to nobody in Python.
NARROW = {
    getattr(onnx.TensorProto, name)
    for name in (
        "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT4E2M1 INT4 UINT4 INT2 UINT2"
    ).split()
}


def plain(array):
    """The array, with elements of types that numpy lacks as `float32`."""
    narrow = array.dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2"))
    return array.astype(np.float32) if narrow else array


def widened(model):
    """The model with conversions behind its inputs and before its outputs: `float` holds all of NARROW."""
    graph = model.graph
    before, after = [], []
    for ports, casts in ((graph.input, before), (graph.output, after)):
        for port in ports:
            ty = port.type.tensor_type
            if ty.elem_type not in NARROW:
                continue
            inner = port.name + "/narrow"
            for node in graph.node:
                for names in (node.input, node.output):
                    for i, name in enumerate(names):
                        if name == port.name:
                            names[i] = inner
            if casts is before:
                # What is infinite stays so.
                wrap = {"saturate": 0} if ty.elem_type < onnx.TensorProto.UINT4 else {}
                casts.append(onnx.helper.make_node("Cast", [port.name], [inner], to=ty.elem_type, **wrap))
            else:
                casts.append(onnx.helper.make_node("Cast", [inner], [port.name], to=onnx.TensorProto.FLOAT))
            ty.elem_type = onnx.TensorProto.FLOAT
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return model if before or after else None


def give_weights(folder, options):
    names, values = [], []
    while os.path.exists(path := os.path.join(folder, f"weight_{len(names)}.pb")):
        with open(path, "rb") as file:
            proto = onnx.TensorProto.FromString(file.read())
        names.append(proto.name)
        values.append(onnxruntime.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(proto)))
    options.add_external_initializers(names, values)
    return values


def run(folder, file="model.onnx"):
    path = os.path.join(folder, file)
    options = onnxruntime.SessionOptions()
    if file == "model.onnx":
        onnx.checker.check_model(path, full_check=True)
        if os.path.exists(os.path.join(folder, "structure.onnx")):
            outcome = run(folder, "structure.onnx")
            if outcome != "passed":
                return outcome
    else:
        kept = give_weights(folder, options)
    model = widened(onnx.load(path)) if file == "model.onnx" else None
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        source = path if model is None else model.SerializeToString()
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error) or "is under development" in str(error):
            return "absent"
        raise
    if any("bfloat16" in i.type for i in session.get_inputs() + session.get_outputs()):
        return "absent"
    names = [i.name for i in session.get_inputs()]
    given = map(plain, tensors(folder, "input", names))
    got = session.run(None, dict(zip(names, given)))
    for g, w in zip(got, tensors(folder, "output", got)):
        why = differs(np.asarray(g), plain(w))
        if why:
            return f"FAILED {why}"
    return "passed"


for name in sorted(os.listdir(sys.argv[1])):
    try:
        print(name, run(os.path.join(sys.argv[1], name)))
    except Exception as error:
        print(name, "FAILED", str(error).replace("\n", " ")[:300])

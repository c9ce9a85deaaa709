"""Writes models drawn by NNSmith as tests of the kind that `conformance` reads.

    write_models.py FOLDER COUNT SEED

A model whose results PyTorch and ONNX Runtime, without its optimisations, do not agree on is left out: it
judges nobody. So is one whose results a rounding of its inputs changes. Prints one line of JSON that counts what was left out, by reason.
"""

import collections
import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402
from nnsmith.backends.factory import BackendFactory  # noqa: E402
from nnsmith.graph_gen import model_gen  # noqa: E402
from nnsmith.materialize import Model  # noqa: E402
from nnsmith.narrow_spec import auto_opset  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

# Nodes of a graph, at most; elements of a tensor; what a solver may take.
NODES, ELEMENTS, SOLVER_MS = 12, 4096, 5000
# What both judges must agree on, and what an engine must meet beside rounding.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
# Inputs that differ by roundings.
DRAWS = 4


def draw(kind, opset, seed):
    """A model, its inputs and PyTorch's outputs."""
    generator = model_gen(
        opset=opset,
        method="symbolic-cinit",
        seed=seed,
        max_elem_per_tensor=ELEMENTS,
        max_nodes=NODES,
        timeout_ms=SOLVER_MS,
    )
    model = kind.from_gir(generator.make_concrete())
    model.refine_weights()
    oracle = model.make_oracle()
    return model.native_model, oracle.input, oracle.output


def by_runtime(proto, inputs):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run([o.name for o in proto.graph.output], inputs)


def what_onnx_leaves_open(proto, inputs):
    """What in a model ONNX does not define the result of, if there is anything."""
    casts, resized = {}, []
    for node in proto.graph.node:
        if node.op_type == "Cast":
            to = helper.tensor_dtype_to_np_dtype(next(a.i for a in node.attribute if a.name == "to"))
            if to.kind in "iu":
                casts[node.input[0]] = np.iinfo(to)
        if node.op_type == "Resize":
            resized.append(node.input[0])
    values = contents(proto, inputs, [*casts, *resized])
    for name, limits in casts.items():
        value = values[name]
        if value.dtype.kind == "f" and not np.all((value >= limits.min) & (value <= limits.max)):
            return "a number becomes an integer that cannot hold it"
    for name in resized:
        if values[name].dtype.kind == "f" and not np.all(np.isfinite(values[name])):
            return "what is no finite number is interpolated, and has the weight 0 or next to it"
    return None


def contents(proto, inputs, names):
    """The values of these names, each once."""
    names = list(dict.fromkeys(names))
    if not names:
        return {}
    known = {name: np.asarray(inputs[name]) for name in names if name in inputs}
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    del twin.graph.output[:]
    computed = [name for name in names if name not in known]
    twin.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in computed)
    return {**known, **(dict(zip(computed, by_runtime(twin, inputs))) if computed else {})}


def rounding_decides(proto, inputs, outputs):
    """Whether inputs that differ by roundings alone give other results."""
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        near = {name: rounded(np.asarray(value), rng) for name, value in inputs.items()}
        found = zip(outputs, by_runtime(proto, near))
        if not all(agree(outputs[name], value) for name, value in found):
            return True
    return False


def rounded(value, rng):
    if value.dtype.kind != "f":
        return value
    error = rng.normal(size=value.shape) * np.finfo(value.dtype).eps
    return np.asarray(value * (1 + error), dtype=value.dtype)


def agree(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))


def store(folder, proto, inputs, outputs):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    onnx.save(proto, os.path.join(folder, "model.onnx"))
    with open(os.path.join(folder, "tolerance.txt"), "w") as file:
        file.write(f"{RELATIVE} {ABSOLUTE}")
    for kind, ports, values in [
        ("input", proto.graph.input, inputs),
        ("output", proto.graph.output, outputs),
    ]:
        for i, port in enumerate(ports):
            tensor = numpy_helper.from_array(np.asarray(values[port.name]), port.name)
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(tensor.SerializeToString())


def main():
    folder, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    opset = auto_opset(kind, BackendFactory.init("onnxruntime", target="cpu", optmax=False))
    left = collections.Counter()
    for at in range(seed, seed + count):
        try:
            proto, inputs, expected = draw(kind, opset, at)
        except Exception as error:  # the generator's own faults
            left[f"not drawn: {type(error).__name__}"] += 1
            continue
        names = [o.name for o in proto.graph.output]
        try:
            outputs = dict(zip(names, by_runtime(proto, inputs)))
            if open_point := what_onnx_leaves_open(proto, inputs):
                left[open_point] += 1
                continue
            if rounding_decides(proto, inputs, outputs):
                left["a rounding of the inputs changes the results"] += 1
                continue
        except Exception as error:
            left[f"ONNX Runtime: {str(error).split(':')[0]}"] += 1
            continue
        if not all(agree(expected[n], outputs[n]) for n in names):
            left["the judges differ"] += 1
            continue
        store(os.path.join(folder, "generated", str(at)), proto, inputs, outputs)
    print(json.dumps(left))


main()

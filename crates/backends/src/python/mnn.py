"""MNN: converted by the package's own converter, in single precision, weights rearranged ahead."""


def convert(model, folder):
    # The converter itself; the package's command-line tools around it report their use.
    import _tools

    to = os.path.join(folder, "model.mnn")
    arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", to]
    _tools.mnnconvert(arguments + ["--bizCode", "bricolage", "--keepInputFormat=1"])
    if not os.path.exists(to):
        raise RuntimeError("the converter takes no such model")
    return to


def open_model(model, threads, inputs, outputs):
    import shutil
    import tempfile

    import MNN
    import MNN.expr as F
    import MNN.nn as nn

    folder = tempfile.mkdtemp(prefix="bricolage-mnn-")
    try:
        to = convert(model, folder)
        settings = {
            "backend": "CPU",
            "precision": "high",
            "memory": "high",
            "power": "high",
            "numThread": threads,
        }
        manager = nn.create_runtime_manager((settings,))
        network = nn.load_module_from_file(
            to,
            list(inputs),
            list(outputs),
            runtime_manager=manager,
            shape_mutable=False,
            rearrange=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kinds = {"float32": F.float, "int32": F.int, "uint8": F.uint8}
    held = {"values": [], "arrays": [], "results": [], "manager": manager}

    def give(inputs):
        held["arrays"] = [
            array.astype(numpy.int32) if array.dtype == numpy.int64 else array
            for array in inputs.values()
        ]
        held["values"] = [
            F.const(array, list(array.shape), F.NCHW, kinds[array.dtype.name])
            for array in held["arrays"]
        ]

    def run():
        results = network.forward(held["values"])
        results = results if isinstance(results, (list, tuple)) else [results]
        # The results are computed when they are read.
        held["results"] = [F.convert(value, F.NCHW).read() for value in results]

    def take():
        for name, value in zip(outputs, held["results"]):
            yield name, numpy.array(value)

    give(inputs)
    return give, run, take


serve(open_model)

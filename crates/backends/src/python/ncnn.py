"""ncnn: converted by pnnx in single precision, batches of one, as ncnn's tensors have none."""


def convert(model, folder, inputs):
    import importlib.util
    import subprocess

    # The program itself; the package around it wants PyTorch.
    package = importlib.util.find_spec("pnnx")
    if package is None:
        raise RuntimeError("the converter `pnnx` is not in this environment")
    program = os.path.join(package.submodule_search_locations[0], "pnnx")
    kinds = {"float32": "f32", "int32": "i32", "int64": "i64"}
    shapes = []
    for name, array in inputs.items():
        if array.dtype.name not in kinds:
            raise RuntimeError(f"input `{name}` is {array.dtype.name}, which the converter has not")
        if array.ndim > 1 and array.shape[0] != 1:
            raise RuntimeError(f"input `{name}` has a batch of {array.shape[0]}, needs 1")
        shapes.append(f"[{','.join(map(str, array.shape))}]{kinds[array.dtype.name]}")
    at = {
        kind: os.path.join(folder, name)
        for kind, name in {
            "pnnxparam": "model.pnnx.param",
            "pnnxbin": "model.pnnx.bin",
            "pnnxpy": "model_pnnx.py",
            "pnnxonnx": "model.pnnx.onnx",
            "ncnnparam": "model.param",
            "ncnnbin": "model.bin",
            "ncnnpy": "model_ncnn.py",
        }.items()
    }
    command = [program, model, "inputshape=" + ",".join(shapes), "fp16=0"]
    command += [f"{kind}={path}" for kind, path in at.items()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0 or not os.path.exists(at["ncnnparam"]):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError("the converter takes no such model: " + " ".join(said[-2:]))
    return at["ncnnparam"], at["ncnnbin"]


def open_model(model, threads, inputs, outputs):
    import shutil
    import tempfile

    import ncnn

    network = ncnn.Net()
    network.opt.num_threads = threads
    network.opt.use_vulkan_compute = False
    for half in ("fp16_storage", "fp16_packed", "fp16_arithmetic", "bf16_storage"):
        setattr(network.opt, f"use_{half}", False)
    folder = tempfile.mkdtemp(prefix="bricolage-ncnn-")
    try:
        parameters, weights = convert(model, folder, inputs)
        if network.load_param(parameters) or network.load_model(weights):
            raise RuntimeError("its own converter's model cannot be loaded")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # The converter keeps the order of inputs and outputs, and drops what is not read.
    if len(network.input_names()) != len(inputs) or len(network.output_names()) != len(outputs):
        raise RuntimeError("the converter dropped inputs or outputs")
    held = {"inputs": [], "results": []}

    def give(inputs):
        arrays = [array[0] if array.ndim > 1 else array for array in inputs.values()]
        arrays = [
            array if array.dtype == numpy.float32 else array.astype(numpy.int32)
            for array in arrays
        ]
        # A clone owns its memory.
        held["inputs"] = [ncnn.Mat(numpy.ascontiguousarray(array)).clone() for array in arrays]

    def run():
        extractor = network.create_extractor()
        for name, value in zip(network.input_names(), held["inputs"]):
            extractor.input(name, value)
        results = [extractor.extract(name) for name in network.output_names()]
        if any(code for code, _ in results):
            raise RuntimeError("a layer failed")
        held["results"] = [value for _, value in results]

    def take():
        for name, value in zip(outputs, held["results"]):
            yield name, numpy.array(value)[None]

    give(inputs)
    return give, run, take


serve(open_model)

"""OpenVINO: compiled for the least time of one run, in single precision, on the inputs' own sizes."""

# Nothing here converts models, which is where the package would report its use.
sys.modules["openvino_telemetry"] = None


def open_model(model, threads, inputs, outputs):
    import openvino

    core = openvino.Core()
    network = core.read_model(model)
    ports = {name: port for port in network.inputs for name in port.get_names()}
    network.reshape({ports[n]: list(a.shape) for n, a in inputs.items() if n in ports})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
    }
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    kept = []

    def give(inputs):
        kept.clear()
        for name, array in inputs.items():
            if name in ports:
                # The runtime reads the array where it lies.
                tensor = openvino.Tensor(array, shared_memory=array.ndim > 0)
                kept.append((array, tensor))
                request.set_tensor(name, tensor)

    def run():
        request.infer(share_outputs=True)

    def take():
        for port in compiled.outputs:
            named = [name for name in outputs if name in port.get_names()]
            yield (named or [port.get_any_name()])[0], request.get_tensor(port).data

    give(inputs)
    return give, run, take


serve(open_model)

"""Serves one model to the process that started this one.

A frame is eight bytes with the length of a JSON header, little end first, the header, and the raw
bytes of the tensors that the header lists. `open_model` comes from the runtime's own script and
returns three functions: one that takes named inputs, one that runs, and one that gives the outputs as
pairs of name and array; the second alone is timed.
"""

import json
import os
import resource
import struct
import sys
import time

import numpy

NAMES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}


def read(source):
    start = source.read(8)
    if len(start) < 8:
        return None, {}
    header = json.loads(source.read(struct.unpack("<Q", start)[0]))
    arrays = {}
    for tensor in header.get("tensors", []):
        data = source.read(tensor["bytes"])
        if tensor["dtype"] not in NAMES:
            raise ValueError(f"input `{tensor['name']}` is {tensor['dtype']}, which NumPy has not")
        array = numpy.frombuffer(data, NAMES[tensor["dtype"]]).reshape(tensor["dims"])
        arrays[tensor["name"]] = array.copy()
    return header, arrays


def write(sink, header, arrays=()):
    dtypes = {name: ours for ours, name in NAMES.items()}
    listed, parts = [], []
    for name, array in arrays:
        array = numpy.ascontiguousarray(array).reshape(numpy.shape(array))
        if array.dtype.name not in dtypes:
            raise ValueError(f"output `{name}` is {array.dtype.name}")
        part = array.tobytes()
        dims = list(array.shape)
        listed.append(
            {"name": name, "dtype": dtypes[array.dtype.name], "dims": dims, "bytes": len(part)}
        )
        parts.append(part)
    text = json.dumps(dict(header, tensors=listed)).encode()
    sink.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    sink.flush()


def serve(open_model):
    source = sys.stdin.buffer
    # What runtimes print must not get between the frames.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    give = run = take = None
    while True:
        try:
            header, arrays = read(source)
            if header is None:
                return
            answer, outputs = {}, ()
            if header["verb"] == "open":
                give, run, take = open_model(
                    header["model"], header["threads"], arrays, header["outputs"]
                )
            elif header["verb"] == "run":
                if arrays:
                    give(arrays)
                run()
                outputs = list(take())
            elif header["verb"] == "sample":
                start = time.perf_counter_ns()
                for _ in range(header["iterations"]):
                    run()
                answer["ns"] = time.perf_counter_ns() - start
            answer["peak"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            write(sink, answer, outputs)
        except Exception as error:
            write(sink, {"error": f"{type(error).__name__}: {error}"})

//! Evaluates a model plainly: `evaluate MODEL INPUTS OUTPUTS`, where both folders hold tensors as
//! `NAME.pb`.

use bricolage_ir::{evaluate, named_inputs};
use bricolage_onnx::{load, read_tensor, write_tensor};
use bricolage_tensor::{Datum, Storage};
use std::{collections::HashMap, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || arguments.next().ok_or("usage: evaluate MODEL INPUTS OUTPUTS");
    let (model, from, to) = (next()?, next()?, next()?);
    let graph = load(&model)?.graph;
    let mut data = HashMap::new();
    for &input in &graph.inputs {
        let name = graph.value(input).name.to_string();
        let bytes = fs::read(from.join(format!("{name}.pb")))?;
        data.insert(name, Datum::from(read_tensor(Storage::copy_of(&bytes))?));
    }
    let results = evaluate(&graph, &named_inputs(&graph, data)?)?;
    for (&output, datum) in graph.outputs.iter().zip(&results) {
        let name = &graph.value(output).name;
        let tensor = datum.as_tensor().ok_or("needs tensors as outputs")?;
        fs::write(to.join(format!("{name}.pb")), write_tensor(name, tensor))?;
    }
    Ok(())
}

//! What shows a fault again: a small model, its inputs and what was found.

use crate::{Error, npz};
use bricolage_ir::Graph;
use bricolage_tensor::Tensor;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where a cache folder keeps them.
pub fn folder(cache: &Path) -> PathBuf {
    cache.join("reproducers")
}

/// [`write()`] in a folder of its own below `folder`, named after `kind` and the contents. Gives its path.
pub fn save(
    folder: &Path,
    kind: &str,
    graph: &Graph,
    inputs: &[Tensor],
    found: &str,
) -> Result<PathBuf, Error> {
    let text = format!("{found}\n{}", bricolage_ir::print(graph).0);
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let place = folder.join(format!("{kind}-{}", &hash[..12]));
    write(&place, graph, inputs, found)?;
    Ok(place)
}

/// Writes into the folder `place`: `graph.case`, the graph's text below what was found; `inputs.npz`, in
/// the graph's names; `constants.npz`, what is too long for the text, by number; and `model.onnx`, unless
/// ONNX has no words for the graph.
pub fn write(place: &Path, graph: &Graph, inputs: &[Tensor], found: &str) -> Result<(), Error> {
    fs::create_dir_all(place).map_err(Error::file("write", place))?;
    let file = |name: &str, bytes: &[u8]| {
        let path = place.join(name);
        fs::write(&path, bytes).map_err(Error::file("write", &path))
    };
    let (text, aside) = bricolage_ir::print(graph);
    let comment: String = found.lines().map(|line| format!("// {line}\n")).collect();
    file("graph.case", format!("{comment}{text}").as_bytes())?;
    if let Ok(bytes) = bricolage_onnx::export(graph) {
        file("model.onnx", &bytes)?;
    }
    let names = graph.inputs.iter().map(|&v| graph.value(v).name.to_string());
    let inputs: Vec<(String, Tensor)> = names.zip(inputs.iter().cloned()).collect();
    npz::write(&place.join("inputs.npz"), &inputs)?;
    if !aside.is_empty() {
        let numbered = aside.iter().enumerate().map(|(i, t)| (i.to_string(), t.clone()));
        npz::write(&place.join("constants.npz"), &numbered.collect::<Vec<_>>())?;
    }
    Ok(())
}

//! Writes a model of the zoo: `write NAME FILE`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: write NAME FILE");
    let (name, file) = (next()?, next()?);
    let graph = bricolage_zoo::build(&name, 1, 0)?;
    std::fs::write(file, bricolage_onnx::export(&graph)?)?;
    Ok(())
}

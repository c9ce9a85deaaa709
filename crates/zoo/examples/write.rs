//! Writes a model of the zoo: `write NAME FILE [BATCH]`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: write NAME FILE [BATCH]");
    let (name, file) = (next()?, next()?);
    let batch = next().map_or(Ok(1), |text| text.parse())?;
    let graph = bricolage_zoo::build(&name, batch, 0)?;
    std::fs::write(file, bricolage_onnx::export(&graph)?)?;
    Ok(())
}

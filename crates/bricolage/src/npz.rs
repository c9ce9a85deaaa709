//! NumPy's `.npz` and `.npy` files: named tensors, as Python writes and reads them.
//!
//! The format is described in NumPy's manual, `numpy.lib.format`. Both storage orders are read;
//! row-major is written. `bf16` has no NumPy type and is written as the package `ml_dtypes` does: as the
//! type `|V2`, opaque elements of two bytes. `numpy.load(..)[name].view(ml_dtypes.bfloat16)` reads
//! them; what `numpy.savez` writes of such an array is read here.

use crate::Temporary;
use bricolage_runtime::open_file;
use bricolage_tensor::{DType, Storage, Tensor};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

/// Why a file gives no tensors, or none can be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The system refused.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The archive is not one, or is damaged.
    #[error("`{path}` is not a readable npz archive: {why}")]
    Archive {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A member is not an array that tensors can hold.
    #[error("`{path}`: array `{name}` {why}")]
    Array {
        /// The file.
        path: PathBuf,
        /// Name of the array.
        name: String,
        /// A clause.
        why: String,
    },
}

/// Largest array that is read, in bytes: beyond that the header is taken for damaged.
const LARGEST: u64 = 1 << 40;

/// Reads every array of an `.npz` archive, in its order, without the `.npy` suffix of their names.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>, NpzError> {
    let file = open_file(path).map_err(|error| NpzError::Io { path: path.to_owned(), error })?;
    read_from(file, path)
}

fn read_from(source: impl Read + Seek, path: &Path) -> Result<Vec<(String, Tensor)>, NpzError> {
    let archive = |why: String| NpzError::Archive { path: path.to_owned(), why };
    let mut zip = zip::ZipArchive::new(source).map_err(|e| archive(e.to_string()))?;
    let mut tensors = Vec::new();
    for i in 0..zip.len() {
        let mut member = zip.by_index(i).map_err(|e| archive(e.to_string()))?;
        let name = member.name().strip_suffix(".npy").unwrap_or(member.name()).to_owned();
        let declared = member.size();
        let array =
            |why: String| NpzError::Array { path: path.to_owned(), name: name.clone(), why };
        if declared > LARGEST {
            return Err(array(format!("claims {declared} bytes")));
        }
        let mut bytes = Vec::new();
        // One byte more than declared shows that the size is a lie.
        member
            .by_ref()
            .take(declared + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| array(e.to_string()))?;
        let tensor = parse_npy(&bytes).map_err(array)?;
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

/// Writes tensors as an uncompressed `.npz` archive, replacing the file only when all is written.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), NpzError> {
    let io = |error: io::Error| NpzError::Io { path: path.to_owned(), error };
    if std::fs::symlink_metadata(path).is_ok_and(|m| !m.is_file()) {
        return Err(io(io::Error::other("it exists and is not a regular file")));
    }
    let partial = Temporary::new(path.with_extension("npz.partial"));
    write_to(partial.path(), path, tensors)?;
    std::fs::rename(partial.path(), path).map_err(io)
}

fn write_to(partial: &Path, path: &Path, tensors: &[(String, Tensor)]) -> Result<(), NpzError> {
    let io = |error: io::Error| NpzError::Io { path: path.to_owned(), error };
    let archive =
        |e: zip::result::ZipError| NpzError::Archive { path: path.to_owned(), why: e.to_string() };
    let mut zip = zip::ZipWriter::new(File::create(partial).map_err(io)?);
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .large_file(true)
        .last_modified_time(zip::DateTime::default());
    for (name, tensor) in tensors {
        zip.start_file(format!("{name}.npy"), options).map_err(archive)?;
        zip.write_all(&npy_header(tensor)).map_err(io)?;
        zip.write_all(tensor.bytes()).map_err(io)?;
    }
    zip.finish().map_err(archive)?.sync_all().map_err(io)
}

fn npy_header(tensor: &Tensor) -> Vec<u8> {
    let descr = match tensor.dtype() {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::BF16 => "|V2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        _ => "|b1",
    };
    let dims: Vec<String> = tensor.dims().iter().map(|d| format!("{d},")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.join(" "));
    // Ten bytes of preamble, and the whole is a multiple of 64.
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes
}

/// Parses one `.npy` array.
fn parse_npy(bytes: &[u8]) -> Result<Tensor, String> {
    if bytes.len() < 10 || &bytes[..6] != b"\x93NUMPY" {
        return Err("does not start as an array".to_owned());
    }
    let (start, len) = match bytes[6] {
        1 => (10, usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
        2 | 3 if bytes.len() >= 12 => {
            (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize)
        }
        version => return Err(format!("has format version {version}, known are 1 to 3")),
    };
    let header = bytes.get(start..start + len).ok_or("ends inside its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "has a header that is not text")?;
    let field = |key: &str| {
        let at = header
            .find(&format!("'{key}'"))
            .ok_or_else(|| format!("has no `{key}` in its header"))?;
        Ok::<&str, String>(
            header[at + key.len() + 2..].trim_start().trim_start_matches(':').trim_start(),
        )
    };
    let descr = field("descr")?;
    let descr = descr.strip_prefix('\'').and_then(|d| d.split('\'').next()).unwrap_or(descr);
    let dtype = match descr.trim_start_matches(['<', '|', '=']) {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "f2" => DType::F16,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" => DType::Bool,
        "V2" | "bfloat16" => DType::BF16,
        _ => return Err(format!("has element type `{descr}`, which no tensor has")),
    };
    let column_major = field("fortran_order")?.starts_with("True");
    let shape = field("shape")?;
    let shape = shape
        .strip_prefix('(')
        .and_then(|s| s.split(')').next())
        .ok_or("has a shape that is no tuple")?;
    let dims: Result<Vec<i64>, _> =
        shape.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse::<i64>).collect();
    let dims = dims.map_err(|_| format!("has shape `({shape})`, which is not numbers"))?;
    let content = &bytes[start + len..];
    let stored: Vec<i64> =
        if column_major { dims.iter().rev().copied().collect() } else { dims.clone() };
    let tensor =
        Tensor::new(dtype, &stored, Storage::copy_of(content)).map_err(|e| e.to_string())?;
    Ok(if column_major { transposed(&tensor, &dims) } else { tensor })
}

/// The tensor with reversed dims: what was stored column-major, row-major.
fn transposed(stored: &Tensor, dims: &[i64]) -> Tensor {
    let size = (stored.dtype().bits() / 8) as usize;
    let bytes = Storage::build(stored.bytes().len(), |to| {
        let mut at = vec![0i64; dims.len()];
        for element in to.chunks_exact_mut(size) {
            // In column-major order the first dim is contiguous.
            let mut from = 0;
            for (i, d) in at.iter().zip(dims).rev() {
                from = from * d + i;
            }
            element.copy_from_slice(&stored.bytes()[from as usize * size..][..size]);
            for d in (0..dims.len()).rev() {
                at[d] += 1;
                if at[d] < dims[d] {
                    break;
                }
                at[d] = 0;
            }
        }
    });
    Tensor::new(stored.dtype(), dims, bytes).expect("the same elements in another order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn archives_round_trip() {
        let folder = std::env::temp_dir().join(format!("bricolage-npz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.npz");
        let tensors: Vec<(String, Tensor)> = DType::ALL
            .iter()
            .map(|&d| (format!("a/{d}"), Tensor::generate(d, &[2, 3], |i| (i % 2) as f64)))
            .chain([
                ("scalar".to_owned(), Tensor::of(&[], &[7i64])),
                ("empty".to_owned(), Tensor::of::<f32>(&[0, 4], &[])),
            ])
            .collect();
        write(&path, &tensors).unwrap();
        assert_eq!(read(&path).unwrap(), tensors);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn column_major_is_understood() {
        let mut bytes = npy_header(&Tensor::of(&[2, 3], &[0f32; 6]));
        let at = bytes.windows(5).position(|w| w == b"False").unwrap();
        bytes[at..at + 5].copy_from_slice(b"True ");
        for v in [1f32, 4.0, 2.0, 5.0, 3.0, 6.0] {
            bytes.extend(v.to_le_bytes());
        }
        let tensor = parse_npy(&bytes).unwrap();
        assert_eq!(tensor, Tensor::of(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
    }

    #[test]
    fn damaged_arrays_are_refused_in_words() {
        let whole = npy_header(&Tensor::of(&[2], &[0f32; 2]));
        for cut in [0, 5, 9, 20, whole.len()] {
            assert!(parse_npy(&whole[..cut]).is_err());
        }
        let text = String::from_utf8_lossy(&whole[10..]).replace("<f4", ">f4");
        let mut swapped = whole[..10].to_vec();
        swapped.extend(text.as_bytes());
        assert!(parse_npy(&swapped).unwrap_err().contains(">f4"));
        let error = read_from(Cursor::new(b"not a zip".to_vec()), Path::new("x.npz")).unwrap_err();
        assert!(error.to_string().starts_with("`x.npz` is not a readable npz archive"));
    }
}

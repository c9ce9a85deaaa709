//! NumPy's `.npz` and `.npy` files: named tensors, as Python writes and reads them.
//!
//! The format is described in NumPy's manual, `numpy.lib.format`. Both storage orders are read;
//! row-major is written. `bf16` has no NumPy type and is written as the package `ml_dtypes` does: as the
//! type `|V2`, opaque elements of two bytes. `numpy.load(..)[name].view(ml_dtypes.bfloat16)` reads
//! them; what `numpy.savez` writes of such an array is read here. Other element types that NumPy lacks,
//! `f8..`, `f4e2m1` and integers of less than a byte, npz cannot hold: their codes are written, one a byte,
//! as `u8`, and read as that. [`as_type`] makes them what they were, for a reader that knows; in Python
//! `numpy.load(..)[name].view(ml_dtypes.float8_e5m2)` does.

use crate::temporary;
use bricolage_runtime::open_file;
use bricolage_tensor::{DType, Storage, Tensor};
use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Why a file gives no tensors, or none can be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The system refused.
    #[error("cannot {action} `{path}`: {error}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
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
    let file = open_file(path).map_err(|error| NpzError::Io {
        action: "read",
        path: path.to_owned(),
        error,
    })?;
    read_from(file, path)
}

/// [`read`] from anything; errors name `path`.
pub fn read_from(source: impl Read + Seek, path: &Path) -> Result<Vec<(String, Tensor)>, NpzError> {
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
    temporary::write_file(path, |file| write_to(file, tensors)).map_err(|error| NpzError::Io {
        action: "write",
        path: path.to_owned(),
        error,
    })
}

/// [`write()`] to anything.
pub fn write_to(to: impl Write + Seek, tensors: &[(String, Tensor)]) -> io::Result<()> {
    let mut calm = Calm { to, at: 0, end: 0, failed: None };
    let mut zip = zip::ZipWriter::new(&mut calm);
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .large_file(true)
        .last_modified_time(zip::DateTime::default());
    for (name, tensor) in tensors {
        zip.start_file(format!("{name}.npy"), options).map_err(io::Error::other)?;
        zip.write_all(&npy_header(tensor))?;
        match descr_of(tensor.dtype()) {
            Some(_) => zip.write_all(tensor.bytes())?,
            None => zip.write_all(&tensor.codes())?,
        }
    }
    zip.finish().map_err(io::Error::other)?;
    calm.failed.map_or(Ok(()), Err)
}

/// Passes everything on up to the first failure, and takes what comes after it without complaint: an
/// archive is finished when it is dropped, and would print that it cannot be.
struct Calm<W> {
    to: W,
    /// Where the next byte goes.
    at: u64,
    /// Where the last byte went.
    end: u64,
    failed: Option<io::Error>,
}

impl<W: Write + Seek> Write for Calm<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = bytes.len();
        if self.failed.is_none() {
            match self.to.write(bytes) {
                Ok(0) if taken > 0 => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(n) => taken = n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
                Err(e) => self.failed = Some(e),
            }
        }
        self.at += taken as u64;
        self.end = self.end.max(self.at);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed.is_none() {
            self.failed = self.to.flush().err();
        }
        Ok(())
    }
}

impl<W: Write + Seek> Seek for Calm<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
            SeekFrom::End(n) => self.end.checked_add_signed(n),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        if self.failed.is_none() {
            self.failed = self.to.seek(SeekFrom::Start(self.at)).err();
        }
        Ok(self.at)
    }
}

/// The tensor with elements of `dtype`, where npz holds their codes in its stead.
pub fn as_type(tensor: Tensor, dtype: DType) -> Tensor {
    match tensor.dtype() {
        DType::U8 if descr_of(dtype).is_none() => {
            Tensor::from_codes(dtype, tensor.dims(), tensor.bytes())
        }
        _ => tensor,
    }
}

/// NumPy's name of an element type; `None` for one that npz cannot hold.
fn descr_of(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
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
        DType::Bool => "|b1",
        _ => return None,
    })
}

fn npy_header(tensor: &Tensor) -> Vec<u8> {
    // Codes, where there is no such type.
    let descr = descr_of(tensor.dtype()).unwrap_or("|u1");
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
        let (held, other): (Vec<DType>, Vec<DType>) =
            DType::ALL.iter().copied().partition(|&d| descr_of(d).is_some());
        for dtype in other {
            let t = Tensor::generate(dtype, &[3], |i| i as f64);
            write(&path, &[("x".to_owned(), t.clone())]).unwrap();
            let codes = read(&path).unwrap().remove(0).1;
            assert_eq!(codes, Tensor::of(&[3], &t.codes()));
            assert_eq!(as_type(codes, dtype), t);
        }
        assert_eq!(held.len(), 13);
        let tensors: Vec<(String, Tensor)> = held
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

    /// A disk with room for so many bytes.
    struct Disk {
        bytes: Cursor<Vec<u8>>,
        room: u64,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.room.saturating_sub(self.bytes.position()) as usize;
            match bytes.len().min(left) {
                // No space left on the device.
                0 if !bytes.is_empty() => Err(io::Error::from_raw_os_error(28)),
                n => self.bytes.write(&bytes[..n]),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.bytes.seek(to)
        }
    }

    #[test]
    fn a_full_disk_is_named_wherever_it_fills() {
        let tensors: Vec<(String, Tensor)> =
            ["a", "b"].iter().map(|n| ((*n).to_owned(), Tensor::of(&[40], &[1f32; 40]))).collect();
        let mut disk = Disk { bytes: Cursor::default(), room: 1 << 20 };
        write_to(&mut disk, &tensors).unwrap();
        let whole = disk.bytes.into_inner();
        let found = read_from(Cursor::new(whole.clone()), Path::new("x.npz")).unwrap();
        assert_eq!(found, tensors);
        for room in 0..whole.len() as u64 {
            let mut disk = Disk { bytes: Cursor::default(), room };
            let error = write_to(&mut disk, &tensors).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{room}: {error}");
        }
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

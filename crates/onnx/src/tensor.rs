//! Stored tensors: inline, in typed fields, or in files beside the model.

use crate::{
    ImportError, TensorFault,
    proto::{SparseTensorProto, TensorProto, tensor_proto::DataType},
};
use bricolage_tensor::{DType, Storage, Strings, Tensor, TensorType};
use prost::{Message, bytes::Bytes};
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// The element type with this number.
pub(crate) fn dtype_of(number: i32) -> Result<DType, TensorFault> {
    let found = || TensorFault::Element {
        found: DataType::try_from(number)
            .map_or_else(|_| format!("type {number}"), |t| t.as_str_name().to_owned()),
    };
    Ok(match DataType::try_from(number).map_err(|_| found())? {
        DataType::Float => DType::F32,
        DataType::Double => DType::F64,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bool => DType::Bool,
        DataType::Float8e4m3fn => DType::F8E4M3FN,
        DataType::Float8e4m3fnuz => DType::F8E4M3FNUZ,
        DataType::Float8e5m2 => DType::F8E5M2,
        DataType::Float8e5m2fnuz => DType::F8E5M2FNUZ,
        DataType::Float8e8m0 => DType::F8E8M0,
        DataType::Float4e2m1 => DType::F4E2M1,
        DataType::Int4 => DType::I4,
        DataType::Uint4 => DType::U4,
        DataType::Int2 => DType::I2,
        DataType::Uint2 => DType::U2,
        _ => return Err(found()),
    })
}

/// The number of an element type; `None` for one that ONNX lacks.
pub(crate) fn number_of(dtype: DType) -> Option<i32> {
    (1..=26).find(|&n| dtype_of(n) == Ok(dtype))
}

/// Files beside a model, mapped once each.
pub(crate) struct External<'a> {
    folder: Option<&'a Path>,
    files: BTreeMap<PathBuf, Storage>,
}

impl<'a> External<'a> {
    pub(crate) fn new(folder: Option<&'a Path>) -> External<'a> {
        External { folder, files: BTreeMap::new() }
    }

    /// Every file used so far, by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &Storage)> {
        self.files.iter().map(|(path, bytes)| (path.as_path(), bytes))
    }

    fn read(&mut self, t: &TensorProto, needed: u64) -> Result<Storage, TensorFault> {
        let entry = |key: &str| {
            let found = t.external_data.iter().find(|e| e.key() == key);
            found.map(|e| e.value().to_owned()).filter(|v| !v.is_empty())
        };
        let file = entry("location").unwrap_or_default();
        let fault = |why: String| TensorFault::External { file: file.clone(), why };
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| fault(format!("needs a whole number as `{key}`, found `{text}`"))),
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if let Some(length) = length.filter(|&l| l != needed) {
            return Err(fault(format!("needs a length of {needed} bytes, found {length}")));
        }
        let path = self.resolve(&file).map_err(fault)?;
        if !self.files.contains_key(&path) {
            let bytes = bricolage_runtime::map_file(&path)
                .map_err(|error| fault(format!("cannot map the file: {error}")))?;
            self.files.insert(path.clone(), bytes);
        }
        let bytes = &self.files[&path];
        let end = offset.checked_add(needed).filter(|&end| end <= bytes.len() as u64);
        if end.is_none() {
            return Err(fault(format!(
                "needs {needed} bytes from byte {offset} on, found a file of {} bytes",
                bytes.len()
            )));
        }
        Ok(bytes.slice(offset as usize, needed as usize))
    }

    /// The file's real path, which must lie inside the model's folder.
    fn resolve(&self, file: &str) -> Result<PathBuf, String> {
        let folder = self.folder.ok_or("needs the folder of the model, found bytes alone")?;
        let relative = Path::new(file);
        let inside =
            relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if file.is_empty() || !inside {
            return Err("needs a relative path inside the model's folder".to_owned());
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|error| format!("needs a file in `{}`: {error}", folder.display()))
        };
        let (folder, path) = (real(folder)?, real(&folder.join(relative))?);
        if !path.starts_with(&folder) {
            return Err(format!(
                "needs a file inside the model's folder, found a link to `{}`",
                path.display()
            ));
        }
        Ok(path)
    }
}

/// The tensor that `t` stores.
pub(crate) fn from_proto(
    t: &TensorProto,
    external: &mut External<'_>,
) -> Result<Tensor, TensorFault> {
    let dtype = dtype_of(t.data_type())?;
    if t.segment.is_some() {
        return Err(TensorFault::Segment);
    }
    let impossible = || bricolage_tensor::TensorError::Dims { dtype, dims: t.dims.clone() };
    let ty = TensorType::fixed(dtype, &t.dims);
    let count = ty.shape.element_count().ok_or_else(impossible)?;
    let needed = ty.byte_len().ok_or_else(impossible)?;
    if t.data_location() == crate::proto::tensor_proto::DataLocation::External {
        let bytes = if needed == 0 { Storage::copy_of(&[]) } else { external.read(t, needed)? };
        return Ok(cleared(Tensor::new(dtype, &t.dims, bytes)?));
    }
    if t.raw_data.as_ref().is_some_and(|raw| !raw.is_empty()) && !no_numbers(t) {
        return Err(TensorFault::Twice);
    }
    if let Some(raw) = t.raw_data.as_ref().filter(|raw| !raw.is_empty() || no_numbers(t)) {
        let len = raw.len();
        let bytes = Storage::shared(Arc::new(raw.clone()), 0, len);
        return Ok(cleared(Tensor::new(dtype, &t.dims, bytes)?));
    }
    // Elements below a byte share a number with their neighbours, as they share a byte.
    let count = if dtype.bits() < 8 { needed } else { count };
    let expect = |found: usize| match found as u64 {
        found if found == count => Ok(()),
        found => Err(TensorFault::Count { needed: count, found }),
    };
    Ok(match dtype {
        DType::F32 => {
            expect(t.float_data.len())?;
            Tensor::of(&t.dims, &t.float_data)
        }
        DType::F64 => {
            expect(t.double_data.len())?;
            Tensor::of(&t.dims, &t.double_data)
        }
        DType::I64 => {
            expect(t.int64_data.len())?;
            Tensor::of(&t.dims, &t.int64_data)
        }
        DType::U64 => {
            expect(t.uint64_data.len())?;
            Tensor::of(&t.dims, &t.uint64_data)
        }
        DType::U32 => {
            expect(t.uint64_data.len())?;
            Tensor::of(&t.dims, &t.uint64_data.iter().map(|&v| v as u32).collect::<Vec<_>>())
        }
        // Halves are stored as their bits.
        DType::F16 | DType::BF16 => {
            expect(t.int32_data.len())?;
            let bits: Vec<u8> =
                t.int32_data.iter().flat_map(|&v| (v as u16).to_le_bytes()).collect();
            Tensor::new(dtype, &t.dims, Storage::copy_of(&bits))?
        }
        _ if dtype.is_narrow_float() || dtype.bits() < 8 => {
            expect(t.int32_data.len())?;
            let bits: Vec<u8> = t.int32_data.iter().map(|&v| v as u8).collect();
            cleared(Tensor::new(dtype, &t.dims, Storage::copy_of(&bits))?)
        }
        _ => {
            expect(t.int32_data.len())?;
            let wide: Vec<i64> = t.int32_data.iter().map(|&v| i64::from(v)).collect();
            let tensor = Tensor::from_i64(dtype, &t.dims, &wide);
            let wrapped = tensor.to_i64();
            match wide.iter().zip(&wrapped).find(|(a, b)| a != b && dtype != DType::Bool) {
                Some((&found, _)) => return Err(TensorFault::Range { dtype: dtype.name(), found }),
                None => tensor,
            }
        }
    })
}

/// The texts that `t` stores.
pub(crate) fn strings_of(t: &TensorProto) -> Result<Strings, TensorFault> {
    let text = |b: &Bytes| {
        std::str::from_utf8(b).map(str::to_owned).map_err(|_| TensorFault::Text { len: b.len() })
    };
    let texts = t.string_data.iter().map(text).collect::<Result<_, _>>()?;
    Ok(Strings::new(&t.dims, texts)?)
}

/// A tensor that stores texts.
pub(crate) fn strings_proto(dims: &[i64], elements: &[String]) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type: Some(DataType::String as i32),
        string_data: elements.iter().map(|t| Bytes::copy_from_slice(t.as_bytes())).collect(),
        ..TensorProto::default()
    }
}

fn no_numbers(t: &TensorProto) -> bool {
    t.float_data.is_empty()
        && t.double_data.is_empty()
        && t.int32_data.is_empty()
        && t.int64_data.is_empty()
        && t.uint64_data.is_empty()
}

/// Truth values as 0 and 1 and bits left over as 0, whatever was stored.
fn cleared(t: Tensor) -> Tensor {
    let over = t.len() as u64 * t.dtype().bits() % 8;
    if over != 0 && t.bytes().last().is_some_and(|last| last >> over != 0) {
        return Tensor::from_codes(t.dtype(), t.dims(), &t.codes());
    }
    if t.dtype() != DType::Bool || t.bytes().iter().all(|&b| b < 2) {
        return t;
    }
    let truths: Vec<bool> = t.bytes().iter().map(|&b| b != 0).collect();
    Tensor::of_bool(t.dims(), &truths)
}

/// The dense tensor that `t` stands for.
pub(crate) fn from_sparse(
    t: &SparseTensorProto,
    external: &mut External<'_>,
) -> Result<Tensor, TensorFault> {
    const MOST: u64 = 1 << 30;
    let missing = || TensorFault::Coordinates { dims: t.dims.clone(), found: "none".to_owned() };
    let stored = from_proto(t.values.as_ref().ok_or_else(missing)?, external)?;
    let packed = stored.dtype().bits() < 8;
    let values = match packed {
        true => Tensor::of(stored.dims(), &stored.codes()),
        false => stored.clone(),
    };
    let at = from_proto(t.indices.as_ref().ok_or_else(missing)?, external)?;
    let ty = TensorType::fixed(values.dtype(), &t.dims);
    let impossible =
        || bricolage_tensor::TensorError::Dims { dtype: values.dtype(), dims: t.dims.clone() };
    let total = ty.byte_len().filter(|&n| n <= MOST).ok_or_else(impossible)? as usize;
    let width = values.dtype().bits() as usize / 8;
    let rank = t.dims.len();
    let flat = at.to_i64();
    let outside = |found: &[i64]| TensorFault::Coordinates {
        dims: t.dims.clone(),
        found: format!("{found:?}"),
    };
    let per = if at.dims().len() == 2 { rank } else { 1 };
    if flat.len() != values.len() * per {
        return Err(outside(at.dims()));
    }
    let mut places = Vec::with_capacity(values.len());
    for chunk in flat.chunks(per.max(1)) {
        let mut place = 0i64;
        if per == rank && at.dims().len() == 2 {
            for (&i, &d) in chunk.iter().zip(&t.dims) {
                if !(0..d).contains(&i) {
                    return Err(outside(chunk));
                }
                place = place * d + i;
            }
        } else {
            place = chunk[0];
        }
        if place < 0 || (place as usize + 1) * width > total {
            return Err(outside(chunk));
        }
        places.push(place as usize);
    }
    let bytes = Storage::build(total, |to| {
        for (&place, from) in places.iter().zip(values.bytes().chunks(width)) {
            to[place * width..][..width].copy_from_slice(from);
        }
    });
    Ok(match packed {
        true => Tensor::from_codes(stored.dtype(), &t.dims, &bytes),
        false => Tensor::new(values.dtype(), &t.dims, bytes)?,
    })
}

/// The tensor with its bytes inline.
pub(crate) fn to_proto(name: &str, t: &Tensor) -> Option<TensorProto> {
    Some(TensorProto {
        raw_data: Some(Bytes::from_owner(t.storage().clone())),
        ..describe(name, t)?
    })
}

/// Name, type and dims without bytes.
pub(crate) fn describe(name: &str, t: &Tensor) -> Option<TensorProto> {
    Some(TensorProto {
        name: Some(name.to_owned()),
        dims: t.dims().to_vec(),
        data_type: Some(number_of(t.dtype())?),
        ..TensorProto::default()
    })
}

/// Reads a single stored tensor (a `TensorProto`), such as the test data of ONNX.
pub fn read_tensor(bytes: Storage) -> Result<Tensor, ImportError> {
    let len = bytes.len();
    let t = TensorProto::decode(Bytes::from_owner(bytes))
        .map_err(|error| ImportError::Decode { len, why: error.to_string() })?;
    from_proto(&t, &mut External::new(None))
        .map_err(|fault| ImportError::Tensor { name: t.name().to_owned(), fault })
}

/// Writes a single tensor (as a `TensorProto`) under a name.
pub fn write_tensor(name: &str, tensor: &Tensor) -> Vec<u8> {
    to_proto(name, tensor).expect("every element type has a number in ONNX").encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(ty: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { dims: dims.to_vec(), data_type: Some(ty as i32), ..TensorProto::default() }
    }

    fn read(t: &TensorProto) -> Result<Tensor, TensorFault> {
        from_proto(t, &mut External::new(None))
    }

    #[test]
    fn every_type_is_written_and_read() {
        for &dtype in DType::ALL {
            let t = Tensor::generate(dtype, &[3, 1], |i| i as f64);
            let again = read_tensor(Storage::copy_of(&write_tensor("x", &t))).unwrap();
            assert_eq!(again, t, "{dtype}");
        }
    }

    #[test]
    fn elements_below_a_byte_share_their_numbers() {
        let mut t = proto(DataType::Int4, &[3]);
        t.int32_data = vec![0xE1, 0x97];
        let expected = Tensor::from_i64(DType::I4, &[3], &[1, -2, 7]);
        assert_eq!(read(&t), Ok(expected.clone()), "bits left over are cleared");
        t.int32_data.push(0);
        assert_eq!(read(&t), Err(TensorFault::Count { needed: 2, found: 3 }));
        t.int32_data.clear();
        t.raw_data = Some(vec![0xE1, 0x97].into());
        assert_eq!(read(&t), Ok(expected));
        let mut t = proto(DataType::Uint2, &[5]);
        t.int32_data = vec![0b1110_0100, 0b10];
        assert_eq!(read(&t).unwrap().to_i64(), [0, 1, 2, 3, 2]);
        let mut t = proto(DataType::Float8e5m2, &[2]);
        t.int32_data = vec![0x3C, 0xFC];
        assert_eq!(read(&t).unwrap().to_f64(), [1.0, f64::NEG_INFINITY]);
    }

    #[test]
    fn sparse_elements_below_a_byte_find_their_places() {
        let mut values = proto(DataType::Uint4, &[2]);
        values.int32_data = vec![0x95];
        let mut indices = proto(DataType::Int64, &[2]);
        indices.int64_data = vec![1, 4];
        let t = SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![5] };
        let dense = from_sparse(&t, &mut External::new(None)).unwrap();
        assert_eq!(dense, Tensor::from_i64(DType::U4, &[5], &[0, 5, 0, 0, 9]));
    }
}

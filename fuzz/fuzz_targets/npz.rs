//! Bytes as an archive of arrays, or as one array: what is read is written and read as the same.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage::npz::{read_from, write_to};
use bricolage_tensor::{DType, Rng, Tensor};
use bricolage_testkit::{
    damage,
    driver::{Target, nothing_known, nothing_more, nothing_noted},
};
use std::{
    io::{Cursor, Write},
    path::Path,
};

const TARGET: Target = Target {
    name: "npz",
    run: target,
    known: nothing_known,
    fresh,
    damage: damage::bytes,
    explain: nothing_more,
    notes: nothing_noted,
};

bricolage_fuzz::entry!(TARGET);

fn archive(tensors: &[(String, Tensor)]) -> Option<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    write_to(&mut bytes, tensors).ok()?;
    Some(bytes.into_inner())
}

/// An archive of a few small arrays, or one array.
fn fresh(rng: &mut Rng) -> Vec<u8> {
    let mut tensor = || {
        let dims: Vec<i64> = (0..rng.below(4)).map(|_| rng.below(5) as i64).collect();
        let dtype = DType::ALL[rng.below(DType::ALL.len())];
        Tensor::generate(dtype, &dims, |_| rng.below(2) as f64)
    };
    let all = [("a".to_owned(), tensor()), ("b/c".to_owned(), tensor())];
    let bytes = archive(&all[..1 + rng.below(2)]).unwrap_or_default();
    // In an archive any damage to an array is seen by its checksum: arrays are damaged on their own, too.
    let start = bytes.windows(6).position(|w| w == b"\x93NUMPY").filter(|_| rng.below(2) == 0);
    match start {
        Some(at) => {
            let end = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap_or(bytes.len());
            let mut array = bytes[at..end].to_vec();
            if rng.below(2) == 0
                && let Some(word) = array.windows(5).position(|w| w == b"False")
            {
                array[word..word + 5].copy_from_slice(b"True ");
            }
            array
        }
        None => bytes,
    }
}

/// An archive that holds these bytes as its array.
fn around(array: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("a.npy", options).expect("memory takes what is written");
    zip.write_all(array).expect("memory takes what is written");
    zip.finish().expect("memory takes what is written").into_inner()
}

/// Whether the bytes are an archive or an array.
fn target(data: &[u8]) -> bool {
    let bytes = if data.starts_with(b"PK") { data.to_vec() } else { around(data) };
    let tensors = match read_from(Cursor::new(bytes), Path::new("x.npz")) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
        Ok(tensors) => tensors,
    };
    // Two arrays of one name cannot be written.
    if let Some(bytes) = archive(&tensors) {
        let again = read_from(Cursor::new(bytes), Path::new("x.npz"))
            .unwrap_or_else(|e| panic!("what was written is not read: {e}"));
        assert!(again == tensors, "other arrays are read");
    }
    true
}

#[test]
fn archives_are_read_or_refused() {
    TARGET.smoke(3000, 300);
}

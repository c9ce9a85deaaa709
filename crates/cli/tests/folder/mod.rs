//! What tests of the command line share: a folder of their own, and a small model.
#![allow(clippy::unwrap_used)] // a test may panic

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("bricolage-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The program with arguments, in this folder and with a cache in it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bricolage"));
        command
            .args(arguments)
            .current_dir(&self.0)
            .env("BRICOLAGE_CACHE_DIR", self.0.join("cache"))
            // Not what the system has.
            .env("BRICOLAGE_ONNXRUNTIME", self.0.join("nowhere"))
            .env("BRICOLAGE_OPENVINO", self.0.join("nowhere"))
            .env("BRICOLAGE_BLAS", self.0.join("nowhere"))
            .env("BRICOLAGE_ONEDNN", self.0.join("nowhere"));
        for name in [
            "VIRTUAL_ENV",
            "LD_LIBRARY_PATH",
            "BRICOLAGE_MNN",
            "BRICOLAGE_NCNN",
            "BRICOLAGE_THREADS",
            "BRICOLAGE_BACKEND_LIB",
            "BRICOLAGE_BACKEND_LOG",
        ] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Fails with `code`, says `words`, and leaves `absent` unwritten.
    #[allow(dead_code)] // not every file of tests has failures
    pub(crate) fn fails(&self, arguments: &[&str], code: i32, words: &[&str], absent: &[&str]) {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{arguments:?} says\n{said}\nwithout `{word}`");
        }
        assert!(!said.contains("panicked"), "{said}");
        for name in absent {
            assert!(!self.0.join(name).exists(), "{name} was written");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[allow(dead_code)] // not every file of tests needs it
/// A small model: mobilenet would do, and takes longer to make than the tests take.
pub(crate) fn model(folder: &Path) {
    use bricolage_ir::{Graph, ops, origin};
    use bricolage_tensor::{DType, Dim, Tensor, TensorType};
    let mut g = Graph::new("small");
    let shape = [Dim::symbol("n"), Dim::from(4)].into_iter().collect();
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let w = g.constant("w", Tensor::generate(DType::F32, &[4, 3], |i| i as f64));
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add1(product, &[x, w], origin("fc")).unwrap();
    g.outputs = vec![y];
    fs::write(folder.join("small.onnx"), bricolage_onnx::export(&g).unwrap()).unwrap();
}

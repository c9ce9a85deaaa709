//! Runs kernels on guarded, garbage-filled memory.
#![allow(dead_code, missing_docs, unreachable_pub)] // shared by test binaries that each use a part
#![allow(unsafe_code)] // operands are pointers
#![allow(clippy::unwrap_used)] // a failed test may panic, and so may a benchmark

use bricolage_kernels::{Isa, NativeKernel, Spec, rebuild};
use bricolage_runtime::{
    Cancel, DeviceId, Dims, Operand, Pool, PoolOptions, Queue, Run, RunError, Serial, ThreadPool,
};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use std::sync::{Arc, LazyLock};

/// Bytes around every buffer that nobody may touch.
const ZONE: usize = 256;
const GUARD: u8 = 0xa5;

pub const F32: Format = Format::plain(DType::F32);

pub fn last(halo: u8) -> Format {
    Format { dtype: DType::F32, layout: Layout::ChannelsLast { halo } }
}

pub fn blocked(halo: u8) -> Format {
    Format { dtype: DType::F32, layout: Layout::Blocked { block: 8, halo } }
}

pub fn config(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Default::default()
    }
}

/// Small deterministic generator.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ self.0 >> 11 & 0xffff
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in -0.5..0.5.
    pub fn float(&mut self) -> f32 {
        (self.next() & 0xff_ffff) as f32 / (1 << 24) as f32 - 0.5
    }

    pub fn floats(&mut self, dims: &[i64]) -> Vec<f32> {
        (0..count(dims)).map(|_| self.float()).collect()
    }

    pub fn tensor(&mut self, dims: &[i64]) -> Tensor {
        Tensor::of(dims, &self.floats(dims))
    }
}

pub fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>() as usize
}

/// Aligned memory with guard zones.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    pub len: usize,
}

impl Buffer {
    pub fn new(len: usize) -> Buffer {
        // Large buffers lie on large pages, as the arena of a session does.
        let align = if len >= 1 << 19 { 1 << 21 } else { 64 };
        let mut memory = Vec::with_capacity(len + 2 * ZONE + align);
        #[cfg(target_os = "linux")]
        if align > 64 {
            let first = (memory.as_ptr() as usize).next_multiple_of(4096);
            // SAFETY: the range lies inside the allocation, and the advice changes no contents.
            unsafe {
                libc::madvise(first as *mut libc::c_void, len + align - 4096, libc::MADV_HUGEPAGE)
            };
        }
        memory.resize(len + 2 * ZONE + align, GUARD);
        let start = (memory.as_ptr() as usize + ZONE).next_multiple_of(align);
        let start = start - memory.as_ptr() as usize;
        let mut buffer = Buffer { memory, start, len };
        // A signalling pattern: whoever uses it gets NaN.
        let garbage = 0x7fc0_dead_u32.to_le_bytes();
        for (i, b) in buffer.bytes_mut().iter_mut().enumerate() {
            *b = garbage[i % 4];
        }
        buffer
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    pub fn check(&self, what: &str) {
        let (before, rest) = self.memory.split_at(self.start);
        let outside = before.iter().chain(&rest[self.len..]);
        assert!(outside.into_iter().all(|&b| b == GUARD), "{what} was written outside its bounds");
    }
}

/// One tensor in memory as a format wants it.
pub struct Placed {
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub format: Format,
    pub buffer: Buffer,
}

fn offset(format: &Format, strides: &[i64], index: &[i64]) -> i64 {
    index
        .iter()
        .zip(strides)
        .enumerate()
        .map(|(d, (i, s))| match format.layout {
            Layout::Blocked { block, .. } if d == 1 => {
                i / i64::from(block) * s + i % i64::from(block)
            }
            _ => i * s,
        })
        .sum()
}

/// Every index of `dims` in row-major order.
pub fn indices(dims: &[i64]) -> impl Iterator<Item = Vec<i64>> + '_ {
    (0..count(dims)).map(move |mut flat| {
        let mut index = vec![0; dims.len()];
        for d in (0..dims.len()).rev() {
            index[d] = flat as i64 % dims[d];
            flat /= dims[d] as usize;
        }
        index
    })
}

impl Placed {
    pub fn garbage(dims: &[i64], format: &Format) -> Placed {
        let len = format.byte_len(dims).unwrap() as usize;
        Placed {
            dims: dims.to_vec(),
            strides: format.strides(dims).unwrap(),
            format: format.clone(),
            buffer: Buffer::new(len),
        }
    }

    /// Row-major bytes put where the format wants them; halo and missing channels are zero.
    pub fn of(tensor: &Tensor, layout: &Layout) -> Placed {
        let format = Format { dtype: tensor.dtype(), layout: layout.clone() };
        let mut placed = Placed::garbage(tensor.dims(), &format);
        placed.buffer.bytes_mut().fill(0);
        let size = format.dtype.bits() as usize / 8;
        let origin = format.origin(tensor.dims()).unwrap();
        for (i, index) in indices(tensor.dims()).enumerate() {
            let at = (origin + offset(&format, &placed.strides, &index)) as usize * size;
            placed.buffer.bytes_mut()[at..at + size]
                .copy_from_slice(&tensor.bytes()[i * size..(i + 1) * size]);
        }
        placed
    }

    /// The logical elements; checks that everything else is zero.
    pub fn read(&self) -> Tensor {
        let size = self.format.dtype.bits() as usize / 8;
        let origin = self.format.origin(&self.dims).unwrap();
        let mut rest = self.buffer.bytes().to_vec();
        let mut bytes = Vec::new();
        for index in indices(&self.dims) {
            let at = (origin + offset(&self.format, &self.strides, &index)) as usize * size;
            bytes.extend_from_slice(&self.buffer.bytes()[at..at + size]);
            rest[at..at + size].fill(0);
        }
        assert!(rest.iter().all(|&b| b == 0), "halo or missing channels are not zero");
        let storage = bricolage_tensor::Storage::copy_of(&bytes);
        Tensor::new(self.format.dtype, &self.dims, storage).unwrap()
    }

    pub fn operand(&self) -> Operand<'_> {
        let bytes = self.buffer.bytes();
        // SAFETY: the buffer outlives the operand, and tests run one kernel at a time on it.
        unsafe {
            Operand::new(
                bytes.as_ptr().cast_mut(),
                bytes.len(),
                DeviceId(0),
                &self.dims,
                &self.strides,
                &self.format,
            )
        }
    }
}

pub static TWO: LazyLock<ThreadPool> =
    LazyLock::new(|| ThreadPool::new(&PoolOptions { threads: 2, ..Default::default() }).unwrap());

/// Runs a kernel on placed operands with a garbage workspace of the declared size.
pub fn execute(
    kernel: &dyn NativeKernel,
    inputs: &[Placed],
    constants: &[Placed],
    outputs: &[Placed],
    pool: &dyn Pool,
) -> Result<(), RunError> {
    let inputs: Vec<&Placed> = inputs.iter().collect();
    let outputs: Vec<&Placed> = outputs.iter().collect();
    run(kernel, &inputs, constants, &outputs, pool)
}

/// As [`execute`], for operands that may share memory.
fn run(
    kernel: &dyn NativeKernel,
    inputs: &[&Placed],
    constants: &[Placed],
    outputs: &[&Placed],
    pool: &dyn Pool,
) -> Result<(), RunError> {
    let dims = |p: &[&Placed]| p.iter().map(|p| p.dims.clone()).collect::<Vec<_>>();
    let (ins, outs) = (dims(inputs), dims(outputs));
    let needs = kernel.needs(&Dims { inputs: &ins, outputs: &outs }, pool.threads());
    let workspace = Buffer::new(needs.workspace as usize);
    let bytes = Format::plain(DType::U8);
    let len = [workspace.len as i64];
    let inputs_: Vec<Operand<'_>> = inputs.iter().map(|p| p.operand()).collect();
    let outputs_: Vec<Operand<'_>> = outputs.iter().map(|p| p.operand()).collect();
    let constants_: Vec<Operand<'_>> = constants.iter().map(Placed::operand).collect();
    // SAFETY: the workspace lives to the end of this function.
    let workspace_ = unsafe {
        Operand::new(
            workspace.bytes().as_ptr().cast_mut(),
            workspace.len,
            DeviceId(0),
            &len,
            &[1],
            &bytes,
        )
    };
    let result = kernel.run(&mut Run {
        inputs: &inputs_,
        outputs: &outputs_,
        constants: &constants_,
        workspace: workspace_,
        pool,
        queue: Queue(0),
        cancel: &Cancel::default(),
    });
    workspace.check("the workspace");
    let constants: Vec<&Placed> = constants.iter().collect();
    for (what, list) in [("an input", inputs), ("an output", outputs), ("a constant", &constants)] {
        for p in list {
            p.buffer.check(what);
        }
    }
    result
}

/// The packed constants as operands.
pub fn pack(kernel: &dyn NativeKernel, raw: &[Tensor]) -> Vec<Placed> {
    kernel
        .pack(raw)
        .unwrap()
        .into_iter()
        .map(|p| {
            let mut buffer = Buffer::new(p.bytes.len());
            buffer.bytes_mut().copy_from_slice(&p.bytes);
            let strides = match p.format.layout {
                Layout::Opaque(_) => vec![1; p.dims.len()],
                _ => p.format.strides(&p.dims).unwrap(),
            };
            Placed { dims: p.dims, strides, format: p.format, buffer }
        })
        .collect()
}

/// The sets that this machine has.
pub fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.iter().copied().filter(|i| i.is_available())
}

/// Builds the spec for every set, through its recipe, runs it on one and two threads, and hands every
/// result to `verify`.
pub fn run_all(
    spec: &Spec,
    inputs: &[(Tensor, Layout)],
    raw: &[Tensor],
    outputs: &[(Vec<i64>, Format)],
    mut verify: impl FnMut(&str, &[Tensor]),
) {
    for isa in isas() {
        let portable_f6 = matches!(spec, Spec::Conv(c) if c.algorithm
            == bricolage_kernels::ConvAlgorithm::Winograd { tile: 6 });
        if isa == Isa::Portable && portable_f6 {
            continue;
        }
        let built = spec.build(isa).unwrap_or_else(|e| panic!("{e}: {spec:?}"));
        let kernel: Arc<dyn NativeKernel> = rebuild(&built.recipe()).unwrap();
        assert_eq!((kernel.name(), kernel.spec()), (built.name(), spec.clone()));
        let constants = pack(&*kernel, raw);
        for pool in [&Serial as &dyn Pool, &*TWO] {
            let placed: Vec<Placed> = inputs.iter().map(|(t, l)| Placed::of(t, l)).collect();
            let before: Vec<Vec<u8>> = placed.iter().map(|p| p.buffer.bytes().to_vec()).collect();
            let results: Vec<Placed> = outputs.iter().map(|(d, f)| Placed::garbage(d, f)).collect();
            execute(&*kernel, &placed, &constants, &results, pool)
                .unwrap_or_else(|e| panic!("{e}: {spec:?}"));
            for (p, b) in placed.iter().zip(&before) {
                assert_eq!(p.buffer.bytes(), b, "an input was changed");
            }
            let results: Vec<Tensor> = results.iter().map(Placed::read).collect();
            let what = format!("{} on {} threads: {spec:?}", kernel.name(), pool.threads());
            verify(&what, &results);
            let dims = |p: &[Placed]| p.iter().map(|p| p.dims.clone()).collect::<Vec<_>>();
            let outs: Vec<_> = outputs.iter().map(|(d, _)| d.clone()).collect();
            let needs =
                kernel.needs(&Dims { inputs: &dims(&placed), outputs: &outs }, pool.threads());
            for (output, input) in needs.in_place {
                over(&*kernel, (inputs, &constants), outputs, (output, input), pool, |found| {
                    verify(&format!("in place over input {input}, {what}"), found);
                });
            }
        }
    }
}

/// Runs with an output over an input of the same dims and format.
fn over(
    kernel: &dyn NativeKernel,
    (inputs, constants): (&[(Tensor, Layout)], &[Placed]),
    outputs: &[(Vec<i64>, Format)],
    (output, input): (usize, usize),
    pool: &dyn Pool,
    verify: impl FnOnce(&[Tensor]),
) {
    let placed: Vec<Placed> = inputs.iter().map(|(t, l)| Placed::of(t, l)).collect();
    let shared = &placed[input];
    if (&shared.dims, &shared.format) != (&outputs[output].0, &outputs[output].1) {
        return;
    }
    let results: Vec<Placed> = outputs.iter().map(|(d, f)| Placed::garbage(d, f)).collect();
    let written: Vec<&Placed> =
        (0..results.len()).map(|i| if i == output { shared } else { &results[i] }).collect();
    run(kernel, &placed.iter().collect::<Vec<_>>(), constants, &written, pool)
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    verify(&written.iter().map(|p| p.read()).collect::<Vec<_>>());
}

/// Asserts `|found - wanted| <= tolerance` for every element.
pub fn assert_close(what: &str, found: &Tensor, wanted: &[f64], tolerance: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, &f) in found.elements::<f32>().iter().enumerate() {
        let (w, t) = (wanted[i], tolerance[i]);
        let same = f64::from(f) == w || (f.is_nan() && w.is_nan());
        assert!(
            same || (f64::from(f) - w).abs() <= t,
            "{what}: element {i} of {:?} is {f}, needed {w} +- {t:e}",
            found.dims()
        );
    }
}

/// Half the distance between neighbouring `f32` numbers at 1.
pub const U: f64 = 5.960_464_477_539_063e-8;

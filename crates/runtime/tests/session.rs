//! A session runs a plan as written: right places, nothing allocated, faults named.
#![allow(unsafe_code)] // a counting allocator and a kernel over raw operands

use bricolage_runtime::{
    Action, Buffer, BufferId, Dims, Kernel, KernelSource, Needs, Place, Plan, PoolOptions, Port,
    Program, Queue, Recipe, Run, RunError, RunStep, Serial, Session, SessionError, Step,
    ThreadPool, Trace,
};
use bricolage_tensor::{DType, Format, Storage, Tensor, TensorType};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

struct Counting;
thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });
// SAFETY: forwards to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
#[global_allocator]
static COUNTING: Counting = Counting;

/// `out[i] = in[i] + constant[0]`, by way of the workspace; fails on a negative element.
struct AddConstant;
impl Kernel for AddConstant {
    fn name(&self) -> &str {
        "test-add-constant"
    }
    fn needs(&self, dims: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 4 * dims.inputs[0][0] as u64, ..Needs::default() }
    }
    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let n = run.inputs[0].dims[0] as usize;
        // SAFETY: the plan of the tests below gives operands of `n` floats.
        unsafe {
            let from = run.inputs[0].as_ptr().cast::<f32>();
            let scratch = run.workspace.as_mut_ptr().cast::<f32>();
            let to = run.outputs[0].as_mut_ptr().cast::<f32>();
            let constant = *run.constants[0].as_ptr().cast::<f32>();
            for i in 0..n {
                if *from.add(i) < 0.0 {
                    return Err(RunError::Domain {
                        kernel: self.name().into(),
                        why: format!("element {i} is negative"),
                    });
                }
                *scratch.add(i) = *from.add(i);
            }
            for i in 0..n {
                *to.add(i) = *scratch.add(i) + constant;
            }
        }
        Ok(())
    }
    fn recipe(&self) -> Recipe {
        Recipe { backend: "test".into(), kernel: self.name().into(), body: vec![] }
    }
}

fn buffer(name: &str, place: Place, n: i64) -> Buffer {
    let format = Format::plain(DType::F32);
    Buffer { name: name.into(), place, len: 4 * n as u64, dims: vec![n], strides: vec![1], format }
}

/// x -> +c -> arena -> +c -> y, then y copied to z.
fn plan() -> Plan {
    let run = |input, output| Step {
        action: Action::Run(RunStep {
            kernel: 0,
            inputs: vec![BufferId(input)],
            outputs: vec![BufferId(output)],
            constants: vec![BufferId(4)],
            workspace: 64,
            workspace_len: 16,
            threads: 1,
            origin: vec![format!("/add_{output}")],
        }),
        queue: Queue(0),
        waits: vec![],
    };
    let copy = Action::Copy { from: BufferId(2), to: BufferId(3) };
    let port = |name: &str| Port { name: name.into(), ty: TensorType::fixed(DType::F32, &[4]) };
    Plan {
        name: "test".into(),
        threads: 1,
        inputs: vec![port("x")],
        outputs: vec![port("y"), port("z")],
        buffers: vec![
            buffer("x", Place::Input(0), 4),
            buffer("t", Place::Arena(0), 4),
            buffer("y", Place::Output(0), 4),
            buffer("z", Place::Output(1), 4),
            buffer("c", Place::Constant(0), 1),
        ],
        kernels: vec![KernelSource { recipe: AddConstant.recipe(), built_in: vec![] }],
        steps: vec![run(0, 1), run(1, 2), Step { action: copy, queue: Queue(0), waits: vec![] }],
        arena: 80,
        weights: 4,
    }
}

fn session(plan: Plan) -> Result<Session, SessionError> {
    let weights = Storage::copy_of(&0.5f32.to_ne_bytes());
    let program = Program::new(plan, vec![Arc::new(AddConstant)], weights)?;
    Session::open(Arc::new(program), Arc::new(Serial))
}

#[test]
fn runs_what_the_plan_says() {
    let mut session = session(plan()).unwrap();
    session.arena_mut().bytes_mut().fill(0xAB);
    let out = session.run(&[Tensor::of(&[4], &[1f32, 2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(out[0], Tensor::of(&[4], &[2f32, 3.0, 4.0, 5.0]));
    assert_eq!(out[1], out[0]);
    assert!(session.arena().bytes()[16..64].iter().all(|&b| b == 0xAB), "nothing else is touched");
}

/// Writes how many threads it is lent.
struct CountThreads;
impl Kernel for CountThreads {
    fn name(&self) -> &str {
        "test-count-threads"
    }
    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs::default()
    }
    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        // SAFETY: the plan of the test below gives operands of 4 floats.
        unsafe { *run.outputs[0].as_mut_ptr().cast::<f32>() = run.pool.threads() as f32 };
        Ok(())
    }
    fn recipe(&self) -> Recipe {
        AddConstant.recipe()
    }
}

#[test]
fn a_step_for_one_thread_is_lent_no_other() {
    for (threads, lent) in [(3, 3.0), (1, 1.0)] {
        let mut plan = plan();
        plan.threads = 3;
        if let Action::Run(last) = &mut plan.steps[1].action {
            last.threads = threads;
        }
        let weights = Storage::copy_of(&0.5f32.to_ne_bytes());
        let program = Program::new(plan, vec![Arc::new(CountThreads)], weights).unwrap();
        let pool = ThreadPool::new(&PoolOptions { threads: 3, ..PoolOptions::default() }).unwrap();
        let mut session = Session::open(Arc::new(program), Arc::new(pool)).unwrap();
        let out = session.run(&[Tensor::of(&[4], &[1f32; 4])]).unwrap();
        assert_eq!(out[0].elements::<f32>()[0], lent);
    }
}

#[test]
fn a_run_allocates_nothing() {
    let mut session = session(plan()).unwrap();
    let x = Tensor::of(&[4], &[1f32; 4]);
    let (mut y, mut z) = (vec![0u64; 2], vec![0u64; 2]);
    let mut trace = Trace::with_capacity(3);
    let bytes = |v: &mut Vec<u64>| -> &'static mut [u8] {
        // SAFETY: the vectors outlive the run below.
        unsafe { std::slice::from_raw_parts_mut(v.as_mut_ptr().cast(), 16) }
    };
    let before = ALLOCATIONS.with(Cell::get);
    session.run_into(&[x.bytes()], &mut [bytes(&mut y), bytes(&mut z)], Some(&mut trace)).unwrap();
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    assert_eq!(trace.spans().len(), 3);
    assert_eq!(y, z);
}

#[test]
fn faults_are_named() {
    let mut open = session(plan()).unwrap();
    let negative = open.run(&[Tensor::of(&[4], &[1f32, -2.0, 3.0, 4.0])]).unwrap_err();
    assert_eq!(
        negative.to_string(),
        "step 0 (/add_1): kernel `test-add-constant` cannot compute this: element 1 is negative"
    );
    let wrong = open.run(&[Tensor::of(&[3], &[1f32; 3])]).unwrap_err();
    assert_eq!(wrong.to_string(), "`x` needs f32[4], found f32[3]");
    assert!(matches!(open.run(&[]), Err(SessionError::Count { needed: 1, found: 0, .. })));
}

#[test]
fn damaged_plans_do_not_open() {
    let damage: [fn(&mut Plan); 7] = [
        |p| p.buffers[1].place = Place::Arena(72),
        |p| p.buffers[1].place = Place::Arena(u64::MAX),
        |p| p.buffers[0].len = 20,
        |p| p.arena = 70,
        |p| p.buffers[4].place = Place::Constant(1),
        |p| p.weights = 8,
        |p| p.steps[2].action = Action::Copy { from: BufferId(4), to: BufferId(9) },
    ];
    for (i, damage) in damage.iter().enumerate() {
        let mut plan = plan();
        damage(&mut plan);
        assert!(session(plan).is_err(), "damage {i} was not seen");
    }
}

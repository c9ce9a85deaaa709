//! The models of the zoo: the arena is what the plan predicts, and a run touches nothing else.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{Goal, check, emit, inputs, place_unmeasured, pool, rewrite};
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_runtime::{Program, Session};
use std::sync::Arc;

/// Bytes behind the arena that no step may write.
const RED_ZONE: u64 = 64 << 10;

#[test]
fn a_run_stays_inside_the_predicted_memory() {
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let goal = Goal::new(2);
    for entry in bricolage_zoo::list() {
        let name = entry.name;
        let graph = rewrite(bricolage_zoo::build(name, 1, 0).unwrap()).unwrap().graph;
        let placed = place_unmeasured(&registry, &graph, &goal).unwrap();
        let emitted = emit(&graph, &placed, &registry, &goal.setting()).unwrap();
        check(&graph, &placed, &emitted.plan, &emitted.kernels).unwrap();
        let predicted = emitted.plan.arena;
        assert!(
            predicted as f64 <= 1.1 * emitted.live_peak as f64,
            "{name}: an arena of {predicted} bytes for {} alive",
            emitted.live_peak
        );
        let mut plan = emitted.plan.clone();
        plan.arena += RED_ZONE;
        let program =
            Program::new(plan, emitted.kernels.clone(), emitted.weights.to_storage()).unwrap();
        let mut session = Session::open(Arc::new(program), pool(2).unwrap()).unwrap();
        let given = inputs::sample_inputs(&graph, 0).unwrap();
        let mut first = None;
        for pattern in [0x00, 0xFF, 0xA5] {
            session.arena_mut().bytes_mut().fill(pattern);
            let outputs = session.run(&given).unwrap();
            let behind = &session.arena().bytes()[predicted as usize..];
            assert!(behind.iter().all(|&b| b == pattern), "{name}: wrote behind its arena");
            let first = first.get_or_insert_with(|| outputs.clone());
            assert!(*first == outputs, "{name}: what the arena held before changes the result");
        }
    }
}

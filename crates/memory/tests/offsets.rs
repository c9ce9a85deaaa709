//! The judge of offset planning: checks every pair of blocks, and tries every order on small sets.

use bricolage_memory::{Block, assign_offsets, live_peak};
use proptest::prelude::*;

fn blocks(most: usize) -> impl Strategy<Value = Vec<Block>> {
    let block = (0u64..40, 0usize..12, 0usize..5).prop_map(|(size, first, length)| Block {
        size: size * 64,
        first,
        last: first + length,
    });
    proptest::collection::vec(block, 0..most)
}

/// Sum of the sizes in use at each step, step by step.
fn naive_peak(blocks: &[Block]) -> u64 {
    let at =
        |step| blocks.iter().filter(|b| b.first <= step && step <= b.last).map(|b| b.size).sum();
    (0..32).map(at).max().unwrap_or(0)
}

/// The smallest arena that lowest-gap placement reaches over all orders: the optimum for such sets.
fn best_of_all_orders(blocks: &[Block]) -> u64 {
    fn place(blocks: &[Block], placed: &mut Vec<(usize, u64)>, best: &mut u64, top: u64) {
        if top >= *best {
            return;
        }
        if placed.len() == blocks.len() {
            *best = top;
            return;
        }
        for i in 0..blocks.len() {
            if placed.iter().any(|&(p, _)| p == i) {
                continue;
            }
            let b = blocks[i];
            let clash = |at: u64| {
                placed.iter().any(|&(p, offset)| {
                    let o = blocks[p];
                    b.first <= o.last
                        && o.first <= b.last
                        && at < offset + o.size
                        && offset < at + b.size
                })
            };
            let mut at = 0;
            while clash(at) {
                at += 64;
            }
            placed.push((i, at));
            place(blocks, placed, best, top.max(at + b.size));
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    place(blocks, &mut Vec::new(), &mut best, 0);
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_live_blocks_overlap(blocks in blocks(40)) {
        let placed = assign_offsets(&blocks, 64);
        prop_assert_eq!(live_peak(&blocks), naive_peak(&blocks));
        prop_assert!(placed.total >= live_peak(&blocks));
        for (i, a) in blocks.iter().enumerate() {
            prop_assert_eq!(placed.offsets[i] % 64, 0);
            prop_assert!(placed.offsets[i] + a.size <= placed.total);
            for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let apart = placed.offsets[i] + a.size <= placed.offsets[j]
                    || placed.offsets[j] + b.size <= placed.offsets[i];
                prop_assert!(!together || apart, "{a:?} and {b:?} overlap");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_sets_come_close_to_the_optimum(blocks in blocks(7)) {
        prop_assume!(!blocks.is_empty());
        let (found, best) = (assign_offsets(&blocks, 64).total, best_of_all_orders(&blocks));
        prop_assert!(found as f64 <= 1.10 * best as f64, "{found} against {best}");
    }
}

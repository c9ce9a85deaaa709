//! Offset planning: blocks with fixed lifetimes get addresses in one arena.
//!
//! The problem is dynamic storage allocation (NP-hard). First fit is run over several orders
//! (Sekiyama et al., *Profile-guided memory optimization for deep neural networks*, use the
//! longest-lived first; Pisarchyk and Lee, *Efficient memory management for deep neural net
//! inference*, the largest first), and the best order is then improved by moving forward the
//! blocks that stand at the top of the arena, until the live peak is met or rounds run out. Where very
//! many blocks live at once, meetings run out before rounds do.

/// A range of bytes needed from step `first` to step `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes.
    pub size: u64,
    /// First step at which the bytes are in use.
    pub first: usize,
    /// Last step at which the bytes are in use.
    pub last: usize,
}

impl Block {
    fn meets(&self, other: &Block) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// An address for every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// First byte of each block.
    pub offsets: Vec<u64>,
    /// Bytes of the arena: the largest end of a block.
    pub total: u64,
}

/// The largest number of bytes in use at one step: a lower bound for every arena.
pub fn live_peak(blocks: &[Block]) -> u64 {
    let mut changes: Vec<(usize, bool, u64)> = Vec::with_capacity(2 * blocks.len());
    for b in blocks {
        changes.push((b.first, false, b.size));
        changes.push((b.last + 1, true, b.size));
    }
    // At one step, bytes that end before it leave before those that begin at it come.
    changes.sort_by_key(|&(step, ends, _)| (step, !ends));
    let (mut now, mut peak) = (0u64, 0u64);
    for (_, ends, size) in changes {
        now = if ends { now - size } else { now + size };
        peak = peak.max(now);
    }
    peak
}

const ROUNDS: usize = 200;
/// Blocks that may be met over all rounds: about a second's work.
const MEETINGS: usize = 100_000_000;

/// Assigns offsets that are multiples of `alignment`, so that no two blocks that are in use at the
/// same step overlap. Deterministic. Sizes are rounded up to the alignment.
pub fn assign_offsets(blocks: &[Block], alignment: u64) -> Offsets {
    let rounded: Vec<Block> =
        blocks.iter().map(|b| Block { size: b.size.next_multiple_of(alignment), ..*b }).collect();
    let bound = live_peak(&rounded);
    let by = |key: &dyn Fn(&Block) -> (u64, u64)| {
        let mut order: Vec<usize> = (0..rounded.len()).collect();
        order.sort_by_key(|&i| {
            let (major, minor) = key(&rounded[i]);
            (u64::MAX - major, u64::MAX - minor, i)
        });
        order
    };
    let span = |b: &Block| (b.last - b.first + 1) as u64;
    let orders = [
        by(&|b| (b.size, span(b))),
        by(&|b| (span(b), b.size)),
        by(&|b| (b.size.saturating_mul(span(b)), b.size)),
        by(&|b| (u64::MAX - b.first as u64, b.size)),
        by(&|b| (b.last as u64, b.size)),
    ];
    let mut best = (Vec::new(), Offsets { offsets: Vec::new(), total: u64::MAX });
    let mut meetings = 0;
    for order in orders {
        let found = first_fit(&rounded, &order, &mut meetings);
        if found.total < best.1.total {
            best = (order, found);
        }
    }
    let mut current = best.clone();
    for _ in 0..ROUNDS {
        if best.1.total <= bound || meetings >= MEETINGS {
            break;
        }
        // The blocks at the top go first; what lay under them finds its place around them.
        let (order, placed) = &current;
        let at_top = |&i: &usize| placed.offsets[i] + rounded[i].size == placed.total;
        let mut next: Vec<usize> = order.iter().copied().filter(|i| at_top(i)).collect();
        next.extend(order.iter().copied().filter(|i| !at_top(i)));
        if next == *order {
            // They already go first: a neighbour in time gives way instead.
            let top = order[0];
            let Some(other) = order[1..].iter().position(|&i| rounded[i].meets(&rounded[top]))
            else {
                break;
            };
            next.swap(0, other + 1);
        }
        let found = first_fit(&rounded, &next, &mut meetings);
        if found.total < best.1.total {
            best = (next.clone(), found.clone());
        }
        current = (next, found);
    }
    if blocks.is_empty() { Offsets { offsets: Vec::new(), total: 0 } } else { best.1 }
}

/// Places blocks in `order`, each at the lowest gap between those placed before that live with it, and counts
/// those that it looks at.
fn first_fit(blocks: &[Block], order: &[usize], meetings: &mut usize) -> Offsets {
    let mut offsets = vec![0; blocks.len()];
    let mut placed = Timeline::new(blocks.iter().map(|b| b.last + 1).max().unwrap_or(0));
    let mut met: Vec<usize> = Vec::new();
    let mut total = 0;
    for &i in order.iter().filter(|&&i| blocks[i].size > 0) {
        met.clear();
        placed.meeting(&blocks[i], &mut met);
        *meetings += met.len();
        met.sort_unstable_by_key(|&p| offsets[p]);
        let mut at = 0;
        for &p in &met {
            if at + blocks[i].size <= offsets[p] {
                break;
            }
            at = at.max(offsets[p] + blocks[p].size);
        }
        offsets[i] = at;
        placed.insert(i, &blocks[i]);
        total = total.max(at + blocks[i].size);
    }
    Offsets { offsets, total }
}

/// Blocks by the steps at which they live: a segment tree over the steps, each block in the few
/// ranges that make up its life (Bentley, *Solutions to Klee's rectangle problems*, 1977).
struct Timeline {
    /// Number of leaves, a power of two; the ranges below range `r` are `2 r` and `2 r + 1`.
    leaves: usize,
    /// Blocks whose life holds the whole range.
    here: Vec<Vec<usize>>,
    /// Whether a block is here or in a range below.
    any: Vec<bool>,
}

impl Timeline {
    fn new(steps: usize) -> Timeline {
        let leaves = steps.next_power_of_two();
        Timeline { leaves, here: vec![Vec::new(); 2 * leaves], any: vec![false; 2 * leaves] }
    }

    fn insert(&mut self, block: usize, life: &Block) {
        let (mut low, mut high) = (life.first + self.leaves, life.last + self.leaves + 1);
        while low < high {
            if low % 2 == 1 {
                self.hold(low, block);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.hold(high, block);
            }
            (low, high) = (low / 2, high / 2);
        }
    }

    fn hold(&mut self, mut range: usize, block: usize) {
        self.here[range].push(block);
        while range > 0 && !self.any[range] {
            self.any[range] = true;
            range /= 2;
        }
    }

    /// Adds every block that lives at a step of `life` to `found`, some more than once.
    fn meeting(&self, life: &Block, found: &mut Vec<usize>) {
        let mut open = vec![(1, 0, self.leaves)];
        while let Some((range, first, len)) = open.pop() {
            if !self.any[range] || first > life.last || first + len <= life.first {
                continue;
            }
            found.extend(&self.here[range]);
            if len > 1 {
                let half = len / 2;
                open.extend([(2 * range, first, half), (2 * range + 1, first + half, half)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_finds_exactly_those_that_meet() {
        let mut seed = 7u64;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        for steps in [1, 2, 7, 40] {
            let mut timeline = Timeline::new(steps);
            let mut blocks: Vec<Block> = Vec::new();
            for i in 0..60 {
                let first = below(steps);
                let block = Block { size: 1, first, last: first + below(steps - first) };
                let mut found = Vec::new();
                timeline.meeting(&block, &mut found);
                found.sort_unstable();
                found.dedup();
                let expected: Vec<usize> = (0..i).filter(|&j| blocks[j].meets(&block)).collect();
                assert_eq!(found, expected);
                timeline.insert(i, &block);
                blocks.push(block);
            }
        }
    }
}

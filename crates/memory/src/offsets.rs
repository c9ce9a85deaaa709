//! Offset planning: blocks with fixed lifetimes get addresses in one arena.
//!
//! The problem is dynamic storage allocation (NP-hard). First fit is run over several orders
//! (Sekiyama et al., *Profile-guided memory optimization for deep neural networks*, use the
//! longest-lived first; Pisarchyk and Lee, *Efficient memory management for deep neural net
//! inference*, the largest first), and the best order is then improved by moving forward the
//! blocks that stand at the top of the arena, until the live peak is met or rounds run out.

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
    for order in orders {
        let found = first_fit(&rounded, &order);
        if found.total < best.1.total {
            best = (order, found);
        }
    }
    let mut current = best.clone();
    for _ in 0..ROUNDS {
        if best.1.total <= bound {
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
        let found = first_fit(&rounded, &next);
        if found.total < best.1.total {
            best = (next.clone(), found.clone());
        }
        current = (next, found);
    }
    if blocks.is_empty() { Offsets { offsets: Vec::new(), total: 0 } } else { best.1 }
}

/// Places blocks in `order`, each at the lowest gap between those placed before that live with it.
fn first_fit(blocks: &[Block], order: &[usize]) -> Offsets {
    let mut offsets = vec![0; blocks.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(blocks.len());
    let mut total = 0;
    for &i in order {
        let mut at = 0;
        // `placed` is sorted by offset.
        for &p in &placed {
            if blocks[p].size == 0 || !blocks[p].meets(&blocks[i]) {
                continue;
            }
            if at + blocks[i].size <= offsets[p] {
                break;
            }
            at = at.max(offsets[p] + blocks[p].size);
        }
        offsets[i] = at;
        let position = placed.partition_point(|&p| offsets[p] <= at);
        placed.insert(position, i);
        total = total.max(at + blocks[i].size);
    }
    Offsets { offsets, total }
}

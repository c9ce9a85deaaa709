//! From steps that read and write values to lifetimes, shared bytes and an arena.

use crate::{Block, assign_offsets, live_peak};

/// A value that steps read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Bytes.
    pub bytes: u64,
    /// Whether its bytes lie outside the arena: a caller's input or output, or a constant.
    pub external: bool,
    /// The value whose bytes it names again under another shape, if it is a view.
    pub view_of: Option<usize>,
}

/// What one step does to values, by index into [`Schedule::values`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Values read.
    pub reads: Vec<usize>,
    /// Values written, each by one step only.
    pub writes: Vec<usize>,
    /// Bytes of workspace during the step.
    pub workspace: u64,
    /// Pairs (written value, read value) that may share bytes.
    pub in_place: Vec<(usize, usize)>,
}

/// Steps in their order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Every value that a step names.
    pub values: Vec<Held>,
    /// In order.
    pub steps: Vec<Use>,
}

/// Where everything lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// First byte in the arena of each value; `None` when it lies outside.
    pub offsets: Vec<Option<u64>>,
    /// First byte of each step's workspace.
    pub workspaces: Vec<u64>,
    /// Bytes of the arena.
    pub arena: u64,
    /// The largest sum of bytes in use at one step, workspace included.
    pub live_peak: u64,
    /// Pairs (written value, read value) that do share bytes.
    pub shared: Vec<(usize, usize)>,
}

/// The value whose block `v` lives in; the way there is shortened.
fn root(class: &mut [usize], mut v: usize) -> usize {
    while class[v] != v {
        class[v] = class[class[v]];
        v = class[v];
    }
    v
}

/// Gives every value and workspace of `schedule` a place; offsets are multiples of `alignment`.
///
/// A written value takes over the bytes of a read one where the step allows it, the read one is
/// dead afterwards, lies in the arena and has at least as many bytes.
pub fn fit(schedule: &Schedule, alignment: u64) -> Fitted {
    let n = schedule.values.len();
    // The class of a value is the value whose block it lives in.
    let mut class: Vec<usize> = (0..n).collect();
    for (v, held) in schedule.values.iter().enumerate() {
        if let Some(of) = held.view_of {
            class[v] = class[of];
        }
    }
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; n];
    for (step, used) in schedule.steps.iter().enumerate() {
        for &v in used.reads.iter().chain(&used.writes) {
            let (first, _) = lives[class[v]].unwrap_or((step, step));
            lives[class[v]] = Some((first, step));
        }
    }
    let mut shared = Vec::new();
    for (step, used) in schedule.steps.iter().enumerate() {
        for &(written, read) in &used.in_place {
            let (to, from) = (root(&mut class, written), root(&mut class, read));
            let reusable = to == written
                && to != from
                && [to, from].iter().all(|&c| !schedule.values[c].external)
                && lives[from].is_some_and(|(_, last)| last == step)
                && lives[to].is_some_and(|(first, _)| first == step)
                && schedule.values[to].bytes <= schedule.values[from].bytes
                // The bytes may be read once only by this step, or the kernel would see them change.
                && used.reads.iter().filter(|&&r| root(&mut class, r) == from).count() == 1;
            if reusable {
                lives[from] =
                    lives[from].zip(lives[to]).map(|((first, _), (_, last))| (first, last));
                class[to] = from;
                shared.push((written, read));
            }
        }
    }
    for v in 0..n {
        class[v] = root(&mut class, v);
    }
    let mut blocks = Vec::new();
    let mut block_of = vec![None; n];
    for v in 0..n {
        if let (true, false, Some((first, last))) =
            (class[v] == v, schedule.values[v].external, lives[v])
        {
            block_of[v] = Some(blocks.len());
            blocks.push(Block { size: schedule.values[v].bytes, first, last });
        }
    }
    let values_end = blocks.len();
    for (step, used) in schedule.steps.iter().enumerate() {
        blocks.push(Block { size: used.workspace, first: step, last: step });
    }
    let placed = assign_offsets(&blocks, alignment);
    Fitted {
        offsets: (0..n).map(|v| block_of[class[v]].map(|b| placed.offsets[b])).collect(),
        workspaces: placed.offsets[values_end..].to_vec(),
        arena: placed.total,
        live_peak: live_peak(&blocks),
        shared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u64) -> Held {
        Held { bytes, external: false, view_of: None }
    }

    #[test]
    fn a_chain_in_place_needs_one_block() {
        let step =
            |r, w| Use { reads: vec![r], writes: vec![w], in_place: vec![(w, r)], workspace: 0 };
        let schedule =
            Schedule { values: vec![held(64); 4], steps: vec![step(0, 1), step(1, 2), step(2, 3)] };
        let fitted = fit(&schedule, 64);
        assert_eq!((fitted.arena, fitted.live_peak), (64, 64));
        assert_eq!(fitted.shared.len(), 3);
    }

    #[test]
    fn a_value_that_is_read_later_is_not_overwritten() {
        let steps = vec![
            Use { reads: vec![0], writes: vec![1], in_place: vec![(1, 0)], workspace: 0 },
            Use { reads: vec![0, 1], writes: vec![2], in_place: vec![(2, 0)], workspace: 128 },
        ];
        let fitted = fit(&Schedule { values: vec![held(64); 3], steps }, 64);
        assert_eq!(fitted.shared, [(2, 0)]);
        assert_eq!(fitted.live_peak, 64 + 64 + 128);
    }

    #[test]
    fn a_view_keeps_its_base_alive() {
        let mut values = vec![held(64); 4];
        values[1].view_of = Some(0);
        let steps = vec![
            Use { writes: vec![0], ..Use::default() },
            Use { reads: vec![0], writes: vec![2], in_place: vec![(2, 0)], ..Use::default() },
            Use { reads: vec![1, 2], writes: vec![3], ..Use::default() },
        ];
        let fitted = fit(&Schedule { values, steps }, 64);
        assert!(fitted.shared.is_empty());
        assert_eq!(fitted.offsets[0], fitted.offsets[1]);
        assert_eq!(fitted.live_peak, 192);
    }

    #[test]
    fn one_operand_read_twice_is_not_overwritten() {
        let steps = vec![
            Use { writes: vec![0], ..Use::default() },
            Use { reads: vec![0, 0], writes: vec![1], in_place: vec![(1, 0)], ..Use::default() },
        ];
        assert!(fit(&Schedule { values: vec![held(8); 2], steps }, 64).shared.is_empty());
    }
}

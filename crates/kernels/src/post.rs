//! Epilogues: what happens to a contraction's sums before they are written.

use crate::{
    simd::{LANES, Simd},
    tile::{ACCUMULATE, CLAMP, MAX_COLS, MAX_ROWS, RESIDUAL, TileArgs, TileFn},
    unary::{MapUnary, Unary},
};
use serde::{Deserialize, Serialize};
use std::mem::MaybeUninit;

/// One step of an epilogue, after the bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Post {
    /// Adds the residual: an input of the output's dims and format, at most once in an epilogue.
    Add,
    /// Applies a function.
    Unary(Unary),
}

/// An epilogue made ready: simple ones stay in the tile's registers.
#[derive(Clone, Debug)]
pub(crate) struct Epilogue {
    posts: Vec<Post>,
    /// Flags and bounds when the epilogue is an optional addition, then clamps.
    simple: Option<(u32, f32, f32)>,
}

impl Epilogue {
    pub(crate) fn new(posts: &[Post]) -> Epilogue {
        let (mut flags, mut low, mut high) = (0, f32::NEG_INFINITY, f32::INFINITY);
        let mut simple = true;
        for (i, post) in posts.iter().enumerate() {
            match post {
                Post::Add if i == 0 => flags |= RESIDUAL,
                Post::Add => simple = false,
                Post::Unary(unary) => match unary.as_clamp() {
                    Some((min, max)) => {
                        flags |= CLAMP;
                        low = low.max(min).min(max);
                        high = high.max(min).min(max);
                    }
                    None => simple = false,
                },
            }
        }
        Epilogue { posts: posts.to_vec(), simple: simple.then_some((flags, low, high)) }
    }

    /// Whether there is an [`Post::Add`].
    pub(crate) fn adds(&self) -> bool {
        adds(&self.posts)
    }

    pub(crate) fn simple(&self) -> Option<(u32, f32, f32)> {
        self.simple
    }

    /// Whether the result is written before the epilogue, and so must not lie over the residual: a
    /// function costs several times less over a long row than over the vectors of one tile.
    pub(crate) fn is_late(&self) -> bool {
        self.simple.is_none()
    }

    /// Applies all steps to `len` elements at `x`, with the residual's elements at `r`.
    ///
    /// # Safety
    /// Both are valid for `len` elements; `r` only matters when there is an addition.
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(&self, x: *mut f32, r: *const f32, len: usize) {
        for post in &self.posts {
            match *post {
                Post::Add => {
                    for i in 0..len {
                        *x.add(i) += *r.add(i);
                    }
                }
                Post::Unary(op) => S::enter(MapUnary { op, src: x, dst: x, len }),
            }
        }
    }
}

impl Epilogue {
    /// As [`Epilogue::apply`], for `count` vectors at the given distances in elements.
    ///
    /// # Safety
    /// As for [`Epilogue::apply`].
    #[inline(always)]
    pub(crate) unsafe fn apply_vectors<S: Simd>(
        &self,
        (x, step): (*mut f32, usize),
        (r, r_step): (*const f32, usize),
        count: usize,
    ) {
        if step == LANES && (r_step == LANES || !self.adds()) {
            return self.apply::<S>(x, r, count * LANES);
        }
        const TOGETHER: usize = 32;
        let mut sums = MaybeUninit::<[f32; TOGETHER * LANES]>::uninit();
        let mut addend = MaybeUninit::<[f32; TOGETHER * LANES]>::uninit();
        let (to, add) = (sums.as_mut_ptr().cast::<f32>(), addend.as_mut_ptr().cast::<f32>());
        for first in (0..count).step_by(TOGETHER) {
            let some = (count - first).min(TOGETHER);
            for i in 0..some {
                S::store(to.add(i * LANES), S::load(x.add((first + i) * step)));
                if self.adds() {
                    S::store(add.add(i * LANES), S::load(r.add((first + i) * r_step)));
                }
            }
            self.apply::<S>(to, add, some * LANES);
            for i in 0..some {
                S::store(x.add((first + i) * step), S::load(to.add(i * LANES)));
            }
        }
    }
}

/// Whether a residual is added.
pub(crate) fn adds(posts: &[Post]) -> bool {
    posts.contains(&Post::Add)
}

/// Where a tile's columns go: channel `c` of row `m` lies at `c[m] + (c / 8) * block + c % 8`.
pub(crate) struct Target {
    /// First element of each row's channel 0, in result and addend.
    pub(crate) c: [*mut f32; MAX_ROWS],
    pub(crate) r: [*const f32; MAX_ROWS],
    /// Distance between blocks of eight channels; 8 when all channels are neighbours.
    pub(crate) block: usize,
    /// First channel of the tile.
    pub(crate) first: usize,
    /// Channels of the tile that exist.
    pub(crate) count: usize,
    /// Channels after the existing ones that are to be zero.
    pub(crate) pad: usize,
}

impl Target {
    #[inline(always)]
    fn at(&self, channel: usize) -> usize {
        let c = self.first + channel;
        c / LANES * self.block + c % LANES
    }
}

/// What the tile's sums mean: the first and the last part of the sum over k.
#[derive(Clone, Copy)]
pub(crate) struct Phase {
    /// Starts from the bias.
    pub(crate) first: bool,
    /// Ends with the epilogue.
    pub(crate) last: bool,
}

/// Runs `tile` on `rows` rows and `cols` columns with rows of the right factor set in `args`, and puts
/// the result where `target` says.
///
/// # Safety
/// `args` is filled but for results and flags, and `target` points at valid memory.
#[inline(always)]
pub(crate) unsafe fn run_tile<S: Simd>(
    tile: TileFn,
    args: &mut TileArgs,
    rows: usize,
    cols: usize,
    target: &Target,
    epilogue: &Epilogue,
    phase: Phase,
) {
    let whole =
        target.count == cols && (target.block == LANES || target.first.is_multiple_of(LANES));
    let start = if phase.first { 0 } else { ACCUMULATE };
    let end = if phase.last { epilogue.simple } else { Some((0, 0.0, 0.0)) };
    if whole {
        let (flags, low, high) = end.unwrap_or((0, 0.0, 0.0));
        args.flags = start | flags;
        (args.low, args.high) = (low, high);
        args.c_step = target.block;
        let at = target.at(0);
        for m in 0..rows {
            args.c[m] = target.c[m].add(at);
            if flags & RESIDUAL != 0 {
                args.r[m] = target.r[m].add(at);
            }
        }
        tile(args);
        if end.is_none() {
            finish::<S>(rows, cols, target, epilogue);
        }
        return;
    }
    let mut scratch = [0f32; MAX_ROWS * MAX_COLS];
    args.flags = start;
    args.c_step = LANES;
    for m in 0..rows {
        args.c[m] = scratch.as_mut_ptr().add(m * cols);
        if !phase.first {
            for j in 0..target.count {
                *args.c[m].add(j) = *target.c[m].add(target.at(j));
            }
        }
    }
    tile(args);
    if phase.last {
        let mut addend = [0f32; MAX_ROWS * MAX_COLS];
        if epilogue.adds() {
            for m in 0..rows {
                for j in 0..target.count {
                    addend[m * cols + j] = *target.r[m].add(target.at(j));
                }
            }
        }
        epilogue.apply::<S>(scratch.as_mut_ptr(), addend.as_ptr(), rows * cols);
    }
    for m in 0..rows {
        for j in 0..target.count {
            *target.c[m].add(target.at(j)) = scratch[m * cols + j];
        }
        for j in target.count..target.count + target.pad {
            *target.c[m].add(target.at(j)) = 0.0;
        }
    }
}

/// Applies the epilogue to a tile of whole vectors whose sums lie in `target`: gathered, so that a
/// function runs over all of them at once.
///
/// # Safety
/// As for [`run_tile`].
#[inline(always)]
unsafe fn finish<S: Simd>(rows: usize, cols: usize, target: &Target, epilogue: &Epilogue) {
    let mut sums = MaybeUninit::<[f32; MAX_ROWS * MAX_COLS]>::uninit();
    let mut addend = MaybeUninit::<[f32; MAX_ROWS * MAX_COLS]>::uninit();
    let (x, r) = (sums.as_mut_ptr().cast::<f32>(), addend.as_mut_ptr().cast::<f32>());
    for m in 0..rows {
        for j in (0..cols).step_by(LANES) {
            let (from, to) = (target.at(j), m * cols + j);
            S::store(x.add(to), S::load(target.c[m].add(from)));
            if epilogue.adds() {
                S::store(r.add(to), S::load(target.r[m].add(from)));
            }
        }
    }
    epilogue.apply::<S>(x, r, rows * cols);
    for m in 0..rows {
        for j in (0..cols).step_by(LANES) {
            S::store(target.c[m].add(target.at(j)), S::load(x.add(m * cols + j)));
        }
    }
}

//! A run's steps.

use super::{Recurrent, RecurrentCell, Stage};
use crate::{
    Unary,
    simd::{Body, LANES, Simd},
    tile::{ACCUMULATE, TileArgs, part_range},
    unary::MapUnary,
};
use bricolage_runtime::Cancel;

/// Where the lengths are.
#[derive(Clone, Copy)]
pub(super) enum LengthsAt<'a> {
    Same(usize),
    List(&'a [i64]),
    I32(*const i32),
    I64(*const i64),
}

impl LengthsAt<'_> {
    /// The length of sequence `b`.
    ///
    /// # Safety
    /// The pointers are valid for more than `b` lengths.
    pub(super) unsafe fn get(self, b: usize) -> i64 {
        match self {
            LengthsAt::Same(steps) => steps as i64,
            LengthsAt::List(all) => all[b],
            LengthsAt::I32(p) => i64::from(*p.add(b)),
            LengthsAt::I64(p) => *p.add(b),
        }
    }
}

/// What all tasks of a run share.
pub(super) struct Pass<'a> {
    pub(super) of: &'a Recurrent,
    pub(super) lengths: LengthsAt<'a>,
    /// `[steps, batch, directions, gates, row]`.
    pub(super) sums: *mut f32,
    /// States before and after a step, in turn: `[2, directions, batch, row]`.
    pub(super) state: *mut f32,
    /// `[directions, batch, row]`.
    pub(super) memory: *mut f32,
    /// Products of the state, or the state behind the reset gate: `[directions, batch, aside]`.
    pub(super) aside: *mut f32,
    /// The second packed constant.
    pub(super) weights: *const f32,
    /// State and cell before the first step, or null for 0.
    pub(super) starts: [*const f32; 2],
    /// The outputs, or null.
    pub(super) results: [*mut f32; 3],
    pub(super) cancel: &'a Cancel,
}

// SAFETY: a pass is pointers; tasks that share it write disjoint elements.
unsafe impl Sync for Pass<'_> {}

impl Pass<'_> {
    fn number(&self, direction: usize, b: usize) -> usize {
        direction * self.of.batch + b
    }

    unsafe fn length(&self, b: usize) -> usize {
        self.lengths.get(b) as usize
    }

    /// Where in its sequence a direction is at `step`, if not at the end.
    #[inline(always)]
    unsafe fn position(&self, direction: usize, b: usize, step: usize) -> Option<usize> {
        let length = self.length(b);
        let back = self.of.spec.directions[direction];
        (step < length).then(|| if back { length - 1 - step } else { step })
    }

    /// The state before `step`.
    #[inline(always)]
    fn state(&self, direction: usize, b: usize, step: usize) -> *mut f32 {
        let half = (step & 1) * self.of.count() * self.of.batch;
        self.state.wrapping_add((half + self.number(direction, b)) * self.of.row)
    }

    /// The sums of all gates at a position.
    #[inline(always)]
    fn sums(&self, direction: usize, b: usize, position: usize) -> *mut f32 {
        let of = self.of;
        let at = (position * of.batch + b) * of.count() + direction;
        self.sums.wrapping_add(at * of.spec.cell.gates() * of.row)
    }

    /// Writes the states before the first step.
    ///
    /// # Safety
    /// Nobody else works on these sequences in this direction.
    pub(super) unsafe fn start(&self, direction: usize, rows: (usize, usize)) {
        let (of, lstm) = (self.of, matches!(self.of.spec.cell, RecurrentCell::Lstm { .. }));
        for b in rows.0..rows.1 {
            let number = self.number(direction, b);
            let to = [self.state(direction, b, 0), self.memory.wrapping_add(number * of.row)];
            for (to, from) in to.into_iter().zip(self.starts).take(1 + usize::from(lstm)) {
                std::ptr::write_bytes(to, 0, of.row);
                if !from.is_null() {
                    std::ptr::copy_nonoverlapping(from.add(number * of.hidden), to, of.hidden);
                }
            }
        }
    }

    /// Writes the last states, and 0 beyond the ends of sequences.
    ///
    /// # Safety
    /// As for [`Pass::start`], after all steps.
    pub(super) unsafe fn finish(&self, direction: usize, rows: (usize, usize)) {
        let of = self.of;
        for b in rows.0..rows.1 {
            let (number, length) = (self.number(direction, b), self.length(b));
            let from =
                [self.state(direction, b, length), self.memory.wrapping_add(number * of.row)];
            for (from, to) in from.into_iter().zip(&self.results[1..]) {
                if !to.is_null() {
                    std::ptr::copy_nonoverlapping(from, to.add(number * of.hidden), of.hidden);
                }
            }
            for position in length..of.steps {
                if !self.results[0].is_null() {
                    std::ptr::write_bytes(self.result(direction, b, position), 0, of.hidden);
                }
            }
        }
    }

    /// Where the state at a position goes.
    fn result(&self, direction: usize, b: usize, position: usize) -> *mut f32 {
        let at = (position * self.of.count() + direction) * self.of.batch + b;
        self.results[0].wrapping_add(at * self.of.hidden)
    }
}

/// All steps of some sequences in one direction.
pub(super) struct Whole<'a> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) direction: usize,
    pub(super) rows: (usize, usize),
}

impl Body for Whole<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Whole { pass, direction, rows } = self;
        pass.start(direction, rows);
        for step in 0..pass.of.steps {
            for stage in 0..pass.of.stages.len() {
                S::enter(Phase { pass, stage, direction, rows, part: (0, 1), step });
            }
        }
        pass.finish(direction, rows);
    }
}

/// One stage of one step: sequences `rows`, and one part of so many of the units.
pub(super) struct Phase<'a> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) stage: usize,
    pub(super) direction: usize,
    pub(super) rows: (usize, usize),
    pub(super) part: (usize, usize),
    pub(super) step: usize,
}

impl Body for Phase<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (pass, of) = (self.pass, self.pass.of);
        if pass.cancel.is_cancelled() {
            return;
        }
        let stage = &of.stages[self.stage];
        let panels = part_range(stage.panels, self.part.1, self.part.0);
        self.product(stage, panels);
        let first = panels.0 * stage.units;
        let len = (panels.1 - panels.0) * stage.units;
        for b in self.rows.0..self.rows.1 {
            let Some(position) = pass.position(self.direction, b, self.step) else { continue };
            let number = pass.number(self.direction, b);
            let units = Units {
                of,
                functions: &of.spec.functions[self.direction * of.spec.cell.functions()..],
                sums: pass.sums(self.direction, b, position).add(first),
                old: pass.state(self.direction, b, self.step).add(first),
                new: pass.state(self.direction, b, self.step + 1).add(first),
                memory: pass.memory.wrapping_add(number * of.row + first),
                aside: pass.aside.wrapping_add(number * of.aside + first),
                peepholes: pass
                    .weights
                    .wrapping_add(of.constants.peepholes + 3 * self.direction * of.row + first),
                len,
            };
            match of.spec.cell {
                RecurrentCell::Simple => units.simple::<S>(),
                RecurrentCell::Gru { linear_before_reset: true } => units.gru_linear::<S>(),
                RecurrentCell::Gru { .. } if self.stage == 0 => units.gru_gates::<S>(),
                RecurrentCell::Gru { .. } => units.gru_state::<S>(),
                RecurrentCell::Lstm { input_forget } => units.lstm::<S>(input_forget),
            }
            if self.stage + 1 == of.stages.len() && !pass.results[0].is_null() {
                let to = pass.result(self.direction, b, position).wrapping_add(first);
                let count = len.min(of.hidden.saturating_sub(first));
                std::ptr::copy_nonoverlapping(units.new, to, count);
            }
        }
    }
}

impl Phase<'_> {
    /// Adds the state's product to the sums; that of linear reset gates goes aside, with its bias.
    #[inline(always)]
    unsafe fn product(&self, stage: &Stage, panels: (usize, usize)) {
        let (pass, of, direction) = (self.pass, self.pass.of, self.direction);
        let (cols, most) = (stage.tiles.cols(), stage.tiles.max_rows());
        let linear = matches!(of.spec.cell, RecurrentCell::Gru { linear_before_reset: true });
        let behind_reset = self.stage == 1;
        let offsets = [0isize];
        let mut args = TileArgs::new();
        args.offsets = offsets.as_ptr();
        (args.segments, args.run, args.w_step) = (1, of.hidden, cols);
        args.c_step = if stage.gates == 1 { LANES } else { of.row };
        args.flags = if linear { 0 } else { ACCUMULATE };
        for i in panels.0..panels.1 {
            // Every other step goes back over the panels, so that it starts with those in the cache.
            let panel = if self.step & 1 == 0 { i } else { panels.0 + panels.1 - 1 - i };
            let at = direction * stage.panels + panel;
            args.w = pass.weights.add(stage.at + at * of.hidden * cols);
            if linear {
                args.bias = pass.weights.add(of.constants.bias + at * cols);
            }
            let mut b = self.rows.0;
            while b < self.rows.1 {
                let mut count = 0;
                while b < self.rows.1 && count < most {
                    if let Some(position) = pass.position(direction, b, self.step) {
                        let aside = pass.number(direction, b) * of.aside;
                        let aside = pass.aside.wrapping_add(aside);
                        let to = match linear {
                            true => aside,
                            false => pass.sums(direction, b, position).add(stage.first * of.row),
                        };
                        args.c[count] = to.add(panel * stage.units);
                        args.a[count] = match behind_reset {
                            true => aside,
                            false => pass.state(direction, b, self.step),
                        };
                        count += 1;
                    }
                    b += 1;
                }
                if count > 0 {
                    stage.tiles.rows(count)(&args);
                }
            }
        }
    }
}

/// Some units of one sequence at one step.
struct Units<'a> {
    of: &'a Recurrent,
    functions: &'a [Vec<Unary>],
    /// The first unit's sums; those of the next gate are a row further on, as everywhere.
    sums: *mut f32,
    old: *const f32,
    new: *mut f32,
    memory: *mut f32,
    aside: *mut f32,
    peepholes: *const f32,
    /// Whole vectors.
    len: usize,
}

impl Units<'_> {
    fn gate(&self, gate: usize) -> *mut f32 {
        self.sums.wrapping_add(gate * self.of.row)
    }

    /// Applies function `which` to all units, from `from` to `to`.
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, which: usize, from: *const f32, to: *mut f32) {
        let mut src = from;
        for &op in &self.functions[which] {
            S::enter(MapUnary { op, src, dst: to, len: self.len });
            src = to;
        }
    }

    #[inline(always)]
    unsafe fn simple<S: Simd>(&self) {
        self.apply::<S>(0, self.sums, self.new);
    }

    #[inline(always)]
    unsafe fn gru_linear<S: Simd>(&self) {
        let (z, r, g) = (self.gate(0), self.gate(1), self.gate(2));
        for i in (0..self.len).step_by(LANES) {
            for (gate, to) in [z, r].into_iter().enumerate() {
                let product = S::load(self.aside.add(gate * self.of.row + i));
                S::store(to.add(i), S::add(S::load(to.add(i)), product));
            }
        }
        self.apply::<S>(0, z, z);
        self.apply::<S>(0, r, r);
        for i in (0..self.len).step_by(LANES) {
            let product = S::load(self.aside.add(2 * self.of.row + i));
            S::store(g.add(i), S::fma(S::load(r.add(i)), product, S::load(g.add(i))));
        }
        self.gru_state::<S>();
    }

    #[inline(always)]
    unsafe fn gru_gates<S: Simd>(&self) {
        let (z, r) = (self.gate(0), self.gate(1));
        self.apply::<S>(0, z, z);
        self.apply::<S>(0, r, r);
        for i in (0..self.len).step_by(LANES) {
            S::store(self.aside.add(i), S::mul(S::load(r.add(i)), S::load(self.old.add(i))));
        }
    }

    #[inline(always)]
    unsafe fn gru_state<S: Simd>(&self) {
        let (z, g) = (self.gate(0), self.gate(2));
        self.apply::<S>(1, g, g);
        for i in (0..self.len).step_by(LANES) {
            let (z, g) = (S::load(z.add(i)), S::load(g.add(i)));
            let new = S::mul(S::sub(S::splat(1.0), z), g);
            S::store(self.new.add(i), S::fma(z, S::load(self.old.add(i)), new));
        }
    }

    /// Adds a peephole's product with the cell.
    #[inline(always)]
    unsafe fn peep<S: Simd>(&self, gate: usize) {
        if !self.of.spec.peepholes {
            return;
        }
        let (sums, weights) = (self.gate(gate), self.peepholes.add(gate * self.of.row));
        for i in (0..self.len).step_by(LANES) {
            let (c, w) = (S::load(self.memory.add(i)), S::load(weights.add(i)));
            S::store(sums.add(i), S::fma(w, c, S::load(sums.add(i))));
        }
    }

    #[inline(always)]
    unsafe fn lstm<S: Simd>(&self, input_forget: bool) {
        let (i, o, f, g) = (self.gate(0), self.gate(1), self.gate(2), self.gate(3));
        self.peep::<S>(0);
        self.apply::<S>(0, i, i);
        if input_forget {
            for q in (0..self.len).step_by(LANES) {
                S::store(f.add(q), S::sub(S::splat(1.0), S::load(i.add(q))));
            }
        } else {
            self.peep::<S>(2);
            self.apply::<S>(0, f, f);
        }
        self.apply::<S>(1, g, g);
        for q in (0..self.len).step_by(LANES) {
            let added = S::mul(S::load(i.add(q)), S::load(g.add(q)));
            let c = S::load(self.memory.add(q));
            S::store(self.memory.add(q), S::fma(S::load(f.add(q)), c, added));
        }
        self.peep::<S>(1);
        self.apply::<S>(0, o, o);
        self.apply::<S>(2, self.memory, g);
        for q in (0..self.len).step_by(LANES) {
            S::store(self.new.add(q), S::mul(S::load(o.add(q)), S::load(g.add(q))));
        }
    }
}

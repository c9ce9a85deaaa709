//! Recurrent layers.

use crate::{
    harness::{F32, Rng, U, assert_close, config, count, run_all},
    reference::unary,
};
use bricolage_kernels::{Lengths, RecurrentCell, RecurrentSpec, Spec, Start, Unary};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use proptest::prelude::*;

/// A value and the error that rounding is likely to make in it: independent errors add up by their squares.
#[derive(Clone, Copy)]
struct Near {
    value: f64,
    error: f64,
}

/// Errors that a result may have, in likely ones, as for the tolerances of whole graphs.
const LIKELY: f64 = 8.0;

/// The root of a sum of squares.
fn norm(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e * e).sum::<f64>().sqrt()
}

impl Near {
    fn of(value: f64) -> Near {
        Near { value, error: 0.0 }
    }

    /// The sum, rounded once.
    fn plus(self, other: Near) -> Near {
        let value = self.value + other.value;
        Near { value, error: norm(&[self.error, other.error, U * value]) }
    }

    /// The product, rounded once.
    fn times(self, other: Near) -> Near {
        let value = self.value * other.value;
        let errors = [self.error * other.value, other.error * self.value, U * value];
        Near { value, error: norm(&errors) }
    }

    fn one_minus(self) -> Near {
        Near::of(1.0).plus(Near { value: -self.value, ..self })
    }

    /// Functions of slope 1 at most, each good to two roundings of a result or an argument.
    fn through(self, functions: &[Unary]) -> Near {
        functions.iter().fold(self, |x, &f| {
            let value = unary(f, x.value);
            let own = 2.0 * U * value.abs().max(x.value.abs()) + 1e-37;
            Near { value, error: norm(&[x.error, own]) }
        })
    }
}

/// Sum of products with a vector, and a start. Every addition rounds a partial sum, which is on the way to
/// the sum of all magnitudes at most.
fn dot(row: &[f64], x: &[Near], start: Near) -> Near {
    let (mut sum, mut size, mut squares) = (start.value, start.value.abs(), start.error.powi(2));
    for (w, x) in row.iter().zip(x) {
        sum += w * x.value;
        size += (w * x.value).abs();
        squares += (w * x.error).powi(2);
    }
    let own = U * size * (row.len() as f64 / 3.0 + 1.0).sqrt();
    Near { value: sum, error: norm(&[squares.sqrt(), own]) }
}

/// Everything that a layer works on.
struct Data {
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor,
    peepholes: Tensor,
    starts: [Tensor; 2],
    lengths: Vec<i64>,
}

/// All outputs, wanted or not.
fn layer(s: &RecurrentSpec, data: &Data) -> [Vec<Near>; 3] {
    let (steps, batch) = (s.steps as usize, s.batch as usize);
    let (width, n, d) = (s.width as usize, s.hidden as usize, s.directions.len());
    let (gates, most) = match s.cell {
        RecurrentCell::Simple => (1, 1),
        RecurrentCell::Gru { .. } => (3, 2),
        RecurrentCell::Lstm { .. } => (4, 3),
    };
    let (x, w, r) = (data.x.to_f64(), data.w.to_f64(), data.r.to_f64());
    let x: Vec<Near> = x.into_iter().map(Near::of).collect();
    let bias = if s.bias { data.bias.to_f64() } else { vec![0.0; data.bias.len()] };
    let peepholes =
        if s.peepholes { data.peepholes.to_f64() } else { vec![0.0; data.peepholes.len()] };
    let start = |kind: Start, t: &Tensor| -> Vec<Near> {
        let values = t.to_f64().into_iter();
        values.map(|v| Near::of(if kind == Start::Zero { 0.0 } else { v })).collect()
    };
    let mut all = vec![Near::of(0.0); steps * d * batch * n];
    let mut last = start(s.state, &data.starts[0]);
    let mut memory = start(s.memory, &data.starts[1]);
    for direction in 0..d {
        let functions = &s.functions[direction * most..][..most];
        for b in 0..batch {
            let at = (direction * batch + b) * n;
            let length = data.lengths[b] as usize;
            for step in 0..length {
                let t = if s.directions[direction] { length - 1 - step } else { step };
                let x = &x[(t * batch + b) * width..][..width];
                let h = last[at..at + n].to_vec();
                let input = |gate: usize, u: usize| {
                    let row = (direction * gates + gate) * n + u;
                    let bias = Near::of(bias[(direction * 2 * gates + gate) * n + u]);
                    dot(&w[row * width..][..width], x, bias)
                };
                let state = |gate: usize, u: usize, h: &[Near]| {
                    let row = (direction * gates + gate) * n + u;
                    let bias = Near::of(bias[(direction * 2 * gates + gates + gate) * n + u]);
                    dot(&r[row * n..][..n], h, bias)
                };
                let sum = |gate: usize, u: usize| input(gate, u).plus(state(gate, u, &h));
                match s.cell {
                    RecurrentCell::Simple => {
                        for u in 0..n {
                            last[at + u] = sum(0, u).through(&functions[0]);
                        }
                    }
                    RecurrentCell::Gru { linear_before_reset } => {
                        let z: Vec<_> = (0..n).map(|u| sum(0, u).through(&functions[0])).collect();
                        let r: Vec<_> = (0..n).map(|u| sum(1, u).through(&functions[0])).collect();
                        let reset: Vec<_> = (0..n).map(|u| r[u].times(h[u])).collect();
                        for u in 0..n {
                            let inner = match linear_before_reset {
                                true => r[u].times(state(2, u, &h)),
                                false => state(2, u, &reset),
                            };
                            let g = input(2, u).plus(inner).through(&functions[1]);
                            last[at + u] = z[u].one_minus().times(g).plus(z[u].times(h[u]));
                        }
                    }
                    RecurrentCell::Lstm { input_forget } => {
                        for u in 0..n {
                            let peep = |gate: usize, c: Near| {
                                Near::of(peepholes[(direction * 3 + gate) * n + u]).times(c)
                            };
                            let c = memory[at + u];
                            let i = sum(0, u).plus(peep(0, c)).through(&functions[0]);
                            let f = match input_forget {
                                true => i.one_minus(),
                                false => sum(2, u).plus(peep(2, c)).through(&functions[0]),
                            };
                            let next = f.times(c).plus(i.times(sum(3, u).through(&functions[1])));
                            let o = sum(1, u).plus(peep(1, next)).through(&functions[0]);
                            memory[at + u] = next;
                            last[at + u] = o.times(next.through(&functions[2]));
                        }
                    }
                }
                let to = ((t * d + direction) * batch + b) * n;
                all[to..to + n].copy_from_slice(&last[at..at + n]);
            }
        }
    }
    [all, last, memory]
}

/// Runs a layer on seeded data and compares what it gives.
fn try_layer(spec: RecurrentSpec, lengths: Vec<i64>, seed: u64) {
    let mut rng = Rng(seed);
    let (d, n) = (spec.directions.len() as i64, spec.hidden);
    let gates = match spec.cell {
        RecurrentCell::Simple => 1,
        RecurrentCell::Gru { .. } => 3,
        RecurrentCell::Lstm { .. } => 4,
    };
    let rows = gates * n;
    let state = [d, spec.batch, n];
    // States of many units would otherwise drive every gate to its limit.
    let scaled = |rng: &mut Rng, dims: &[i64], fan: i64| {
        let by = 3.0 / (fan as f32).sqrt();
        let values: Vec<f32> = rng.floats(dims).iter().map(|v| v * by).collect();
        Tensor::of(dims, &values)
    };
    let data = Data {
        x: rng.tensor(&[spec.steps, spec.batch, spec.width]),
        w: scaled(&mut rng, &[d, rows, spec.width], spec.width),
        r: scaled(&mut rng, &[d, rows, n], n),
        bias: rng.tensor(&[d, 2 * rows]),
        peepholes: rng.tensor(&[d, 3 * n]),
        starts: [rng.tensor(&state), rng.tensor(&state)],
        lengths,
    };
    let mut inputs = vec![(data.x.clone(), Layout::Plain)];
    if let Lengths::Operand(dtype) = spec.lengths {
        let narrow: Vec<i32> = data.lengths.iter().map(|&l| l as i32).collect();
        let lengths = match dtype {
            DType::I32 => Tensor::of(&[spec.batch], &narrow),
            _ => Tensor::of(&[spec.batch], &data.lengths),
        };
        inputs.push((lengths, Layout::Plain));
    }
    let mut raw = vec![data.w.clone(), data.r.clone()];
    raw.extend(spec.bias.then(|| data.bias.clone()));
    raw.extend(spec.peepholes.then(|| data.peepholes.clone()));
    for (kind, start) in [spec.state, spec.memory].into_iter().zip(&data.starts) {
        match kind {
            Start::Zero => {}
            Start::Constant => raw.push(start.clone()),
            Start::Operand => inputs.push((start.clone(), Layout::Plain)),
        }
    }
    let dims = [vec![spec.steps, d, spec.batch, n], state.to_vec(), state.to_vec()];
    let wanted: Vec<usize> = (0..3).filter(|&i| spec.outputs[i]).collect();
    let outputs: Vec<(Vec<i64>, Format)> = wanted.iter().map(|&i| (dims[i].clone(), F32)).collect();
    let results = layer(&spec, &data);
    run_all(&Spec::Recurrent(spec), &inputs, &raw, &outputs, |what, found| {
        for (found, &i) in found.iter().zip(&wanted) {
            assert_eq!(found.len(), count(&dims[i]), "{what}");
            let (values, errors): (Vec<f64>, Vec<f64>) =
                results[i].iter().map(|r| (r.value, LIKELY * r.error)).unzip();
            let most = values.iter().zip(&errors).all(|(v, e)| *e <= 2e-4 * v.abs().max(1.0));
            assert!(most, "what is allowed says little: {what}");
            assert_close(&format!("output {i} of {what}"), found, &values, &errors);
        }
    });
}

fn cells() -> impl Strategy<Value = RecurrentCell> {
    prop::sample::select(vec![
        RecurrentCell::Simple,
        RecurrentCell::Gru { linear_before_reset: false },
        RecurrentCell::Gru { linear_before_reset: true },
        RecurrentCell::Lstm { input_forget: false },
        RecurrentCell::Lstm { input_forget: true },
    ])
}

/// Lists of functions of slope 1 at most.
fn functions() -> impl Strategy<Value = Vec<Unary>> {
    prop::sample::select(vec![
        vec![Unary::Sigmoid],
        vec![Unary::Tanh],
        vec![Unary::Relu],
        vec![Unary::Softsign],
        vec![Unary::Softplus],
        vec![Unary::Affine { scale: 0.5, shift: 0.25 }],
        vec![Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }],
        vec![Unary::LeakyRelu { alpha: 0.01 }],
        vec![Unary::Elu { alpha: 1.0 }],
        vec![Unary::Clip { min: -0.3, max: 0.3 }, Unary::Sigmoid],
        vec![
            Unary::Affine { scale: 0.5, shift: 0.0 },
            Unary::Tanh,
            Unary::Affine { scale: 0.75, shift: 0.0 },
        ],
    ])
}

fn starts() -> impl Strategy<Value = Start> {
    prop::sample::select(vec![Start::Zero, Start::Constant, Start::Operand])
}

/// A layer of default functions.
fn plain(cell: RecurrentCell, directions: &[bool], sizes: [i64; 4]) -> RecurrentSpec {
    let functions: &[Unary] = match cell {
        RecurrentCell::Simple => &[Unary::Tanh],
        RecurrentCell::Gru { .. } => &[Unary::Sigmoid, Unary::Tanh],
        RecurrentCell::Lstm { .. } => &[Unary::Sigmoid, Unary::Tanh, Unary::Tanh],
    };
    let [steps, batch, width, hidden] = sizes;
    RecurrentSpec {
        cell,
        directions: directions.to_vec(),
        steps,
        batch,
        width,
        hidden,
        functions: functions.repeat(directions.len()).into_iter().map(|f| vec![f]).collect(),
        bias: true,
        peepholes: false,
        lengths: Lengths::Whole,
        state: Start::Zero,
        memory: Start::Zero,
        outputs: [true, true, matches!(cell, RecurrentCell::Lstm { .. })],
    }
}

#[test]
fn large_layers_are_split_among_threads() {
    let cells = [
        RecurrentCell::Simple,
        RecurrentCell::Gru { linear_before_reset: false },
        RecurrentCell::Gru { linear_before_reset: true },
        RecurrentCell::Lstm { input_forget: false },
    ];
    for cell in cells {
        for (directions, batch, hidden) in [
            (&[false][..], 1, 333),
            (&[true], 2, 250),
            (&[false, true], 1, 180),
            (&[false], 7, 130),
        ] {
            try_layer(plain(cell, directions, [3, batch, 40, hidden]), vec![3; batch as usize], 5);
        }
    }
}

#[test]
fn lengths_outside_the_steps_are_refused() {
    use crate::harness::{Placed, execute, isas, pack};
    use bricolage_runtime::{RunError, Serial};
    let cell = RecurrentCell::Simple;
    let lengths = Lengths::Operand(DType::I32);
    let spec = RecurrentSpec { lengths, bias: false, ..plain(cell, &[false], [3, 2, 4, 5]) };
    let mut rng = Rng(3);
    for isa in isas() {
        let kernel = Spec::Recurrent(spec.clone()).build(isa).unwrap();
        let constants = pack(&*kernel, &[rng.tensor(&[1, 5, 4]), rng.tensor(&[1, 5, 5])]);
        for (bad, message) in [(4, "sequence 1 has the length 4, needed 0 to 3"), (-1, "length -1")]
        {
            let inputs = [rng.tensor(&[3, 2, 4]), Tensor::of(&[2], &[3i32, bad])];
            let inputs = inputs.map(|t| Placed::of(&t, &Layout::Plain));
            let outputs = [&[3i64, 1, 2, 5][..], &[1, 2, 5]].map(|d| Placed::garbage(d, &F32));
            let found = execute(&*kernel, &inputs, &constants, &outputs, &Serial);
            let Err(RunError::Domain { why, .. }) = found else { panic!("{found:?}") };
            assert!(why.contains(message), "{why}");
        }
    }
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn layers_are_right(
        cell in cells(),
        directions in prop::sample::select(vec![vec![false], vec![true], vec![false, true]]),
        sizes in (0..6i64, 0..9i64, 1..20i64, 1..40i64),
        given_functions in prop::option::of(prop::collection::vec(functions(), 6)),
        (bias, peepholes) in any::<(bool, bool)>(),
        lengths in 0..4usize,
        (state, memory) in (starts(), starts()),
        outputs in 1..8u8,
        seed in any::<u64>(),
    ) {
        let (steps, batch, width, hidden) = sizes;
        let mut spec = plain(cell, &directions, [steps, batch, width, hidden]);
        let lstm = matches!(cell, RecurrentCell::Lstm { .. });
        if let Some(functions) = given_functions {
            let count = spec.functions.len();
            spec.functions = functions[..count].to_vec();
        }
        let mut rng = Rng(seed);
        let some: Vec<i64> = (0..batch).map(|_| rng.below(steps as usize + 1) as i64).collect();
        spec.lengths = match lengths {
            0 => Lengths::Whole,
            1 => Lengths::Constant(some.clone()),
            2 => Lengths::Operand(DType::I32),
            _ => Lengths::Operand(DType::I64),
        };
        let lengths = if lengths == 0 { vec![steps; batch as usize] } else { some };
        spec.outputs = [outputs & 1 > 0 || outputs == 4 && !lstm, outputs & 2 > 0, outputs & 4 > 0 && lstm];
        (spec.bias, spec.peepholes, spec.state) = (bias, peepholes && lstm, state);
        spec.memory = if lstm { memory } else { Start::Zero };
        try_layer(spec, lengths, seed);
    }
}

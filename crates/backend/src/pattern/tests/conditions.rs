//! Conditions against a naive evaluator, which walks what is written and looks names up as it goes.

use super::Dice;
use crate::{
    Policy, Setting,
    pattern::{
        constraint::Condition,
        evaluate::{Scope, Truth},
        matcher::Binding,
        names::{Library, Names},
        syntax::{
            Arithmetic, Comparison, Declaration, Expression, File, Literal, Measure, Name, Path,
            Step,
        },
        view::{OpSet, View},
    },
};
use bricolage_ir::{
    Graph, Op,
    ops::{Conv, Unary},
    origin,
};
use bricolage_tensor::{DType, Dim, Shape, Tensor, TensorType};
use proptest::prelude::*;

const SETTING: Setting = Setting { threads: 2, policy: Policy::Fast };

/// A convolution of an open batch, and a function that may be there.
struct World {
    graph: Graph,
    names: Vec<(&'static str, Option<OpSet>)>,
    bindings: Vec<Binding>,
}

fn world() -> World {
    let mut graph = Graph::new("world");
    let shape = Shape(vec![Dim::symbol("n"), Dim::from(6), Dim::from(8), Dim::from(8)]);
    let x = graph.input("x", TensorType { dtype: DType::F32, shape });
    let w = graph.constant("w", Tensor::generate(DType::F32, &[4, 6, 3, 3], |i| i as f64));
    let conv = Conv { pads: vec![(1, 1), (0, 2)], ..Conv::plain(2) };
    let c = graph.add1(conv, &[x, w], origin("c")).unwrap();
    let y =
        graph.add1(Op::Unary(Unary::LeakyRelu { alpha: 0.25.into() }), &[c], origin("y")).unwrap();
    graph.outputs.push(y);
    let bind = |value, computed: bool| Binding {
        seen: true,
        held: true,
        value: Some(value),
        node: graph.producer(value).filter(|_| computed),
    };
    let bindings = vec![
        bind(x, false),
        bind(w, false),
        bind(c, true),
        bind(y, true),
        Binding { seen: true, ..Binding::default() },
    ];
    let names = vec![
        ("x", None),
        ("w", None),
        ("c", OpSet::named("conv")),
        ("y", OpSet::named("leaky_relu")),
        ("gone", None),
    ];
    World { graph, names, bindings }
}

fn library() -> Library {
    let machine = vec![
        ("isa".to_owned(), Literal::Text("avx2".to_owned())),
        ("lanes".to_owned(), Literal::Int(8)),
    ];
    Library { machine, ..Library::default() }
}

impl World {
    fn compile(&self, expression: &Expression) -> Condition {
        let library = library();
        let mut names = Names::new(&library);
        for (name, op) in &self.names {
            names.add(name, op.as_ref().map(std::slice::from_ref), false);
        }
        let condition = Condition::compile(expression, &mut names);
        assert_eq!(names.faults, []);
        condition
    }

    fn scope<'a>(&'a self, view: &'a View<'a>) -> Scope<'a> {
        Scope {
            view: Some(view),
            setting: Some(SETTING),
            bindings: &self.bindings,
            nodes: 2,
            tensor: None,
        }
    }
}

/// What the naive evaluator finds.
#[derive(Clone, Debug, PartialEq)]
enum N {
    B(bool),
    I(i128),
    R(f64),
    T(&'static str),
    L(Vec<N>),
    /// Not known.
    U,
    /// A fault.
    E,
}

/// All facts of the world, written down.
fn fact(path: &str) -> N {
    let dims = |all: &[i128]| N::L(all.iter().map(|&d| N::I(d)).collect());
    let x = || N::L(vec![N::U, N::I(6), N::I(8), N::I(8)]);
    match path {
        "x.rank" | "w.rank" => N::I(4),
        "x.dims" => x(),
        "x.dim[0]" | "x.elements" | "x.bytes" => N::U,
        "x.dim[-1]" => N::I(8),
        "x.dim[1]" => N::I(6),
        "w.dims" => dims(&[4, 6, 3, 3]),
        "w.bytes" => N::I(864),
        "w.is_const" | "x.is_input" | "y.is_output" => N::B(true),
        "c.is_output" => N::B(false),
        "c.uses" | "region.nodes" => N::I(if path == "c.uses" { 1 } else { 2 }),
        "plan.threads" => N::I(2),
        "plan.numerics" => N::T("fast"),
        "dev.isa" => N::T("avx2"),
        "dev.lanes" => N::I(8),
        "x.dtype" => N::T("f32"),
        "c.op" => N::T("conv"),
        "c.attr.groups" => N::I(1),
        "c.attr.strides" => dims(&[1, 1]),
        "c.attr.pads[1][1]" => N::I(2),
        "c.attr.pads" => N::L(vec![dims(&[1, 1]), dims(&[0, 2])]),
        "y.attr.alpha" => N::R(0.25),
        _ => N::E,
    }
}

const PATHS: &[&str] = &[
    "x.rank",
    "x.dims",
    "x.dim[0]",
    "x.dim[-1]",
    "x.dim[1]",
    "x.dim[9]",
    "x.elements",
    "x.bytes",
    "w.dims",
    "w.bytes",
    "w.is_const",
    "x.is_input",
    "y.is_output",
    "c.is_output",
    "c.uses",
    "region.nodes",
    "plan.threads",
    "plan.numerics",
    "dev.isa",
    "dev.lanes",
    "x.dtype",
    "c.op",
    "c.attr.groups",
    "c.attr.strides",
    "c.attr.pads[1][1]",
    "c.attr.pads",
    "y.attr.alpha",
    "gone.rank",
    "x.dims[1][0]",
    "c.attr.strides[5]",
];

fn literal(l: &Literal) -> N {
    match l {
        Literal::Int(n) => N::I(i128::from(*n)),
        Literal::Real(n) => N::R(*n),
        Literal::Bool(b) => N::B(*b),
        Literal::Text(t) => {
            N::T(["avx2", "fast", "conv", "f32"].into_iter().find(|k| k == t).unwrap_or("?"))
        }
    }
}

fn fit(n: Option<i128>) -> N {
    match n {
        Some(n) if i64::try_from(n).is_ok() => N::I(n),
        _ => N::E,
    }
}

fn order(a: &N, b: &N, comparison: Comparison) -> N {
    let by = |o: Option<std::cmp::Ordering>| {
        let (less, equal) = (o.is_some_and(|o| o.is_lt()), o.is_some_and(|o| o.is_eq()));
        let greater = o.is_some_and(|o| o.is_gt());
        N::B(match comparison {
            Comparison::Equal => equal,
            Comparison::Differs => !equal,
            Comparison::Less => less,
            Comparison::AtMost => less || equal,
            Comparison::Greater => greater,
            Comparison::AtLeast => greater || equal,
        })
    };
    let plain = matches!(comparison, Comparison::Equal | Comparison::Differs);
    match (a, b) {
        (N::E, _) | (_, N::E) => N::E,
        (N::U, _) | (_, N::U) | (N::T(_), N::I(_)) | (N::I(_), N::T(_)) => N::U,
        (N::I(a), N::I(b)) => by(Some(a.cmp(b))),
        (N::I(a), N::R(b)) => by((*a as f64).partial_cmp(b)),
        (N::R(a), N::I(b)) => by(a.partial_cmp(&(*b as f64))),
        (N::R(a), N::R(b)) => by(a.partial_cmp(b)),
        (N::T(a), N::T(b)) if plain => by(Some(a.cmp(b))),
        (N::B(a), N::B(b)) if plain => by(Some(a.cmp(b))),
        (N::L(a), N::L(b)) if plain => {
            let pairs = a.iter().zip(b).map(|(a, b)| order(a, b, Comparison::Equal));
            let all: Vec<N> = pairs.chain([N::B(a.len() == b.len())]).collect();
            let least = [N::B(false), N::E, N::U].into_iter().find(|t| all.contains(t));
            match least.unwrap_or(N::B(true)) {
                N::B(equal) => N::B(equal == (comparison == Comparison::Equal)),
                other => other,
            }
        }
        _ => N::E,
    }
}

fn naive(e: &Expression, locals: &[(String, N)]) -> N {
    let path = |p: &Path| match locals.iter().rev().find(|(n, _)| *n == p.root.text) {
        Some((_, value)) if p.steps.is_empty() => value.clone(),
        Some((_, N::L(all))) => match p.steps[..] {
            [Step::Index(0)] => all.first().cloned().unwrap_or(N::E),
            _ => N::E,
        },
        Some(_) => N::E,
        None => fact(&p.to_string()),
    };
    match e {
        Expression::Literal(l) => literal(l),
        Expression::Path(p) => path(p),
        Expression::Not(a) => match naive(a, locals) {
            N::B(b) => N::B(!b),
            N::U => N::U,
            _ => N::E,
        },
        Expression::Negative(a) => match naive(a, locals) {
            N::I(n) => fit(Some(-n)),
            N::R(n) => N::R(-n),
            N::U => N::U,
            _ => N::E,
        },
        Expression::Arithmetic(op, pair) => {
            let (a, b) = (naive(&pair[0], locals), naive(&pair[1], locals));
            calculate(*op, a, b)
        }
        Expression::Compare(c, pair) => {
            order(&naive(&pair[0], locals), &naive(&pair[1], locals), *c)
        }
        Expression::OneOf(a, set) => {
            let a = naive(a, locals);
            // In the order of the set, as a chain of comparisons.
            let mut unknown = false;
            for l in set {
                match order(&a, &literal(l), Comparison::Equal) {
                    N::B(true) => return N::B(true),
                    N::B(false) => {}
                    N::U => unknown = true,
                    _ => return N::E,
                }
            }
            if unknown { N::U } else { N::B(false) }
        }
        Expression::Within(a, low, high) => {
            let a = naive(a, locals);
            let above = order(&a, &literal(low), Comparison::AtLeast);
            match (above, order(&a, &literal(high), Comparison::AtMost)) {
                (N::E, _) | (_, N::E) => N::E,
                (N::U, _) | (_, N::U) => N::U,
                (above, below) => N::B(above == N::B(true) && below == N::B(true)),
            }
        }
        Expression::And(all) => {
            let all: Vec<N> = all.iter().map(|e| truth(naive(e, locals))).collect();
            [N::B(false), N::E, N::U].into_iter().find(|t| all.contains(t)).unwrap_or(N::B(true))
        }
        Expression::Or(all) => {
            let all: Vec<N> = all.iter().map(|e| truth(naive(e, locals))).collect();
            [N::B(true), N::U, N::E].into_iter().find(|t| all.contains(t)).unwrap_or(N::B(false))
        }
        Expression::Every(every, name, list, body) => match path(list) {
            N::L(values) => {
                let one = |v: N| {
                    let locals = [locals, &[(name.text.clone(), v)]].concat();
                    truth(naive(body, &locals))
                };
                let all: Vec<N> = values.into_iter().map(one).collect();
                let order = match every {
                    true => [N::B(false), N::E, N::U],
                    false => [N::B(true), N::U, N::E],
                };
                order.into_iter().find(|t| all.contains(t)).unwrap_or(N::B(*every))
            }
            N::U => N::U,
            _ => N::E,
        },
        Expression::Measure(Measure::Has, p) => match p.steps.is_empty() {
            true => N::B(p.root.text != "gone"),
            false => N::B(path(p) != N::E),
        },
        Expression::Measure(Measure::Length, p) => match path(p) {
            N::L(all) => N::I(all.len() as i128),
            N::U => N::U,
            _ => N::E,
        },
        Expression::Measure(Measure::Product, p) => match path(p) {
            N::L(all) => {
                all.into_iter().fold(N::I(1), |a, b| calculate(Arithmetic::Multiply, a, b))
            }
            N::U => N::U,
            _ => N::E,
        },
        Expression::Aligned(p, by) => {
            let rest = calculate(Arithmetic::Remainder, path(p), N::I(i128::from(*by)));
            order(&rest, &N::I(0), Comparison::Equal)
        }
        // The batch is open, and the others multiply nothing.
        Expression::Macs(name) => match name.text.as_str() {
            "c" | "y" => N::U,
            _ => N::E,
        },
        Expression::Same(a, b) => N::B(a == b),
    }
}

fn truth(n: N) -> N {
    if matches!(n, N::B(_) | N::U) { n } else { N::E }
}

fn calculate(op: Arithmetic, a: N, b: N) -> N {
    let (a, b) = match (a, b) {
        (N::I(a), N::I(b)) => (a, b),
        (N::U, N::U | N::I(_)) | (N::I(_), N::U) => return N::U,
        _ => return N::E,
    };
    fit(match op {
        Arithmetic::Add => Some(a + b),
        Arithmetic::Subtract => Some(a - b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide => a.checked_div(b),
        // The quotient must be a number of 64 bits as well.
        Arithmetic::Remainder => (b != 0 && !(a == i128::from(i64::MIN) && b == -1)).then(|| a % b),
    })
}

fn random(dice: &mut Dice<'_>, depth: usize, locals: &mut Vec<String>) -> Expression {
    let path = |dice: &mut Dice<'_>, locals: &[String]| -> Path {
        if !locals.is_empty() && dice.roll(3) == 0 {
            let root = Name::from(dice.pick(locals).as_str());
            let steps = if dice.roll(4) == 0 { vec![Step::Index(0)] } else { Vec::new() };
            return Path { root, steps };
        }
        parse(dice.pick(PATHS))
    };
    let number = |dice: &mut Dice<'_>| match dice.roll(5) {
        0 => Literal::Int(dice.pick(&[0, 1, 2, 4, 6, 8])),
        1 => Literal::Int(dice.pick(&[i64::MAX, 1 << 40])),
        2 => Literal::Real(dice.pick(&[0.25, 2.0])),
        3 => Literal::Text(dice.pick(&["avx2", "fast", "conv"]).to_owned()),
        _ => Literal::Bool(dice.roll(2) == 0),
    };
    if depth == 0 {
        return match dice.roll(3) {
            0 => Expression::Literal(number(dice)),
            _ => Expression::Path(path(dice, locals)),
        };
    }
    let sub = |dice: &mut Dice<'_>, locals: &mut Vec<String>| random(dice, depth - 1, locals);
    match dice.roll(14) {
        0 => Expression::Not(Box::new(sub(dice, locals))),
        1 => Expression::Negative(Box::new(sub(dice, locals))),
        2 | 3 => {
            let op = dice.pick(&[
                Arithmetic::Add,
                Arithmetic::Subtract,
                Arithmetic::Multiply,
                Arithmetic::Divide,
                Arithmetic::Remainder,
            ]);
            let a = sub(dice, locals);
            Expression::Arithmetic(op, Box::new([a, sub(dice, locals)]))
        }
        4 | 5 => {
            let c = dice.pick(&[
                Comparison::Equal,
                Comparison::Differs,
                Comparison::Less,
                Comparison::AtMost,
                Comparison::Greater,
                Comparison::AtLeast,
            ]);
            let a = sub(dice, locals);
            Expression::Compare(c, Box::new([a, sub(dice, locals)]))
        }
        6 => {
            let a = sub(dice, locals);
            let set = (0..1 + dice.roll(3)).map(|_| number(dice)).collect();
            Expression::OneOf(Box::new(a), set)
        }
        7 => {
            let a = sub(dice, locals);
            let low = number(dice);
            Expression::Within(Box::new(a), low, number(dice))
        }
        8 | 9 => {
            let all: Vec<Expression> = (0..2 + dice.roll(2)).map(|_| sub(dice, locals)).collect();
            if dice.roll(2) == 0 { Expression::And(all) } else { Expression::Or(all) }
        }
        10 => {
            let list = path(dice, locals);
            let name = format!("e{}", locals.len());
            locals.push(name.clone());
            let body = sub(dice, locals);
            locals.pop();
            Expression::Every(dice.roll(2) == 0, Name::from(name.as_str()), list, Box::new(body))
        }
        11 => {
            let measure = dice.pick(&[Measure::Product, Measure::Length, Measure::Has]);
            if measure == Measure::Has && dice.roll(2) == 0 {
                let root = Name::from(dice.pick(&["x", "gone", "y"]));
                return Expression::Measure(measure, Path { root, steps: Vec::new() });
            }
            Expression::Measure(measure, path(dice, locals))
        }
        12 => {
            let p = path(dice, locals);
            Expression::Aligned(p, dice.pick(&[0, 1, 2, 8, -1]))
        }
        _ => match dice.roll(2) {
            0 => Expression::Macs(Name::from(dice.pick(&["x", "c", "y"]))),
            _ => Expression::Same(
                Name::from(dice.pick(&["x", "c"])),
                Name::from(dice.pick(&["x", "c"])),
            ),
        },
    }
}

fn expression(text: &str) -> Expression {
    let file = File::parse("c", &format!("backend b {{ requires: {text}; }}")).unwrap();
    match file.declarations.into_iter().next() {
        Some(Declaration::Backend(b)) => b.requires.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn parse(path: &str) -> Path {
    match expression(path) {
        Expression::Path(path) => path,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conditions_are_what_a_naive_evaluator_makes_of_them(
        bytes in proptest::collection::vec(any::<u8>(), 10..80),
    ) {
        let world = world();
        let written = random(&mut Dice::new(&bytes), 3, &mut Vec::new());
        let view = View::new(&world.graph);
        let found = world.scope(&view).holds(&world.compile(&written));
        let expected = match truth(naive(&written, &[])) {
            N::B(true) => Truth::True,
            N::B(false) => Truth::False,
            N::U => Truth::Unknown,
            _ => Truth::Fault,
        };
        prop_assert_eq!(found, expected, "{}", written);
    }
}

#[test]
fn refusals_name_the_clause_and_the_values() {
    let world = world();
    let view = View::new(&world.graph);
    let why = |text: &str| world.scope(&view).check(&world.compile(&expression(text))).unwrap_err();
    assert_eq!(why("x.rank == 4 && x.dim[1] == 5"), "needs x.dim[1] == 5, found x.dim[1] = 6");
    assert_eq!(why("x.dim[0] >= 1"), "needs x.dim[0] >= 1, found x.dim[0] = n (no number)");
    assert_eq!(
        why("c.attr.groups / (x.rank - 4) == 1"),
        "needs c.attr.groups / (x.rank - 4) == 1, found c.attr.groups = 1, x.rank = 4, 1 / 0, \
         which is no number of 64 bits"
    );
    assert_eq!(why("gone.rank == 1"), "needs gone.rank == 1, found no `gone.rank`");
    assert_eq!(why("!(gone.rank == 1)"), "needs !gone.rank == 1, found no `gone.rank`");
    assert_eq!(why("x.dtype == \"f64\""), "needs x.dtype == \"f64\", found x.dtype = \"f32\"");
    assert_eq!(why("mac(c) > 9"), "needs mac(c) > 9, found that it is not known");
    assert_eq!(why("same(x, y)"), "needs same(x, y), found that it does not hold");
    assert_eq!(
        why("c.attr.strides == w.dims"),
        "needs c.attr.strides == w.dims, found c.attr.strides = [1, 1], w.dims = [4, 6, 3, 3]"
    );
}

/// As `&&` joins them: one difference decides, then what is at fault, then what is not known.
#[test]
fn lists_are_equal_where_all_their_elements_are() {
    let world = world();
    let view = View::new(&world.graph);
    for (text, expected) in [
        ("w.dims == w.dims", Truth::True),
        ("w.dims != w.dims", Truth::False),
        ("x.dims == x.dims", Truth::Unknown),
        ("x.dims != x.dims", Truth::Unknown),
        ("x.dims == w.dims", Truth::False),
        ("x.dims != w.dims", Truth::True),
        ("c.attr.strides == w.dims", Truth::False),
        ("c.attr.pads == c.attr.pads", Truth::True),
        ("c.attr.pads == c.attr.strides", Truth::Fault),
        ("w.dims <= w.dims", Truth::Fault),
        ("w.dims == w.rank", Truth::Fault),
    ] {
        let found = world.scope(&view).holds(&world.compile(&expression(text)));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn numbers_that_do_not_fit_are_faults_and_never_wrap() {
    let world = world();
    let view = View::new(&world.graph);
    let holds = |text: &str| world.scope(&view).holds(&world.compile(&expression(text)));
    let most = i64::MAX;
    for text in [
        format!("{most} + 1 == -{most} - 1"),
        format!("-{most} - 2 == {most}"),
        format!("{most} * 2 == -2"),
        format!("(-{most} - 1) / -1 == -{most} - 1"),
        format!("(-{most} - 1) % -1 == 0"),
        format!("-(-{most} - 1) == -{most} - 1"),
        "1 / 0 == 0".to_owned(),
        "1 % 0 == 0".to_owned(),
        "!(1 / 0 == 0)".to_owned(),
        "aligned(x.rank, 0)".to_owned(),
        "x.rank && true".to_owned(),
        "x.rank == true".to_owned(),
        "x.dtype < \"f64\"".to_owned(),
    ] {
        assert_eq!(holds(&text), Truth::Fault, "{text}");
    }
    assert_eq!(holds("x.rank == 4 || 1 / 0 == 0"), Truth::True);
    assert_eq!(holds("x.rank == 3 && 1 / 0 == 0"), Truth::False);
    assert_eq!(holds("x.dim[0] == 1 || 1 / 0 == 0"), Truth::Unknown);
    assert_eq!(
        holds(&format!("{most} - {most} == 0 && -7 / 2 == -3 && -7 % 2 == -1")),
        Truth::True
    );
}

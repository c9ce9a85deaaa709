//! Files read back as they were printed, and hostile ones are refused in words.

use super::Dice;
use crate::pattern::{FaultKind, Library, PatternError, syntax::*};
use bricolage_tensor::{DType, Layout};
use proptest::prelude::*;

const WORDS: &[&str] = &["relu", "x", "y_1", "elementwise", "Gemm", "all_of", "blocked8"];

fn name(dice: &mut Dice<'_>) -> Name {
    Name::from(dice.pick(WORDS))
}

fn title(dice: &mut Dice<'_>) -> Name {
    let parts: Vec<Name> = (0..1 + dice.roll(3)).map(|_| name(dice)).collect();
    Name::from(parts.iter().map(|n| n.text.as_str()).collect::<Vec<_>>().join("+").as_str())
}

fn text(dice: &mut Dice<'_>) -> String {
    dice.pick(&["", "a b", "with \"quotes\" and \\", "f\u{fc}r // alle", ".."]).to_owned()
}

fn some<T>(dice: &mut Dice<'_>, make: impl FnOnce(&mut Dice<'_>) -> T) -> Option<T> {
    (dice.roll(2) == 0).then(|| make(dice))
}

fn literal(dice: &mut Dice<'_>) -> Literal {
    match dice.roll(5) {
        0 => Literal::Int(dice.pick(&[0, -7, i64::MAX, -i64::MAX])),
        1 => Literal::Real(dice.pick(&[0.5, -1e300, 1e-7, 2.0])),
        2 => Literal::Text(text(dice)),
        _ => Literal::Bool(dice.roll(2) == 0),
    }
}

fn format(dice: &mut Dice<'_>) -> FormatSpec {
    let layout = dice.pick(&[
        Layout::Plain,
        Layout::ChannelsLast { halo: 0 },
        Layout::ChannelsLast { halo: 2 },
        Layout::Blocked { block: 8, halo: 1 },
        Layout::Blocked { block: 16, halo: 0 },
    ]);
    FormatSpec { dtype: dice.pick(&[None, Some(DType::F32), Some(DType::I8)]), layout }
}

fn path(dice: &mut Dice<'_>) -> Path {
    let steps = (0..dice.roll(4)).map(|_| match dice.roll(2) {
        0 => Step::Index(dice.pick(&[0, 3, -1])),
        _ => Step::Field(name(dice)),
    });
    let steps = steps.collect();
    Path { root: name(dice), steps }
}

fn expression(dice: &mut Dice<'_>, depth: usize) -> Expression {
    let several = |dice: &mut Dice<'_>| -> Vec<Expression> {
        (0..2 + dice.roll(2)).map(|_| expression(dice, depth - 1)).collect()
    };
    let pair = |dice: &mut Dice<'_>| {
        let first = expression(dice, depth - 1);
        Box::new([first, expression(dice, depth - 1)])
    };
    match if depth == 0 { dice.roll(5) } else { dice.roll(15) } {
        0 => Expression::Literal(match literal(dice) {
            Literal::Int(n) => Literal::Int(n.saturating_abs()),
            Literal::Real(n) => Literal::Real(n.abs()),
            other => other,
        }),
        1 => Expression::Measure(
            dice.pick(&[Measure::Product, Measure::Length, Measure::Has]),
            path(dice),
        ),
        2 => Expression::Aligned(path(dice), dice.pick(&[8, -1])),
        3 => Expression::Same(name(dice), name(dice)),
        4 => Expression::Path(path(dice)),
        5 => Expression::Not(Box::new(expression(dice, depth - 1))),
        6 => Expression::Negative(Box::new(expression(dice, depth - 1))),
        7 => {
            let all = [
                Arithmetic::Add,
                Arithmetic::Subtract,
                Arithmetic::Multiply,
                Arithmetic::Divide,
                Arithmetic::Remainder,
            ];
            Expression::Arithmetic(dice.pick(&all), pair(dice))
        }
        8 => {
            let all = [
                Comparison::Equal,
                Comparison::Differs,
                Comparison::Less,
                Comparison::AtMost,
                Comparison::Greater,
                Comparison::AtLeast,
            ];
            Expression::Compare(dice.pick(&all), pair(dice))
        }
        9 => {
            let inner = Box::new(expression(dice, depth - 1));
            Expression::OneOf(inner, (0..1 + dice.roll(3)).map(|_| literal(dice)).collect())
        }
        10 => {
            let inner = Box::new(expression(dice, depth - 1));
            Expression::Within(inner, literal(dice), literal(dice))
        }
        11 => Expression::And(several(dice)),
        12 => Expression::Or(several(dice)),
        13 => {
            let (each, list) = (name(dice), path(dice));
            Expression::Every(dice.roll(2) == 0, each, list, Box::new(expression(dice, depth - 1)))
        }
        _ => Expression::Macs(name(dice)),
    }
}

fn ops(dice: &mut Dice<'_>) -> Vec<OpName> {
    let one = |dice: &mut Dice<'_>| match dice.roll(3) {
        0 => OpName::Class(name(dice)),
        _ => OpName::Op(name(dice)),
    };
    (0..1 + dice.roll(3)).map(|_| one(dice)).collect()
}

fn pattern(dice: &mut Dice<'_>, depth: usize) -> Pattern {
    let several = |dice: &mut Dice<'_>, n: usize| -> Vec<Pattern> {
        (0..n).map(|_| pattern(dice, depth - 1)).collect()
    };
    match if depth == 0 { dice.roll(3) } else { dice.roll(9) } {
        0 => Pattern::Leaf(dice.pick(&[
            Leaf::Any,
            Leaf::Const,
            Leaf::Var,
            Leaf::Scalar,
            Leaf::Input,
        ])),
        1 => Pattern::Same(name(dice)),
        2 => Pattern::Use(name(dice)),
        3 => Pattern::Bind(name(dice), Box::new(pattern(dice, depth - 1))),
        4 => Pattern::Optional(Box::new(pattern(dice, depth - 1))),
        5 => {
            let count = 2 + dice.roll(2);
            Pattern::Any(several(dice, count))
        }
        _ => {
            let ops = ops(dice);
            let attributes = (0..dice.roll(3)).map(|_| (name(dice), literal(dice))).collect();
            let count = dice.roll(3);
            let arguments = match dice.roll(3) {
                0 => Arguments::Exact(several(dice, count)),
                1 => Arguments::Open(several(dice, count)),
                _ => {
                    let first = pattern(dice, depth - 1);
                    Arguments::Either(Box::new([first, pattern(dice, depth - 1)]))
                }
            };
            Pattern::Op(OpPattern { ops, attributes, arguments })
        }
    }
}

fn claim(dice: &mut Dice<'_>) -> Claim {
    let set = |dice: &mut Dice<'_>| match dice.roll(3) {
        0 => FormatSet::Any,
        1 => FormatSet::SameAs(name(dice)),
        _ => FormatSet::OneOf((0..1 + dice.roll(3)).map(|_| format(dice)).collect()),
    };
    let named = |dice: &mut Dice<'_>| (Name::from(dice.pick(&["_", "x"])), set(dice));
    Claim {
        conditions: (0..dice.roll(3)).map(|_| expression(dice, 3)).collect(),
        formats: (0..dice.roll(3))
            .map(|_| (0..dice.roll(3)).map(|_| named(dice)).collect())
            .collect(),
        entry: some(dice, |dice| Name::from(text(dice).as_str())),
        numerics: some(dice, |d| d.pick(NUMERICS).1),
    }
}

fn declaration(dice: &mut Dice<'_>) -> Declaration {
    let number = |dice: &mut Dice<'_>| dice.pick(&[1, 8, -3]);
    match dice.roll(6) {
        0 => Declaration::Backend(BackendDeclaration {
            name: name(dice),
            kind: some(dice, |d| d.pick(KINDS).1),
            plugin: some(dice, text),
            version: some(dice, |dice| (text(dice), text(dice))),
            covers: some(dice, text),
            numerics: some(dice, |d| d.pick(NUMERICS).1),
            requires: some(dice, |dice| expression(dice, 3)),
        }),
        1 => Declaration::Let(Let {
            name: name(dice),
            parameters: (0..dice.roll(3)).map(|_| name(dice)).collect(),
            pattern: pattern(dice, 3),
            condition: some(dice, |dice| expression(dice, 2)),
        }),
        2 => Declaration::Pattern(PatternDeclaration {
            name: title(dice),
            pattern: pattern(dice, 4),
            claim: claim(dice),
        }),
        3 => Declaration::Rule(RuleDeclaration {
            name: title(dice),
            seed: pattern(dice, 2),
            grow: (0..dice.roll(3))
                .map(|_| Grow {
                    direction: dice.pick(&[Direction::Down, Direction::Up, Direction::Side]),
                    ops: ops(dice),
                    meet: dice.roll(2) == 0,
                    condition: some(dice, |dice| expression(dice, 2)),
                })
                .collect(),
            max_nodes: some(dice, number),
            max_depth: some(dice, number),
            claim: claim(dice),
        }),
        4 => Declaration::Convert(Convert {
            name: name(dice),
            from: format(dice),
            to: format(dice),
            condition: some(dice, |dice| expression(dice, 2)),
        }),
        _ => Declaration::Exclude(Exclude {
            name: title(dice),
            condition: expression(dice, 2),
            because: text(dice),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_reads_back_as_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 20..200),
    ) {
        let mut dice = Dice::new(&bytes);
        let file = File { declarations: (0..1 + dice.roll(3)).map(|_| declaration(&mut dice)).collect() };
        let printed = file.to_string();
        let read = File::parse("printed", &printed);
        prop_assert_eq!(read.map_err(|e| e.to_string()), Ok(file), "{}", printed);
    }

    /// Any damage is read, or refused with a place in the file.
    #[test]
    fn damaged_files_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 20..120),
        cuts in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6),
    ) {
        let mut dice = Dice::new(&bytes);
        let file = File { declarations: vec![declaration(&mut dice), declaration(&mut dice)] };
        let mut damaged: Vec<char> = file.to_string().chars().collect();
        for (at, what) in cuts {
            let at = usize::from(at) % damaged.len();
            match what % 3 {
                0 => drop(damaged.splice(at..=at, None)),
                1 => damaged[at] = char::from(what / 2),
                _ => damaged.insert(at, '('),
            }
            damaged.push(' ');
        }
        let text: String = damaged.into_iter().collect();
        match File::parse("damaged", &text) {
            Ok(file) => drop(file.check("damaged", &Library::default())),
            Err(error) => prop_assert!(error.faults[0].at.line >= 1 && error.faults.len() == 1),
        }
    }
}

fn refused(text: &str) -> PatternError {
    match File::parse("h", text) {
        Ok(file) => file.check("h", &Library::default()).unwrap_err(),
        Err(error) => error,
    }
}

fn says(text: &str) -> String {
    refused(text).to_string()
}

#[test]
fn hostile_files_are_refused_in_words() {
    let million = "(".repeat(1 << 20);
    let limit = |error: PatternError, what: &str| {
        let found = matches!(&error.faults[0].kind, FaultKind::Limit { what: w, .. } if *w == what);
        assert!(found, "{error}");
    };
    let deep = "brackets inside each other";
    limit(refused(&format!("let p = {million}")), deep);
    limit(refused(&format!("let p = {}", "relu(".repeat(1 << 16))), deep);
    for open in ["(", "!", "-", "all(a in b: "] {
        limit(refused(&format!("exclude p where {}", open.repeat(1 << 16))), deep);
    }
    let long = format!("exclude p where 1{} == 1 because \"\";", " + 1".repeat(1 << 16));
    limit(refused(&long), "operations after each other");
    // Every `let` doubles the one before.
    let mut doubling = "backend b {} let a0(x) = add(x, x);".to_owned();
    for i in 1..40 {
        doubling += &format!("let a{i}(x) = a{}(a{}(x));", i - 1, i - 1);
    }
    limit(refused(&doubling), "parts in a pattern");
    assert_eq!(
        says(&million),
        "h:1:1: needs `backend`, `let`, `pattern`, `rule`, `convert` or `exclude`, found `(`"
    );
    assert_eq!(
        says("exclude p where x.rank == 99999999999999999999 because \"\";"),
        "h:1:27: needs a number of at most 9223372036854775807, found the number 99999999999999999999"
    );
    assert!(says(&format!("exclude p where {} == 1", "9".repeat(1 << 20))).len() < 200);
    assert!(says("exclude p where 1e999999 == 1").contains("a number of double precision"));
    assert_eq!(
        says("backend b {\n  covers: \"matrix"),
        "h:2:11: needs a text that ends on its line, found the text \"matrix\" without its end"
    );
    assert_eq!(
        says("backend b { kind: op_library;"),
        "h:1:30: needs `kind`, `plugin`, `version`, `covers`, `numerics`, `requires` or `}`, found the end of the file"
    );
    assert_eq!(says("let \u{fc} = _;"), "h:1:5: needs a word of the language, found '\u{fc}'");
    assert_eq!(says(""), "h:1:1: needs one `backend`, found none");
}

#[test]
fn every_unknown_name_is_reported_at_once() {
    let text = "backend b { requires: dev.speed > 1; }
let act(x) = rellu(x) | clip(x);
pattern p {
  match: y@act(c@conv2d(x@_, w@const, $z)) ;
  where: x.rnk == 4 && v.rank == 2 && y.attr.groups == 1;
  formats: { w: any; q: f32:plain; y: same_as u; }
  entry: \"gemm\";
}
rule r { seed: s@#anker(...); grow: up #element while nod.uses == 1; entry: \"chain\"; }
exclude nobody where 1 == 1 because \"none\";
convert swap: f32:plain -> i8:channels-last;";
    let library = Library { entries: vec!["matmul".to_owned()], ..Library::default() };
    let error = File::parse("b", text).unwrap().check("b", &library).unwrap_err();
    let expected = "b:1:9: needs a pattern for the library's entry `matmul`, found none
b:1:27: needs a fact about the machine that the library gives, found `speed`
b:2:14: needs the name of an op, found `rellu`
b:4:18: needs the name of an op, found `conv2d`
b:4:40: needs the name of a value that stands before, found `z`
b:5:12: needs a field of a value, found `rnk`
b:5:24: needs the name of a value of the pattern, found `v`
b:6:14: needs a value that is read or made at run time, found the constant `w`
b:6:22: needs the name of a value of the pattern, found `q`
b:6:47: needs the name of a value of the pattern, found `u`
b:7:10: needs an entry of the library, found `gemm`
b:9:19: needs a class of ops, found `anker`
b:9:41: needs a class of ops, found `element`
b:9:55: needs the name of a value of the pattern, found `nod`
b:9:77: needs an entry of the library, found `chain`
b:10:9: needs the name of a pattern or rule, found `nobody`
b:11:9: needs two formats of one element type, as in `f32:plain`, found `i8:channels-last`
b:11:9: needs an entry of the library, found `swap`";
    let found = error.to_string();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{found}");
}

#[test]
fn names_that_are_taken_are_refused() {
    let head = "backend b {} ";
    for (text, found) in [
        ("let relu(x) = neg(x);", "h:1:18: needs a name that is free, found `relu`"),
        ("let a = relu(x@_); let a = neg(_);", "h:1:37: needs a name that is free, found `a`"),
        ("let a = add(x@_, x@_);", "h:1:31: needs a name that is free, found `x`"),
        ("let a = add(node@_, _);", "h:1:26: needs a name that is free, found `node`"),
        ("let a = sub{_, _};", "h:1:22: needs an op whose operands may change places, found `sub`"),
        ("let a = relu[alpha = 1](_);", "h:1:27: needs an attribute of the op, found `alpha`"),
        (
            "let a = relu(b);",
            "h:1:27: needs the name of a pattern or of an op with its operands, found `b`",
        ),
        (
            "rule r { seed: relu(_); grow: up relu while exit.uses == 1; }",
            "h:1:19: needs an entry of the library, found `r`\n\
             h:1:58: needs the name of a value of the pattern, found `exit`",
        ),
        (
            "let f(v) = neg(v) where v.rank == 2;",
            "h:1:38: needs the name of a value of the pattern, found `v`",
        ),
        ("pattern a+ { match: neg(_); }", "h:1:25: needs a name after `+`, found `{`"),
        ("let f(x) = relu(x); let a = f(_, _);", "h:1:42: needs 1 patterns for `f`, found 2"),
    ] {
        assert_eq!(says(&format!("{head}{text}")), found, "{text}");
    }
}

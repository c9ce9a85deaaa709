//! Inputs for a model: fixed by the user's sizes, drawn from a seed, or read from a file.

pub use crate::draw::Draw;
use crate::{Error, InputShape, npz};
use bricolage_ir::{Graph, ValueId};
use bricolage_measure::Machine;
use bricolage_tensor::{Datum, Dim, Rng, Symbol, Tensor, Type};
use std::collections::BTreeMap;

/// Gives the open sizes of the inputs the sizes that `shapes` say, infers all types anew, and adds the
/// ranges that `shapes` say to those of the graph.
///
/// Symbols that no shape mentions stay. Fails when a shape names no input and no open size, or does not fit.
pub fn bind_shapes(graph: &Graph, shapes: &[InputShape]) -> Result<Graph, Error> {
    let mut ranges = graph.ranges.clone();
    let mut narrow = |symbol: &Symbol, (low, high): (i64, i64)| {
        let (least, most) = ranges.get(symbol);
        let both = (low.max(least), high.min(most));
        if both.0 > both.1 {
            return Err(format!(
                "`{symbol}` cannot be {} and {}",
                span((least, most)),
                span((low, high))
            ));
        }
        ranges.0.insert(symbol.clone(), both);
        Ok(())
    };
    for shape in shapes {
        let value = graph.inputs.iter().copied().find(|&v| *graph.value(v).name == *shape.name);
        let Some(value) = value else {
            let symbol = graph.symbols().into_iter().find(|s| *s.0 == *shape.name);
            let (Some(symbol), [range]) = (symbol, &shape.dims[..]) else {
                return Err(Error::Inputs {
                    what: format!(
                        "there is no input `{}`, and no open size of that name with {} dims",
                        shape.name,
                        shape.dims.len()
                    ),
                    help: format!("the inputs are {}", names(graph)),
                });
            };
            narrow(&symbol, *range).map_err(|what| Error::Inputs { what, help: String::new() })?;
            continue;
        };
        let wrong = |why: String| Error::Inputs {
            what: format!("input `{}` is {}: {why}", shape.name, graph.fact(value)),
            help: String::new(),
        };
        let Type::Tensor(t) = &graph.fact(value).ty else {
            return Err(wrong("it has no sizes".to_owned()));
        };
        if t.shape.len() != shape.dims.len() {
            return Err(wrong(format!("found {} dims", shape.dims.len())));
        }
        for (dim, &range) in t.shape.iter().zip(&shape.dims) {
            match (dim.as_symbol(), dim.as_const()) {
                (Some(symbol), _) => narrow(symbol, range).map_err(wrong)?,
                (None, Some(fixed)) if fixed < range.0 || fixed > range.1 => {
                    return Err(wrong(format!("found {} where it has {fixed}", span(range))));
                }
                _ => {}
            }
        }
    }
    let known = ranges.0.iter().filter(|(_, r)| r.0 == r.1).map(|(s, r)| (s.clone(), r.0));
    let mut bound = bind_sizes(graph, &known.collect())?;
    ranges.0.retain(|_, r| r.0 < r.1);
    bound.ranges = ranges;
    Ok(bound)
}

/// A range of sizes in words.
pub(crate) fn span((low, high): (i64, i64)) -> String {
    match (low == high, high) {
        (true, _) => low.to_string(),
        (false, i64::MAX) => format!("at least {low}"),
        (false, _) => format!("{low}..{high}"),
    }
}

/// The graph with every size that has a range at the upper end of it: there it is measured.
pub fn at_upper_ends(graph: &Graph) -> Result<Graph, Error> {
    if graph.ranges.0.is_empty() {
        return Ok(graph.clone());
    }
    let ends = graph.ranges.0.iter().map(|(symbol, range)| (symbol.clone(), range.1));
    bind_sizes(graph, &ends.collect())
}

/// Fails when an input has a size outside the graph's ranges.
pub(crate) fn require_ranges(graph: &Graph, given: &[Datum]) -> Result<(), Error> {
    for (&value, datum) in graph.inputs.iter().zip(given) {
        let (shape, dims) = match (&graph.fact(value).ty, datum) {
            (Type::Tensor(t), Datum::Tensor(given)) => (&t.shape, given.dims()),
            (Type::Strings(shape), Datum::Strings(given)) => (shape, given.dims()),
            _ => continue,
        };
        for (dim, &found) in shape.iter().zip(dims) {
            let Some(symbol) = dim.as_symbol() else { continue };
            let (low, high) = graph.ranges.get(symbol);
            if found < low || found > high {
                return Err(Error::OutOfRange {
                    input: graph.value(value).name.to_string(),
                    size: symbol.to_string(),
                    found,
                    low,
                    high,
                });
            }
        }
    }
    Ok(())
}

/// The graph with these sizes in place of their symbols. Fails when they contradict each other.
pub(crate) fn bind_sizes(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Result<Graph, Error> {
    let bound = graph.bind(&|s| sizes.get(s).map(|&n| Dim::from(n)));
    bound.map_err(|e| Error::Inputs {
        what: format!("the model does not fit these sizes: {e}"),
        help: "give other sizes with --shape".to_owned(),
    })
}

/// Binds the symbols of the inputs to the dims of `tensors`, which are in the graph's order. Fails when
/// they lie outside the graph's ranges, or a value then takes more than the machine's memory.
pub fn bind_to(graph: &Graph, tensors: &[Tensor]) -> Result<Graph, Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let sizes = bricolage_ir::solve_symbols(graph, &data).map_err(|e| Error::Inputs {
        what: e.to_string(),
        help: format!("the inputs are {}", names(graph)),
    })?;
    require_ranges(graph, &data)?;
    let bound = bind_sizes(graph, &sizes)?;
    require_memory(&bound, bound.values())?;
    Ok(bound)
}

fn names(graph: &Graph) -> String {
    let one = |&v: &ValueId| format!("`{}` {}", graph.value(v).name, graph.fact(v));
    graph.inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The reference evaluator computes in numbers of this many bytes, beside the elements themselves.
const NUMBER: u64 = 8;

/// Fails when a value with fixed sizes takes more than the machine's memory; computed values are
/// evaluated by the reference, which takes more.
pub(crate) fn require_memory(
    graph: &Graph,
    values: impl Iterator<Item = ValueId>,
) -> Result<(), Error> {
    let memory = Machine::read().memory;
    for value in values {
        let Type::Tensor(t) = &graph.fact(value).ty else { continue };
        if t.shape.as_fixed().is_none() {
            continue;
        }
        let computed = graph.producer(value).is_some();
        let numbers = match computed {
            true => t.shape.element_count().and_then(|n| n.checked_mul(NUMBER)),
            false => Some(0),
        };
        let needed = t.byte_len().zip(numbers).and_then(|(a, b)| a.checked_add(b));
        if needed.is_none_or(|n| n > memory) {
            let bytes = needed.map_or("too many to count".to_owned(), |n| n.to_string());
            let verb = if computed { "takes, while it is computed," } else { "takes" };
            let name = &graph.value(value).name;
            return Err(Error::Inputs {
                what: format!("`{name}` {t} {verb} {bytes} bytes, found {memory} bytes of memory"),
                help: "give smaller sizes with --shape".to_owned(),
            });
        }
    }
    Ok(())
}

/// Whether every value is a tensor of constant size.
pub(crate) fn is_fixed(graph: &Graph) -> bool {
    let fixed = |v| matches!(&graph.fact(v).ty, Type::Tensor(t) if t.shape.as_fixed().is_some());
    graph.values().all(fixed)
}

/// The first value with a symbolic or an impossible size, as an error that says so.
pub fn require_fixed(graph: &Graph) -> Result<(), Error> {
    for value in graph.values() {
        let ty = &graph.fact(value).ty;
        if ty.as_tensor().is_none() {
            let value = graph.value(value);
            return Err(Error::Inputs {
                what: format!("value `{}` is {ty}, and plans hold tensors alone", value.name),
                help: "keep lists, texts and optional values out of the model".to_owned(),
            });
        }
        if let Type::Tensor(t) = ty
            && t.shape.as_fixed().is_none()
        {
            let value = graph.value(value).name.to_string();
            if graph.symbols().is_empty() && t.shape.iter().any(|d| d.as_const().is_none()) {
                return Err(Error::Inputs {
                    what: format!("value `{value}` is {t}, and no input has such a size"),
                    help: "declare its sizes in the model's value_info".to_owned(),
                });
            }
            return Err(Error::Symbolic { value, ty: t.to_string() });
        }
    }
    require_memory(graph, graph.values())
}

/// Seeded contents for every input, each as [`Draw::of`] says; sizes that have a range are at its upper end.
pub fn sample_inputs(graph: &Graph, seed: u64) -> Result<Vec<Tensor>, Error> {
    let graph = &at_upper_ends(graph)?;
    require_memory(graph, graph.inputs.iter().copied())?;
    let mut rng = Rng::new(seed ^ 0x6272_6963);
    let mut tensors = Vec::new();
    for &value in &graph.inputs {
        let name = &graph.value(value).name;
        let fixed = match &graph.fact(value).ty {
            Type::Tensor(t) => t.shape.as_fixed().map(|dims| (t.dtype, dims)),
            _ => None,
        };
        let (dtype, dims) = fixed.ok_or_else(|| Error::Symbolic {
            value: name.to_string(),
            ty: graph.fact(value).to_string(),
        })?;
        tensors.push(Draw::of(graph, value).tensor(dtype, &dims, &mut rng));
    }
    Ok(tensors)
}

/// The nodes of a graph, and types and contents of its inputs: what was found with others does not hold here.
pub(crate) fn contents_name(graph: &Graph, tensors: &[Tensor]) -> String {
    let one = |(&v, t): (&ValueId, &Tensor)| {
        format!("input {} {}\n", graph.fact(v), blake3::hash(t.bytes()).to_hex())
    };
    // Other rewrites make another graph of one model, in which numbers mean other nodes.
    let nodes = graph.order();
    let structure = blake3::hash(format!("{nodes:?}\n{}", graph.canonical(&nodes)).as_bytes());
    let inputs: String = graph.inputs.iter().zip(tensors).map(one).collect();
    format!("graph {}\n{inputs}", structure.to_hex())
}

/// How [`sample_inputs`] draws each input, one line each.
pub fn describe_draws(graph: &Graph) -> Vec<String> {
    let one = |&v: &ValueId| format!("input `{}`: {}", graph.value(v).name, Draw::of(graph, v));
    graph.inputs.iter().map(one).collect()
}

/// The tensors of an npz file in the graph's order; every input must be there, with its type.
pub fn match_inputs(graph: &Graph, given: Vec<(String, Tensor)>) -> Result<Vec<Tensor>, Error> {
    let mut tensors = Vec::new();
    for &value in &graph.inputs {
        let name = &*graph.value(value).name;
        let tensor = given.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
        let tensor = tensor.ok_or_else(|| Error::Inputs {
            what: format!("input `{name}` is missing"),
            help: format!("the inputs are {}", names(graph)),
        })?;
        let Type::Tensor(t) = &graph.fact(value).ty else { continue };
        let tensor = npz::as_type(tensor, t.dtype);
        let fits = t.dtype == tensor.dtype()
            && t.shape.len() == tensor.dims().len()
            && t.shape
                .iter()
                .zip(tensor.dims())
                .all(|(d, &n)| d.as_const().is_none_or(|fixed| fixed == n));
        if !fits {
            return Err(Error::Inputs {
                what: format!("input `{name}` needs {t}, found {}", tensor.ty()),
                help: String::new(),
            });
        }
        tensors.push(tensor);
    }
    let unknown =
        given.iter().find(|(n, _)| !graph.inputs.iter().any(|&v| *graph.value(v).name == **n));
    if let Some((name, _)) = unknown {
        return Err(Error::Inputs {
            what: format!("there is no input `{name}`"),
            help: format!("the inputs are {}", names(graph)),
        });
    }
    Ok(tensors)
}

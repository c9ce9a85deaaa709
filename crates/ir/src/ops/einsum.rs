//! Sums of products in Einstein's notation.

use super::{
    OpDef,
    elements::{Elements, one, sizes, strides},
    results,
    types::{Operands, attribute, broadcast_dim},
};
use crate::{AxisMap, Body, EvalError, Fact, Inputs, TypeError, contract};
use bricolage_tensor::{Datum, Dim};
use serde::{Deserialize, Serialize};

/// A sum over products of operand elements: `"bij,bjk->bik"`. Each operand dim has a letter; a
/// letter that the result lacks is summed. `...` stands for dims without letters, broadcast from
/// the right. Without `->` the result has the letters that occur once, sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Einsum {
    /// The notation; spaces do not count.
    pub equation: String,
}

/// The notation with letters for `...`, and the size of every letter.
struct Resolved {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
    letters: Vec<(char, Dim)>,
}

impl Einsum {
    fn fault(&self, expected: impl Into<String>) -> TypeError {
        attribute("equation", expected, &self.equation)
    }

    fn resolve(&self, shapes: &[&[Dim]]) -> Result<Resolved, TypeError> {
        let text: String = self.equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != shapes.len() {
            return Err(self.fault(format!("one with {} terms", shapes.len())));
        }
        let ranks: Vec<usize> = parts
            .iter()
            .zip(shapes)
            .map(|(part, shape)| {
                shape.len().saturating_sub(part.replace("...", "").chars().count())
            })
            .collect();
        let most = parts.iter().zip(&ranks).filter(|(p, _)| p.contains("...")).map(|(_, &r)| r);
        let most = most.max().unwrap_or(0);
        // Letters for `...` come from a range that an equation cannot name.
        let hidden = |i: usize| char::from_u32(0xE000 + i as u32).unwrap_or('\u{E000}');
        let spell = |part: &str, rank: usize| -> Result<Vec<char>, TypeError> {
            let dots: String = (most - rank.min(most)..most).map(hidden).collect();
            let spelled: Vec<char> = part.replacen("...", &dots, 1).chars().collect();
            let allowed = |c: &char| c.is_ascii_alphabetic() || *c >= '\u{E000}';
            if spelled.iter().all(allowed) {
                Ok(spelled)
            } else {
                Err(self.fault("letters, `,`, `...` and `->`"))
            }
        };
        let mut terms = Vec::new();
        let mut letters: Vec<(char, Dim)> = Vec::new();
        for (operand, (part, shape)) in parts.iter().zip(shapes).enumerate() {
            let term = spell(part, ranks[operand])?;
            if term.len() != shape.len() {
                return Err(TypeError::Rank {
                    operand,
                    min: term.len(),
                    max: term.len(),
                    got: shape.len(),
                });
            }
            for (&letter, dim) in term.iter().zip(shape.iter()) {
                match letters.iter_mut().find(|l| l.0 == letter) {
                    None => letters.push((letter, dim.clone())),
                    Some((_, have)) => *have = broadcast_dim(operand, have, dim)?,
                }
            }
            terms.push(term);
        }
        let result = match right {
            Some(right) => spell(right, most)?,
            None => {
                let mut once: Vec<char> = letters
                    .iter()
                    .map(|l| l.0)
                    .filter(|c| terms.iter().flatten().filter(|t| *t == c).count() == 1)
                    .filter(|c| c.is_ascii())
                    .collect();
                once.sort_unstable();
                (0..most).map(hidden).chain(once).collect()
            }
        };
        for (i, c) in result.iter().enumerate() {
            if !letters.iter().any(|l| l.0 == *c) || result[..i].contains(c) {
                return Err(self.fault("a result of letters that operands have, each once"));
            }
        }
        Ok(Resolved { terms, result, letters })
    }
}

impl OpDef for Einsum {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, usize::MAX)?;
        let mut shapes: Vec<&[Dim]> = Vec::new();
        for i in 0..inputs.len() {
            shapes.push(&operands.number(i)?.shape);
            operands.same_dtype(0, i)?;
        }
        let resolved = self.resolve(&shapes)?;
        let size = |c: &char| resolved.letters.iter().find(|l| l.0 == *c).map(|l| l.1.clone());
        Ok(vec![Fact::tensor(operands.tensor(0)?.dtype, resolved.result.iter().filter_map(size))])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let mut data = Vec::new();
        let mut all_dims = Vec::new();
        for i in 0..inputs.len() {
            let t = inputs.tensor(i)?;
            all_dims.push(t.dims().iter().map(|&d| Dim::from(d)).collect::<Vec<_>>());
            data.push(Elements::of(t));
        }
        let shapes: Vec<&[Dim]> = all_dims.iter().map(Vec::as_slice).collect();
        let resolved = self.resolve(&shapes)?;
        let extent = |c: char| {
            let found = resolved.letters.iter().find(|l| l.0 == c);
            found.and_then(|l| l.1.as_const()).unwrap_or(0) as usize
        };
        // Step of each letter in each operand; repeated letters add up, dims of 1 do not move.
        let step = |operand: usize, c: char| -> usize {
            let dims = inputs.0[operand].and_then(Datum::as_tensor).map_or(&[][..], |t| t.dims());
            let own = strides(&sizes(dims));
            let here = resolved.terms[operand].iter().zip(own).zip(dims);
            here.filter(|((l, _), d)| **l == c && **d != 1).map(|((_, s), _)| s).sum()
        };
        let offsets = |letters: &[char], operand: usize| -> Vec<usize> {
            let mut all = vec![0];
            for &c in letters {
                let by = step(operand, c);
                all = all.iter().flat_map(|&o| (0..extent(c)).map(move |i| o + i * by)).collect();
            }
            all
        };
        let summed: Vec<char> =
            resolved.letters.iter().map(|l| l.0).filter(|c| !resolved.result.contains(c)).collect();
        // The first operand with the letters that it alone has is one factor; the product of the
        // others is the other.
        let rows = resolved.result.clone();
        let operands = data.len();
        let lhs = (offsets(&rows, 0), offsets(&summed, 0));
        let rest: Vec<(Vec<usize>, Vec<usize>)> =
            (1..operands).map(|i| (offsets(&rows, i), offsets(&summed, i))).collect();
        let count = lhs.0.len();
        let result = if dtype.is_float() {
            let x: Vec<&Vec<f64>> = data
                .iter()
                .filter_map(|d| if let Elements::Float(v) = d { Some(v) } else { None })
                .collect();
            let at = |at: usize| {
                contract::product_at(
                    lhs.1.len(),
                    |l| x[0][lhs.0[at] + lhs.1[l]],
                    |l| rest.iter().zip(&x[1..]).map(|(o, x)| x[o.0[at] + o.1[l]]).product::<f64>(),
                )
            };
            Elements::Float((0..count).map(at).collect())
        } else {
            let x: Vec<&Vec<i128>> = data
                .iter()
                .filter_map(|d| if let Elements::Int(v) = d { Some(v) } else { None })
                .collect();
            let at = |at: usize| {
                (0..lhs.1.len()).fold(0i128, |sum, l| {
                    let product =
                        rest.iter().zip(&x[1..]).fold(x[0][lhs.0[at] + lhs.1[l]], |p, (o, x)| {
                            p.wrapping_mul(x[o.0[at] + o.1[l]])
                        });
                    sum.wrapping_add(product)
                })
            };
            Elements::Int((0..count).map(at).collect())
        };
        one(result.into_tensor(dtype, &dims))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let shapes: Result<Vec<&[Dim]>, TypeError> =
            (0..inputs.len()).map(|i| operands.tensor(i).map(|t| t.shape.as_slice())).collect();
        let Some(resolved) = shapes.ok().and_then(|s| self.resolve(&s).ok()) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let spell = |term: &Vec<char>| term.iter().collect::<String>();
        let left: Vec<String> = resolved.terms.iter().map(spell).collect();
        let signature = format!("{}->{}", left.join(","), spell(&resolved.result));
        let Some(mut map) = AxisMap::einsum(&signature, inputs) else {
            return AxisMap::opaque(inputs, outputs);
        };
        for (axis, (_, extent)) in map.axes.iter_mut().zip(&resolved.letters) {
            axis.extent = extent.clone();
        }
        // A dim of 1 against a larger one does not move.
        for (index, operand) in map.inputs.iter_mut().zip(0..) {
            let Ok(t) = operands.tensor(operand) else { continue };
            for (index, dim) in index.iter_mut().flatten().zip(t.shape.iter()) {
                let axis = index.terms[0].0;
                if *dim != map.axes[axis].extent {
                    *index = crate::Index::fixed(0);
                    if dim.as_const() != Some(1) {
                        map.axes[axis].kind = crate::AxisKind::Opaque;
                    }
                }
            }
        }
        map
    }

    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        (inputs.len() == 2).then(|| Body::contraction(false))
    }
}

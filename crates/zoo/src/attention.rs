//! Attention (Vaswani et al., *Attention Is All You Need*, 2017) in the primitives that exporters
//! write.

use crate::net::{Layer, Net};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, MatMul, Softmax, Split},
    origin,
};
use bricolage_tensor::Dim;

/// `[batch, tokens, width]` as heads in the order `perm` of `[batch, tokens, heads, size]`.
pub(crate) fn split(net: &mut Net, name: &str, x: ValueId, heads: i64, perm: [usize; 4]) -> Layer {
    let dims = net.dims(x);
    let apart = net.reshape(name, x, &[dims[0], dims[1], heads, dims[2] / heads])?;
    net.transpose(name, apart, &perm)
}

/// Queries, keys and values, `[batch, heads, tokens, size]`, from `[batch, tokens, 3 width]`.
pub(crate) fn unpack(
    net: &mut Net,
    name: &str,
    x: ValueId,
    heads: i64,
) -> Result<[ValueId; 3], TypeError> {
    let dims = net.dims(x);
    let size = dims[2] / 3 / heads;
    let apart = net.reshape(name, x, &[dims[0], dims[1], 3, heads, size])?;
    let apart = net.transpose(name, apart, &[2, 0, 3, 1, 4])?;
    let op = Split { axis: 0, sizes: vec![Dim::from(1); 3] };
    let parts = net.graph.add(op, &[apart], origin(&format!("/{name}/Split")))?;
    let mut all = [apart; 3];
    for (i, to) in all.iter_mut().enumerate() {
        let squeezed = format!("{name}/{i}");
        *to = net.reshape(&squeezed, parts[i], &[dims[0], heads, dims[1], size])?;
    }
    Ok(all)
}

/// Scores of every query against every key, scaled; both as `[batch, tokens, width]`.
pub(crate) fn scores(net: &mut Net, name: &str, [q, k]: [ValueId; 2], heads: i64) -> Layer {
    let q = split(net, &format!("{name}/query"), q, heads, [0, 2, 1, 3])?;
    let k = split(net, &format!("{name}/key"), k, heads, [0, 2, 3, 1])?;
    products(net, name, [q, k])
}

/// Scores of queries `[batch, heads, tokens, size]` against keys `[batch, heads, size, tokens]`.
pub(crate) fn products(net: &mut Net, name: &str, [q, k]: [ValueId; 2]) -> Layer {
    let size = net.dims(q)[3];
    let product = net.add(&format!("{name}/scores/MatMul"), MatMul::default(), &[q, k])?;
    let scale = net.scalar(&format!("{name}.scale"), 1.0 / (size as f32).sqrt());
    net.add(&format!("{name}/scores/Mul"), Binary::Mul, &[product, scale])
}

/// Values `[batch, tokens, width]` weighted by scores, heads joined again.
pub(crate) fn weighted(
    net: &mut Net,
    name: &str,
    scores: ValueId,
    v: ValueId,
    heads: i64,
) -> Layer {
    let v = split(net, &format!("{name}/value"), v, heads, [0, 2, 1, 3])?;
    mixed(net, name, scores, v)
}

/// Values `[batch, heads, tokens, size]` weighted by scores, heads joined again.
pub(crate) fn mixed(net: &mut Net, name: &str, scores: ValueId, v: ValueId) -> Layer {
    let softmax = Softmax { axis: 3, log: false };
    let weights = net.add(&format!("{name}/Softmax"), softmax, &[scores])?;
    let mixed = net.add(&format!("{name}/context/MatMul"), MatMul::default(), &[weights, v])?;
    let rows = net.transpose(&format!("{name}/context"), mixed, &[0, 2, 1, 3])?;
    let dims = net.dims(rows);
    net.reshape(&format!("{name}/context"), rows, &[dims[0], dims[1], dims[2] * dims[3]])
}

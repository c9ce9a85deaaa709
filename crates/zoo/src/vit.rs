//! The Vision Transformer (Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image
//! Recognition at Scale*, 2020).

use crate::{attention, net::Net};
use bricolage_ir::{
    TypeError,
    ops::{Conv, Expand, Gather},
};
use bricolage_tensor::{Shape, Tensor};

const WIDTH: i64 = 768;
const HEADS: i64 = 12;
const PATCH: i64 = 16;

pub(crate) fn vit_b16(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let op = Conv { strides: vec![PATCH; 2], ..Conv::plain(2) };
    let weight = [WIDTH, 3, PATCH, PATCH];
    let x = net.conv_with("patch_embed.proj", x, &weight, op, 1.0, true)?;
    let patches = net.dims(x)[2] * net.dims(x)[3];
    let x = net.reshape("patch_embed", x, &[net.batch, WIDTH, patches])?;
    let x = net.transpose("patch_embed", x, &[0, 2, 1])?;
    let class = net.uniform("cls_token", &[1, 1, WIDTH], -0.1, 0.1);
    let op = Expand { to: Shape::fixed(&[net.batch, 1, WIDTH]) };
    let class = net.add("cls_token/Expand", op, &[class])?;
    let x = net.concat("cls_token", &[class, x], 1)?;
    let places = net.uniform("pos_embed", &[1, patches + 1, WIDTH], -0.1, 0.1);
    let mut x = net.sum("pos_embed", x, places)?;
    for layer in 0..12 {
        let name = format!("blocks.{layer}");
        let inner = format!("{name}.attn");
        let y = net.layer_norm(&format!("{name}.norm1"), x, 1e-6)?;
        let all = net.dense(&format!("{inner}.qkv"), y, 3 * WIDTH)?;
        let [q, k, v] = attention::unpack(net, &inner, all, HEADS)?;
        let k = net.transpose(&format!("{inner}/key"), k, &[0, 1, 3, 2])?;
        let scores = attention::products(net, &inner, [q, k])?;
        let y = attention::mixed(net, &inner, scores, v)?;
        let y = net.dense(&format!("{inner}.proj"), y, WIDTH)?;
        x = net.sum(&inner, x, y)?;
        let y = net.layer_norm(&format!("{name}.norm2"), x, 1e-6)?;
        let wide = net.dense(&format!("{name}.mlp.fc1"), y, 4 * WIDTH)?;
        let wide = net.gelu(&format!("{name}.mlp.act"), wide)?;
        let y = net.dense(&format!("{name}.mlp.fc2"), wide, WIDTH)?;
        x = net.sum(&format!("{name}.mlp"), x, y)?;
    }
    let x = net.layer_norm("norm", x, 1e-6)?;
    let first = net.graph.constant("first", Tensor::of(&[], &[0i64]));
    let x = net.add("Gather", Gather { axis: 1 }, &[x, first])?;
    let x = net.gemm("head", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

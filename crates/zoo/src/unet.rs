//! U-Net (Ronneberger, Fischer and Brox, *U-Net: Convolutional Networks for Biomedical Image
//! Segmentation*, 2015), with padded convolutions and normalisation, as it is commonly built.

use crate::net::{Layer, Net};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Concat, ConvTranspose},
};

pub(crate) fn unet(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 256);
    let mut x = double(net, "inc", x, 64)?;
    let mut skips = Vec::new();
    for level in 1..=4 {
        skips.push(x);
        let name = format!("down{level}");
        let half = net.max_pool(&name, x, [2, 2, 0])?;
        x = double(net, &name, half, 64 << level)?;
    }
    for (level, skip) in (1..).zip(skips.into_iter().rev()) {
        let name = format!("up{level}");
        let channels = net.dims(skip)[1];
        let wide = up(net, &format!("{name}.up"), x, channels)?;
        let both = net.add(&format!("{name}/Concat"), Concat { axis: 1 }, &[skip, wide])?;
        x = double(net, &name, both, channels)?;
    }
    let x = net.conv("outc.conv", x, 1, [1, 1, 1], true)?;
    net.output(x, "output");
    Ok(())
}

/// Two 3x3 convolutions, each normalised and rectified.
fn double(net: &mut Net, name: &str, mut x: ValueId, channels: i64) -> Layer {
    for i in [0, 3] {
        x = net.conv(&format!("{name}.double_conv.{i}"), x, channels, [3, 1, 1], false)?;
        x = net.batch_norm(&format!("{name}.double_conv.{}", i + 1), x, 1.0)?;
        x = net.relu(&format!("{name}.double_conv.{}", i + 2), x)?;
    }
    Ok(x)
}

/// Twice the size by a transposed convolution without overlap.
fn up(net: &mut Net, name: &str, x: ValueId, channels: i64) -> Layer {
    let inputs = net.dims(x)[1];
    let w = net.weight(&format!("{name}.weight"), &[inputs, channels, 2, 2], inputs, 1.0);
    let bias = net.uniform(&format!("{name}.bias"), &[channels], -0.1, 0.1);
    let op = ConvTranspose {
        strides: vec![2; 2],
        dilations: vec![1; 2],
        pads: vec![(0, 0); 2],
        output_padding: vec![0; 2],
        groups: 1,
    };
    net.add(&format!("{name}/ConvTranspose"), op, &[x, w, bias])
}

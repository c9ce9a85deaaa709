//! U-Net (Ronneberger, Fischer and Brox, *U-Net: Convolutional Networks for Biomedical Image
//! Segmentation*, 2015), with padded convolutions and normalisation, as it is commonly built.

use crate::net::{Layer, Net};
use bricolage_ir::{TypeError, ValueId, ops::Unary};

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
        let up = format!("{name}.up");
        let wide = net.conv_transpose(&up, x, channels, [2, 2, 0], 1.0, true)?;
        let both = net.concat(&name, &[skip, wide], 1)?;
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

/// UNet++ (Zhou, Siddiquee, Tajbakhsh and Liang, *UNet++: A Nested U-Net Architecture for Medical
/// Image Segmentation*, 2018), without deep supervision.
pub(crate) fn unetpp(net: &mut Net) -> Result<(), TypeError> {
    const LEVELS: usize = 5;
    let x = net.image(3, 256);
    // Per level, the results so far, from the encoder on.
    let mut grid: Vec<Vec<ValueId>> = vec![Vec::new(); LEVELS];
    for column in 0..LEVELS {
        for level in 0..LEVELS - column {
            let name = format!("conv{level}_{column}");
            let channels = 32 << level;
            let mut y = match (column, level) {
                (0, 0) => x,
                (0, _) => net.max_pool(&name, grid[level - 1][0], [2, 2, 0])?,
                _ => {
                    let below = grid[level + 1][column - 1];
                    let up = format!("up{level}_{column}");
                    let wide = net.conv_transpose(&up, below, channels, [2, 2, 0], 1.0, true)?;
                    let all = [&grid[level][..], &[wide]].concat();
                    net.concat(&name, &all, 1)?
                }
            };
            for i in 1..=2 {
                y = net.conv(&format!("{name}.conv{i}"), y, channels, [3, 1, 1], true)?;
                y = net.relu(&format!("{name}.relu{i}"), y)?;
            }
            grid[level].push(y);
        }
    }
    let last = grid[0][LEVELS - 1];
    let x = net.conv("final", last, 1, [1, 1, 1], true)?;
    let x = net.add("final/Sigmoid", Unary::Sigmoid, &[x])?;
    net.output(x, "output");
    Ok(())
}

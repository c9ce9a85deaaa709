//! Residual networks (He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015).

use crate::net::{Layer, Net};
use bricolage_ir::{TypeError, ValueId};

/// Gain of the last normalisation of a block, so that sums over many blocks stay small.
const RESIDUAL_GAIN: f64 = 0.4;

pub(crate) fn resnet18(net: &mut Net) -> Result<(), TypeError> {
    resnet(net, [2, 2, 2, 2], 1, basic)
}

pub(crate) fn resnet50(net: &mut Net) -> Result<(), TypeError> {
    resnet(net, [3, 4, 6, 3], 4, bottleneck)
}

type Block = fn(&mut Net, &str, ValueId, i64, i64) -> Layer;

fn resnet(
    net: &mut Net,
    counts: [usize; 4],
    expansion: i64,
    block: Block,
) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let x = net.conv("conv1", x, 64, [7, 2, 1], false)?;
    let x = net.batch_norm("bn1", x, 1.0)?;
    let x = net.relu("relu", x)?;
    let mut x = net.max_pool("maxpool", x, [3, 2, 1])?;
    for (stage, count) in counts.into_iter().enumerate() {
        let width = 64 << stage;
        for i in 0..count {
            let name = format!("layer{}.{i}", stage + 1);
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            let residual = block(net, &name, x, width, stride)?;
            let mut skip = x;
            if stride != 1 || net.dims(x)[1] != width * expansion {
                let conv = format!("{name}.downsample.0");
                skip = net.conv(&conv, x, width * expansion, [1, stride, 1], false)?;
                skip = net.batch_norm(&format!("{name}.downsample.1"), skip, 0.7)?;
            }
            let sum = net.sum(&name, residual, skip)?;
            x = net.relu(&name, sum)?;
        }
    }
    let x = net.global_average("avgpool", x)?;
    let x = net.flatten("flatten", x)?;
    let x = net.gemm("fc", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Two 3x3 convolutions.
fn basic(net: &mut Net, name: &str, x: ValueId, width: i64, stride: i64) -> Layer {
    let x = net.conv(&format!("{name}.conv1"), x, width, [3, stride, 1], false)?;
    let x = net.batch_norm(&format!("{name}.bn1"), x, 1.0)?;
    let x = net.relu(&format!("{name}/relu"), x)?;
    let x = net.conv(&format!("{name}.conv2"), x, width, [3, 1, 1], false)?;
    net.batch_norm(&format!("{name}.bn2"), x, RESIDUAL_GAIN)
}

/// A 3x3 convolution between two of 1x1, the stride in the middle.
fn bottleneck(net: &mut Net, name: &str, x: ValueId, width: i64, stride: i64) -> Layer {
    let x = net.conv(&format!("{name}.conv1"), x, width, [1, 1, 1], false)?;
    let x = net.batch_norm(&format!("{name}.bn1"), x, 1.0)?;
    let x = net.relu(&format!("{name}/relu1"), x)?;
    let x = net.conv(&format!("{name}.conv2"), x, width, [3, stride, 1], false)?;
    let x = net.batch_norm(&format!("{name}.bn2"), x, 1.0)?;
    let x = net.relu(&format!("{name}/relu2"), x)?;
    let x = net.conv(&format!("{name}.conv3"), x, 4 * width, [1, 1, 1], false)?;
    net.batch_norm(&format!("{name}.bn3"), x, RESIDUAL_GAIN)
}

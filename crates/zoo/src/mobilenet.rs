//! MobileNet (Howard et al., *MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
//! Applications*, 2017) and MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov and Chen, *MobileNetV2:
//! Inverted Residuals and Linear Bottlenecks*, 2018).

use crate::net::{Layer, Net};
use bricolage_ir::{TypeError, ValueId};

/// Channels and stride.
const SEPARABLE: [[i64; 2]; 13] = [
    [64, 1],
    [128, 2],
    [128, 1],
    [256, 2],
    [256, 1],
    [512, 2],
    [512, 1],
    [512, 1],
    [512, 1],
    [512, 1],
    [512, 1],
    [1024, 2],
    [1024, 1],
];

pub(crate) fn mobilenet_v1(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let mut x = conv(net, "features.0", x, 32, [3, 2, 1])?;
    for (index, [channels, stride]) in (1..).zip(SEPARABLE) {
        let name = format!("features.{index}");
        let inputs = net.dims(x)[1];
        x = conv(net, &format!("{name}.depthwise"), x, inputs, [3, stride, inputs])?;
        x = conv(net, &format!("{name}.pointwise"), x, channels, [1, 1, 1])?;
    }
    x = net.global_average("pool", x)?;
    x = net.flatten("flatten", x)?;
    x = net.gemm("classifier", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Expansion, channels, number of blocks, stride of the first.
const BLOCKS: [[i64; 4]; 7] = [
    [1, 16, 1, 1],
    [6, 24, 2, 2],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
];

pub(crate) fn mobilenet_v2(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let mut x = conv(net, "features.0", x, 32, [3, 2, 1])?;
    let mut index = 1;
    for [expansion, channels, count, first] in BLOCKS {
        for i in 0..count {
            let name = format!("features.{index}.conv");
            x = block(net, &name, x, [expansion, channels, if i == 0 { first } else { 1 }])?;
            index += 1;
        }
    }
    x = conv(net, &format!("features.{index}"), x, 1280, [1, 1, 1])?;
    x = net.global_average("pool", x)?;
    x = net.flatten("flatten", x)?;
    x = net.gemm("classifier.1", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Convolution, normalisation, rectifier up to 6.
fn conv(net: &mut Net, name: &str, x: ValueId, channels: i64, window: [i64; 3]) -> Layer {
    let x = net.conv(&format!("{name}.0"), x, channels, window, false)?;
    let x = net.batch_norm(&format!("{name}.1"), x, 1.0)?;
    net.relu6(&format!("{name}.2"), x)
}

fn block(net: &mut Net, name: &str, x: ValueId, [expansion, channels, stride]: [i64; 3]) -> Layer {
    let inputs = net.dims(x)[1];
    let hidden = inputs * expansion;
    let (mut y, mut index) = (x, 0);
    if expansion != 1 {
        y = conv(net, &format!("{name}.0"), y, hidden, [1, 1, 1])?;
        index = 1;
    }
    y = conv(net, &format!("{name}.{index}"), y, hidden, [3, stride, hidden])?;
    y = net.conv(&format!("{name}.{}", index + 1), y, channels, [1, 1, 1], false)?;
    y = net.batch_norm(&format!("{name}.{}", index + 2), y, 0.7)?;
    if stride == 1 && inputs == channels { net.sum(name, x, y) } else { Ok(y) }
}

//! EfficientNet-B0 (Tan and Le, *EfficientNet: Rethinking Model Scaling for Convolutional Neural
//! Networks*, 2019).

use crate::net::{Layer, Net};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, Unary},
};

/// Expansion, kernel, stride of the first block, channels, number of blocks.
const STAGES: [[i64; 5]; 7] = [
    [1, 3, 1, 16, 1],
    [6, 3, 2, 24, 2],
    [6, 5, 2, 40, 2],
    [6, 3, 2, 80, 3],
    [6, 5, 1, 112, 3],
    [6, 5, 2, 192, 4],
    [6, 3, 1, 320, 1],
];

pub(crate) fn efficientnet_b0(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let mut x = conv(net, "features.0", x, 32, [3, 2, 1])?;
    for (stage, [expansion, kernel, first, channels, count]) in (1..).zip(STAGES) {
        for i in 0..count {
            let name = format!("features.{stage}.{i}.block");
            let stride = if i == 0 { first } else { 1 };
            x = block(net, &name, x, [expansion, kernel, stride, channels])?;
        }
    }
    x = conv(net, "features.8", x, 1280, [1, 1, 1])?;
    x = net.global_average("avgpool", x)?;
    x = net.flatten("flatten", x)?;
    x = net.gemm("classifier.1", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Convolution, normalisation, sigmoid gate.
fn conv(net: &mut Net, name: &str, x: ValueId, channels: i64, window: [i64; 3]) -> Layer {
    let x = net.conv(&format!("{name}.0"), x, channels, window, false)?;
    let x = net.batch_norm(&format!("{name}.1"), x, 1.2)?;
    net.silu(&format!("{name}.2"), x)
}

fn block(net: &mut Net, name: &str, x: ValueId, shape: [i64; 4]) -> Layer {
    let [expansion, kernel, stride, channels] = shape;
    let inputs = net.dims(x)[1];
    let hidden = inputs * expansion;
    let (mut y, mut index) = (x, 0);
    if expansion != 1 {
        y = conv(net, &format!("{name}.0"), y, hidden, [1, 1, 1])?;
        index = 1;
    }
    y = conv(net, &format!("{name}.{index}"), y, hidden, [kernel, stride, hidden])?;
    y = squeeze(net, &format!("{name}.{}", index + 1), y, inputs / 4)?;
    let project = format!("{name}.{}", index + 2);
    y = net.conv(&format!("{project}.0"), y, channels, [1, 1, 1], false)?;
    y = net.batch_norm(&format!("{project}.1"), y, 0.8)?;
    if stride == 1 && inputs == channels { net.sum(name, y, x) } else { Ok(y) }
}

/// Scales every channel by a gate computed from the means of all.
fn squeeze(net: &mut Net, name: &str, x: ValueId, width: i64) -> Layer {
    let channels = net.dims(x)[1];
    let means = net.global_average(&format!("{name}.avgpool"), x)?;
    let narrow = net.conv(&format!("{name}.fc1"), means, width, [1, 1, 1], true)?;
    let narrow = net.silu(&format!("{name}.activation"), narrow)?;
    let wide = net.conv(&format!("{name}.fc2"), narrow, channels, [1, 1, 1], true)?;
    let gate = net.add(&format!("{name}/Sigmoid"), Unary::Sigmoid, &[wide])?;
    net.add(&format!("{name}/Mul"), Binary::Mul, &[gate, x])
}

//! DenseNet (Huang, Liu, van der Maaten and Weinberger, *Densely Connected Convolutional Networks*,
//! 2016).

use crate::net::{Layer, Net};
use bricolage_ir::{TypeError, ValueId};

/// Channels that each layer adds.
const GROWTH: i64 = 48;

pub(crate) fn densenet161(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let x = net.conv("features.conv0", x, 2 * GROWTH, [7, 2, 1], false)?;
    let x = normalised(net, "features.norm0", x)?;
    let mut x = net.max_pool("features.pool0", x, [3, 2, 1])?;
    for (block, count) in (1..).zip([6, 12, 36, 24]) {
        if block > 1 {
            let name = format!("features.transition{}", block - 1);
            let half = net.dims(x)[1] / 2;
            let y = normalised(net, &format!("{name}.norm"), x)?;
            let y = net.conv(&format!("{name}.conv"), y, half, [1, 1, 1], false)?;
            x = net.average_pool(&format!("{name}.pool"), y, [2, 2, 0])?;
        }
        let mut parts = vec![x];
        for i in 1..=count {
            let name = format!("features.denseblock{block}.denselayer{i}");
            let all = net.concat(&name, &parts, 1)?;
            let y = normalised(net, &format!("{name}.norm1"), all)?;
            let y = net.conv(&format!("{name}.conv1"), y, 4 * GROWTH, [1, 1, 1], false)?;
            let y = normalised(net, &format!("{name}.norm2"), y)?;
            parts.push(net.conv(&format!("{name}.conv2"), y, GROWTH, [3, 1, 1], false)?);
        }
        x = net.concat(&format!("features.denseblock{block}"), &parts, 1)?;
    }
    let x = normalised(net, "features.norm5", x)?;
    let x = net.global_average("avgpool", x)?;
    let x = net.flatten("flatten", x)?;
    let x = net.gemm("classifier", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Normalisation and rectifier.
fn normalised(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let x = net.batch_norm(name, x, 1.0)?;
    net.relu(name, x)
}

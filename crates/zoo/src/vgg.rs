//! VGG (Simonyan and Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
//! Recognition*, 2014).

use crate::net::Net;
use bricolage_ir::TypeError;

/// Channels per convolution; 0 is a pooling.
const LAYERS: [i64; 18] =
    [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0];

pub(crate) fn vgg16(net: &mut Net) -> Result<(), TypeError> {
    let mut x = net.image(3, 224);
    let mut index = 0;
    for channels in LAYERS {
        let name = format!("features.{index}");
        if channels == 0 {
            x = net.max_pool(&name, x, [2, 2, 0])?;
            index += 1;
        } else {
            x = net.conv(&name, x, channels, [3, 1, 1], true)?;
            x = net.relu(&format!("features.{}", index + 1), x)?;
            index += 2;
        }
    }
    x = net.flatten("flatten", x)?;
    for (name, relu) in [("classifier.0", "classifier.1"), ("classifier.3", "classifier.4")] {
        x = net.gemm(name, x, 4096, 2.0)?;
        x = net.relu(relu, x)?;
    }
    x = net.gemm("classifier.6", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

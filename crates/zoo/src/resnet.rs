//! Residual networks (He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, 2015),
//! ResNeXt (Xie, Girshick, Dollár, Tu and He, *Aggregated Residual Transformations for Deep Neural
//! Networks*, 2016) and residual networks over clips (Hara, Kataoka and Satoh, *Can Spatiotemporal 3D
//! CNNs Retrace the History of 2D CNNs and ImageNet?*, 2017).

use crate::net::{Layer, Net};
use bricolage_ir::{TypeError, ValueId};
use bricolage_tensor::DType;

/// Gain of the last normalisation of a block, so that sums over many blocks stay small.
const RESIDUAL_GAIN: f64 = 0.4;

/// What a network is made of.
#[derive(Clone, Copy)]
struct Kind {
    /// Blocks per stage.
    counts: [usize; 4],
    block: fn(Kind, &mut Net, &str, ValueId, i64, i64) -> Layer,
    /// Channels of a block's results over the width of its stage.
    expansion: i64,
    /// Channels inside a block over the width of its stage.
    inner: i64,
    groups: i64,
    /// Convolutions are followed by normalisation.
    normalised: bool,
}

const RESNET18: Kind = Kind {
    counts: [2, 2, 2, 2],
    block: basic,
    expansion: 1,
    inner: 1,
    groups: 1,
    normalised: true,
};
const RESNET50: Kind = Kind { counts: [3, 4, 6, 3], block: bottleneck, expansion: 4, ..RESNET18 };
const RESNEXT50: Kind = Kind { inner: 2, groups: 32, ..RESNET50 };

pub(crate) fn resnet18(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    classifier(RESNET18, net, x, 1000)
}

pub(crate) fn resnet50(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    classifier(RESNET50, net, x, 1000)
}

pub(crate) fn resnext50(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    classifier(RESNEXT50, net, x, 1000)
}

/// A clip is `[batch, channels, frames, height, width]`.
pub(crate) fn resnet3d50(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input", DType::F32, &[3, 16, 112, 112]);
    classifier(RESNET50, net, x, 400)
}

/// The stages alone and without normalisation, as in the Collage paper.
pub(crate) fn collage_resnext50(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input", DType::F32, &[64, 56, 56]);
    let x = stages(Kind { normalised: false, ..RESNEXT50 }, net, x)?;
    net.output(x, "output");
    Ok(())
}

/// The stages alone and without normalisation, as in the Collage paper.
pub(crate) fn collage_resnet3d50(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input", DType::F32, &[64, 3, 56, 56]);
    let x = stages(Kind { normalised: false, ..RESNET50 }, net, x)?;
    net.output(x, "output");
    Ok(())
}

fn classifier(kind: Kind, net: &mut Net, x: ValueId, classes: i64) -> Result<(), TypeError> {
    let (weight, mut op) = net.window(x, 64, [7, 2, 1]);
    if let [frames, _, _] = &mut op.strides[..] {
        *frames = 1;
    }
    let x = net.conv_with("conv1", x, &weight, op, 2.0, false)?;
    let x = net.batch_norm("bn1", x, 1.0)?;
    let x = net.relu("relu", x)?;
    let x = net.max_pool("maxpool", x, [3, 2, 1])?;
    let x = stages(kind, net, x)?;
    let x = net.global_average("avgpool", x)?;
    let x = net.flatten("flatten", x)?;
    let x = net.gemm("fc", x, classes, 1.0)?;
    net.output(x, "output");
    Ok(())
}

fn stages(kind: Kind, net: &mut Net, mut x: ValueId) -> Layer {
    for (stage, count) in kind.counts.into_iter().enumerate() {
        let width = 64 << stage;
        for i in 0..count {
            let name = format!("layer{}.{i}", stage + 1);
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            let residual = (kind.block)(kind, net, &name, x, width, stride)?;
            let mut skip = x;
            let channels = width * kind.expansion;
            if stride != 1 || net.dims(x)[1] != channels {
                let names = [format!("{name}.downsample.0"), format!("{name}.downsample.1")];
                skip = kind.conv(net, names, x, channels, [1, stride, 1], 0.7)?;
            }
            let sum = net.sum(&name, residual, skip)?;
            x = net.relu(&name, sum)?;
        }
    }
    Ok(x)
}

impl Kind {
    /// A convolution and its normalisation, or with the same gain none.
    fn conv(
        self,
        net: &mut Net,
        [conv, norm]: [String; 2],
        x: ValueId,
        channels: i64,
        window: [i64; 3],
        gain: f64,
    ) -> Layer {
        if self.normalised {
            let x = net.conv(&conv, x, channels, window, false)?;
            return net.batch_norm(&norm, x, gain);
        }
        let (weight, op) = net.window(x, channels, window);
        net.conv_with(&conv, x, &weight, op, 2.0 * gain * gain, false)
    }
}

fn names(block: &str, i: usize) -> [String; 2] {
    [format!("{block}.conv{i}"), format!("{block}.bn{i}")]
}

/// Two 3x3 convolutions.
fn basic(kind: Kind, net: &mut Net, name: &str, x: ValueId, width: i64, stride: i64) -> Layer {
    let x = kind.conv(net, names(name, 1), x, width, [3, stride, 1], 1.0)?;
    let x = net.relu(&format!("{name}/relu"), x)?;
    kind.conv(net, names(name, 2), x, width, [3, 1, 1], RESIDUAL_GAIN)
}

/// A 3x3 convolution between two of 1x1, the stride in the middle.
fn bottleneck(kind: Kind, net: &mut Net, name: &str, x: ValueId, width: i64, stride: i64) -> Layer {
    let inner = width * kind.inner;
    let x = kind.conv(net, names(name, 1), x, inner, [1, 1, 1], 1.0)?;
    let x = net.relu(&format!("{name}/relu1"), x)?;
    let x = kind.conv(net, names(name, 2), x, inner, [3, stride, kind.groups], 1.0)?;
    let x = net.relu(&format!("{name}/relu2"), x)?;
    kind.conv(net, names(name, 3), x, kind.expansion * width, [1, 1, 1], RESIDUAL_GAIN)
}

//! DCGAN (Radford, Metz and Chintala, *Unsupervised Representation Learning with Deep Convolutional
//! Generative Adversarial Networks*, 2015).

use crate::net::{Layer, Net};
use bricolage_ir::{
    Real, TypeError, ValueId,
    ops::{Coordinates, Interpolation, Resize, Rounding, Unary},
};
use bricolage_tensor::{DType, Shape};

/// Numbers that an image is made from.
const LATENT: i64 = 100;

/// The generator, of images `[batch, 3, 64, 64]`.
pub(crate) fn dcgan(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input", DType::F32, &[LATENT]);
    let mut x = net.reshape("main", x, &[net.batch, LATENT, 1, 1])?;
    for (i, channels) in [512, 256, 128, 64].into_iter().enumerate() {
        let window = if i == 0 { [4, 1, 0] } else { [4, 2, 1] };
        let name = |j: usize| format!("main.{}", 3 * i + j);
        x = net.conv_transpose(&name(0), x, channels, window, 2.0, false)?;
        x = net.batch_norm(&name(1), x, 1.0)?;
        x = net.relu(&name(2), x)?;
    }
    let x = net.conv_transpose("main.12", x, 3, [4, 2, 1], 1.0, false)?;
    let x = net.add("main.13/Tanh", Unary::Tanh, &[x])?;
    net.output(x, "output");
    Ok(())
}

/// A generator of images of side 256 by upsampling, and the discriminator that judges them, as in
/// the Collage paper: rectifiers and no normalisation.
pub(crate) fn collage_dcgan(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input", DType::F32, &[LATENT]);
    let x = net.matmul("generator.l1.0", x, 128 * 64 * 64)?;
    let mut x = net.reshape("generator", x, &[net.batch, 128, 64, 64])?;
    for (i, channels) in [(0, 128), (3, 64)] {
        let name = |j: usize| format!("generator.conv_blocks.{}", i + j);
        x = doubled(net, &name(0), x)?;
        x = net.conv(&name(1), x, channels, [3, 1, 1], true)?;
        x = net.relu(&name(2), x)?;
    }
    x = net.conv("generator.conv_blocks.6", x, 3, [3, 1, 1], true)?;
    x = net.add("generator.conv_blocks.7/Tanh", Unary::Tanh, &[x])?;
    for (i, channels) in [16, 32, 64, 128].into_iter().enumerate() {
        x = net.conv(&format!("discriminator.model.{}", 2 * i), x, channels, [3, 2, 1], true)?;
        x = net.relu(&format!("discriminator.model.{}", 2 * i + 1), x)?;
    }
    let x = net.flatten("discriminator", x)?;
    let x = net.matmul("discriminator.adv_layer.0", x, 1)?;
    let x = net.add("discriminator.adv_layer.1/Sigmoid", Unary::Sigmoid, &[x])?;
    net.output(x, "output");
    Ok(())
}

/// Each element four times.
fn doubled(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let dims = net.dims(x);
    let op = Resize {
        sizes: Shape::fixed(&[dims[0], dims[1], 2 * dims[2], 2 * dims[3]]),
        scales: Some([1.0, 1.0, 2.0, 2.0].map(Real::new).to_vec()),
        mode: Interpolation::Nearest(Rounding::Floor),
        coordinates: Coordinates::Asymmetric,
        exclude_outside: false,
        antialias: false,
        roi: Vec::new(),
        extrapolation: Real::new(0.0),
    };
    net.add(&format!("{name}/Resize"), op, &[x])
}

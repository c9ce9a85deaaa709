//! Model architectures built in Rust with seeded weights, written as ONNX.
//!
//! Shapes, names and ops are those that exporters write for the well-known originals; weights are
//! random, scaled so that results are finite and vary.

mod efficientnet;
mod mobilenet;
mod net;
mod resnet;
mod transformer;
mod unet;
mod vgg;

use bricolage_ir::{Graph, TypeError};
use net::Net;

/// A model that can be built.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// Number of trained parameters; running statistics are none.
    pub parameters: u64,
    build: fn(&mut Net) -> Result<(), TypeError>,
}

/// Why a model could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZooError {
    /// There is no such model.
    #[error("no model is called `{name}`; there are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// An impossible batch.
    #[error("needs a batch of at least 1, found {found}")]
    Batch {
        /// The batch asked for.
        found: i64,
    },
    /// An op refused its operands.
    #[error(transparent)]
    Type(#[from] TypeError),
}

static ENTRIES: &[Entry] = &[
    Entry {
        name: "resnet18",
        description: "image classifier with residual blocks, 224x224",
        parameters: 11_689_512,
        build: resnet::resnet18,
    },
    Entry {
        name: "resnet50",
        description: "image classifier with residual bottlenecks, 224x224",
        parameters: 25_557_032,
        build: resnet::resnet50,
    },
    Entry {
        name: "mobilenet-v2",
        description: "image classifier with depthwise convolutions, 224x224",
        parameters: 3_504_872,
        build: mobilenet::mobilenet_v2,
    },
    Entry {
        name: "vgg16",
        description: "image classifier with plain 3x3 convolutions, 224x224",
        parameters: 138_357_544,
        build: vgg::vgg16,
    },
    Entry {
        name: "efficientnet-b0",
        description: "image classifier with squeeze and excitation, 224x224",
        parameters: 5_288_548,
        build: efficientnet::efficientnet_b0,
    },
    Entry {
        name: "unet",
        description: "image segmentation with skip connections, 256x256",
        parameters: 31_037_633,
        build: unet::unet,
    },
    Entry {
        name: "bert-base",
        description: "text encoder of 12 layers, 128 tokens",
        parameters: 109_482_240,
        build: transformer::bert_base,
    },
    Entry {
        name: "gpt2-12l",
        description: "text decoder of 12 layers, 128 tokens",
        parameters: 124_439_808,
        build: transformer::gpt2,
    },
];

/// Every model, in a fixed order.
pub fn list() -> &'static [Entry] {
    ENTRIES
}

/// The model for this batch, with weights that follow from the seed.
pub fn build(name: &str, batch: i64, seed: u64) -> Result<Graph, ZooError> {
    let Some(entry) = ENTRIES.iter().find(|e| e.name == name) else {
        let known: Vec<&str> = ENTRIES.iter().map(|e| e.name).collect();
        return Err(ZooError::Unknown { name: name.to_owned(), known: known.join(", ") });
    };
    if batch < 1 {
        return Err(ZooError::Batch { found: batch });
    }
    let mut net = Net::new(entry.name, batch, seed);
    (entry.build)(&mut net)?;
    Ok(net.graph)
}

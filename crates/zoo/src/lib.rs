//! Model architectures built in Rust with seeded weights, written as ONNX.
//!
//! Shapes, names and ops are those that exporters write for the well-known originals; weights are
//! random, scaled so that results are finite and vary.

mod attention;
mod dcgan;
mod densenet;
mod efficientnet;
mod llama;
mod mobilenet;
mod nasnet;
mod net;
mod recurrent;
mod resnet;
mod swin;
mod transformer;
mod unet;
mod vgg;
mod vit;
mod whisper;

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
    Entry {
        name: "mobilenet-v1",
        description: "image classifier with separable convolutions, 224x224",
        parameters: 4_231_976,
        build: mobilenet::mobilenet_v1,
    },
    Entry {
        name: "densenet161",
        description: "image classifier with dense blocks, 224x224",
        parameters: 28_681_000,
        build: densenet::densenet161,
    },
    Entry {
        name: "resnext50",
        description: "image classifier with grouped residual bottlenecks, 224x224",
        parameters: 25_028_904,
        build: resnet::resnext50,
    },
    Entry {
        name: "nasnet-a-large",
        description: "image classifier of searched cells, 331x331",
        parameters: 88_753_150,
        build: nasnet::nasnet_a_large,
    },
    Entry {
        name: "resnet3d50",
        description: "clip classifier with residual bottlenecks, 16 frames of 112x112",
        parameters: 47_018_576,
        build: resnet::resnet3d50,
    },
    Entry {
        name: "dcgan",
        description: "image generator with transposed convolutions, 64x64",
        parameters: 3_576_704,
        build: dcgan::dcgan,
    },
    Entry {
        name: "vit-b16",
        description: "image classifier over patches by attention, 224x224",
        parameters: 86_567_656,
        build: vit::vit_b16,
    },
    Entry {
        name: "swin-t",
        description: "image classifier with attention in shifted windows, 224x224",
        parameters: 28_288_354,
        build: swin::swin_t,
    },
    Entry {
        name: "unetpp",
        description: "image segmentation with nested skip connections, 256x256",
        parameters: 9_042_177,
        build: unet::unetpp,
    },
    Entry {
        name: "llama-block",
        description: "block of a text decoder with grouped queries, 128 tokens",
        parameters: 11_274_240,
        build: llama::llama_block,
    },
    Entry {
        name: "lstm-tagger",
        description: "text tagger with bidirectional LSTM layers, 64 tokens",
        parameters: 3_670_573,
        build: recurrent::lstm_tagger,
    },
    Entry {
        name: "whisper-encoder",
        description: "speech encoder of 4 layers, 30 seconds",
        parameters: 7_632_384,
        build: whisper::whisper_encoder,
    },
    Entry {
        name: "collage-bert",
        description: "text encoder of the Collage paper, 64 tokens",
        parameters: 6_318_080,
        build: transformer::collage_bert,
    },
    Entry {
        name: "collage-dcgan",
        description: "generator and discriminator of the Collage paper, 256x256",
        parameters: 52_782_115,
        build: dcgan::collage_dcgan,
    },
    Entry {
        name: "collage-nasnet-a",
        description: "searched cells of the Collage paper, 56x56",
        parameters: 7_387_584,
        build: nasnet::collage_nasnet_a,
    },
    Entry {
        name: "collage-resnet3d50",
        description: "residual stages of the Collage paper, 3 frames of 56x56",
        parameters: 46_080_000,
        build: resnet::collage_resnet3d50,
    },
    Entry {
        name: "collage-resnext50",
        description: "grouped residual stages of the Collage paper, 56x56",
        parameters: 22_902_272,
        build: resnet::collage_resnext50,
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

//! What a worker is asked and answers, and how it is framed.

use bricolage_backends::{Description, Planned, PluginError};
use bricolage_tensor::{DType, Datum, Storage, Strings, Tensor};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read, Write},
    path::PathBuf,
};

/// A tensor in a frame.
#[derive(Serialize, Deserialize)]
pub(super) struct Wire {
    dtype: DType,
    dims: Vec<i64>,
    bytes: Vec<u8>,
}

impl From<&Tensor> for Wire {
    fn from(t: &Tensor) -> Wire {
        Wire { dtype: t.dtype(), dims: t.dims().to_vec(), bytes: t.bytes().to_vec() }
    }
}

impl Wire {
    pub(super) fn tensor(self) -> Result<Tensor, String> {
        Tensor::new(self.dtype, &self.dims, Storage::copy_of(&self.bytes))
            .map_err(|e| e.to_string())
    }
}

/// A value of any kind in a frame.
#[derive(Serialize, Deserialize)]
pub(super) enum Content {
    Tensor(Wire),
    Strings { dims: Vec<i64>, elements: Vec<String> },
    Sequence(Vec<Content>),
    Optional(Option<Box<Content>>),
}

impl Content {
    pub(super) fn of(datum: &Datum) -> Result<Content, String> {
        Ok(match datum {
            Datum::Tensor(t) => Content::Tensor(t.into()),
            Datum::Strings(s) => {
                Content::Strings { dims: s.dims().to_vec(), elements: s.elements().to_vec() }
            }
            Datum::Sequence(all) => {
                Content::Sequence(all.iter().map(Content::of).collect::<Result<_, _>>()?)
            }
            Datum::Optional(None) => Content::Optional(None),
            Datum::Optional(Some(inner)) => Content::Optional(Some(Box::new(Content::of(inner)?))),
            other => return Err(format!("no worker takes {other:?}")),
        })
    }

    pub(super) fn datum(self) -> Result<Datum, String> {
        Ok(match self {
            Content::Tensor(wire) => Datum::Tensor(wire.tensor()?),
            Content::Strings { dims, elements } => {
                Datum::Strings(Strings::new(&dims, elements).map_err(|e| e.to_string())?)
            }
            Content::Sequence(all) => {
                Datum::Sequence(all.into_iter().map(Content::datum).collect::<Result<_, _>>()?)
            }
            Content::Optional(None) => Datum::Optional(None),
            Content::Optional(Some(inner)) => Datum::Optional(Some(Box::new(inner.datum()?))),
        })
    }
}

/// What is asked; what is open has a number.
#[derive(Serialize, Deserialize)]
pub(super) enum Request {
    OpenTrial {
        id: u64,
        plan: Vec<u8>,
        weights: PathBuf,
        fills: Vec<(u64, Vec<u8>)>,
        results: Vec<u32>,
    },
    OpenArtefact {
        id: u64,
        folder: PathBuf,
        inputs: Vec<Wire>,
    },
    OpenPeer {
        id: u64,
        backend: String,
        model: PathBuf,
        inputs: Vec<(String, Wire)>,
        outputs: Vec<String>,
    },
    Compute {
        /// As [`bricolage_ir::print`] writes it.
        graph: String,
        constants: Vec<Wire>,
        backends: Vec<String>,
        inputs: Vec<Content>,
    },
    Describe {
        library: PathBuf,
    },
    PlanRegion {
        library: PathBuf,
        subgraph: Vec<u8>,
    },
    Stopped {
        id: u64,
    },
    Results {
        id: u64,
    },
    Sample {
        id: u64,
        iterations: u32,
    },
    Steps {
        id: u64,
    },
    Close {
        id: u64,
    },
}

/// What is answered.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Opened { load_ns: u64, first_run_ns: u64, peak_bytes: u64, unmeasured: Option<String> },
    Described(Result<Description, PluginError>),
    PlannedRegion(Result<Planned, String>),
    Tensors(Vec<Wire>),
    Named(Vec<(String, Wire)>),
    Computed { outputs: Vec<Content>, backends: Vec<String> },
    Time { ns: u64 },
    Steps { ns: Vec<u64> },
    Done,
    Closed,
    Failed(String),
}

pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(&bytes)?;
    to.flush()
}

pub(super) fn receive<T: serde::de::DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let mut bytes = Vec::new();
    let len = u64::from_le_bytes(len);
    if from.take(len).read_to_end(&mut bytes)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

//! What a library of contractions offers, and how an offer is found again when its kernel is made.

use bricolage_backend::{Candidate, Declined, Packed, Proposals};
use bricolage_ir::NodeId;
use bricolage_tensor::{Format, Tensor};

/// A candidate with what its kernel is made from.
pub(crate) struct Proposal<S> {
    pub(crate) candidate: Candidate,
    pub(crate) spec: S,
    pub(crate) constants: Vec<Tensor>,
}

/// The answer for an exit: all candidates, or that `pattern` was refused.
pub(crate) fn answer<S>(
    found: Result<Vec<Proposal<S>>, String>,
    exit: NodeId,
    pattern: &str,
) -> Proposals {
    match found {
        Ok(all) => Proposals {
            candidates: all.into_iter().map(|p| p.candidate).collect(),
            declined: Vec::new(),
        },
        Err(why) => Proposals {
            candidates: Vec::new(),
            declined: vec![Declined { node: exit, pattern: pattern.to_owned(), why }],
        },
    }
}

/// What the kernel of a candidate is made from, and its constants as they lie in the model.
pub(crate) fn parts<S>(
    all: Vec<Proposal<S>>,
    candidate: &Candidate,
) -> Result<(S, Vec<Packed>), String> {
    let found = all.into_iter().find(|p| p.candidate == *candidate);
    let Proposal { spec, constants, .. } = found.ok_or("no longer proposes this candidate")?;
    Ok((spec, constants.into_iter().map(plain).collect()))
}

/// A constant as it lies in the model.
pub(crate) fn plain(tensor: Tensor) -> Packed {
    Packed {
        format: Format::plain(tensor.dtype()),
        dims: tensor.dims().to_vec(),
        bytes: tensor.storage().clone(),
    }
}

//! One module per backend.

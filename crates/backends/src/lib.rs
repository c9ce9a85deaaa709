//! One module per backend.
#![allow(unsafe_code)] // operands are raw memory; foreign libraries are called through pointers

mod reference;

pub use reference::Reference;

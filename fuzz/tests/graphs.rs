//! The tests of the target `graphs`: here cargo names its program, which is the worker that foreign code runs in.

#[path = "../fuzz_targets/graphs.rs"]
#[allow(dead_code)] // what only the program uses
mod graphs;

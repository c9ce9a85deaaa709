//! Results on standard output.

use std::{
    fmt::Arguments,
    io::{ErrorKind, Write, stdout},
    process::exit,
};

/// Writes one line to standard output; the arguments are those of `format!`.
macro_rules! say {
    ($($argument:tt)*) => { $crate::output::line(format_args!($($argument)*)) };
}
pub(crate) use say;

/// Writes a line. Ends the program when nobody reads on, quietly, or when it cannot be written.
pub(crate) fn line(text: Arguments<'_>) {
    if let Err(error) = writeln!(stdout().lock(), "{text}") {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("error[output]: cannot write to standard output: {error}");
        exit(1);
    }
}

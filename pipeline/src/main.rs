//! The command `axmem`. Errors are printed here, once, and become exit codes.

use std::process::ExitCode;

use axmem::{cli, exit, ranks};

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // Of several processes that did not get as far as to be ranks, the first one tells. Nobody is left to be
            // told if the standard error is closed.
            if ranks::after_the_first() == 0 {
                let _ = writeln!(std::io::stderr(), "error: {}", exit::sentence(&error));
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

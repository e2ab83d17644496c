//! The command `axmem`. Errors are printed here, once, and become exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    match axmem::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // Nobody is left to be told if the standard error is closed.
            let _ = writeln!(
                std::io::stderr(),
                "error: {}",
                axmem::exit::sentence(&error)
            );
            ExitCode::from(axmem::exit::code(&error))
        }
    }
}

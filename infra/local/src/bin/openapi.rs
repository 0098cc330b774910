//! `make openapi`: prints the OpenAPI document, generated from the code of all functions.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match purser_local::openapi() {
        Ok(document) => {
            print!("{document}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("openapi: {error}");
            ExitCode::FAILURE
        }
    }
}

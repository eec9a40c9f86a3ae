//! The worker process of the conformance suite, for the stores that this crate connects to by URL.

use std::process::ExitCode;

use heirlock::{Locks, conformance};

fn main() -> ExitCode {
    conformance::worker::main(|url| pollster::block_on(Locks::connect(url)))
}

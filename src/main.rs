//! The program: see [`oncegate::cli`].

use std::process::ExitCode;

/// The system's allocator keeps what many short requests on many threads have freed; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    oncegate::cli::main()
}

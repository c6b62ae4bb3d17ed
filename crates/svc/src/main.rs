//! svc: publish a private service, or dial one.
//!
//! Only this file reads the environment, installs signal handlers, sets up logging and chooses a
//! runtime. Each command is a file under `commands`. Shared code of commands is beside this file.
//! Data goes to stdout, messages to stderr.
#![cfg_attr(
    not(feature = "server"),
    expect(dead_code, reason = "server code is not moved out of shared modules")
)]

mod args;
mod cli;
mod client_key;
mod commands;
mod config_errors;
mod connection;
mod context;
mod dispatch;
mod engine_client;
mod failure;
mod id_prefix;
mod keyring;
mod names;
mod output;
mod platform;
mod process;
mod prompt;
mod proxy;
mod terminals;
mod token_refusal;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::{cli::Cli, failure::Failure};

fn main() -> ExitCode {
    if let Some(code) = commands::completions::answer(Cli::command) {
        return code;
    }
    let (cli, format) = match cli::read() {
        Ok(read) => read,
        Err(code) => return code,
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format),
    }
}

/// Runs the command on its own runtime, which only coordinates. Commands that carry streams start
/// further runtimes, one thread per core.
fn run(cli: Cli) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error("the runtime cannot be started", error))?;
    let result = runtime.block_on(dispatch::dispatch(cli));
    // A read of stdin may still be blocked in a thread; the program does not wait for it.
    runtime.shutdown_background();
    result
}

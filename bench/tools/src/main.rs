//! Load generators of the bench, and its packet relay.
//!
//! They cover loads that `wrk`, `h2load` and `curl` cannot generate: WebSocket messages, thousands
//! of SSE watchers, and a network with distance and loss for kernels without support for it. Each
//! writes its results as one line of JSON; `bench/*.py` starts them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it tells the bench what it saw"
)]

mod quantiles;
#[cfg(target_os = "linux")]
mod relay;
mod spectate;
mod sse;
mod target;
mod websocket;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-tools: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // One thread generates the load, so that the measured programs have the cores.
    let load_maker = || Builder::new_current_thread().enable_all().build();
    match words.as_slice() {
        ["ws-echo", address] => Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(websocket::serve(address)),
        ["ws", url, ca_file, sockets, seconds, bytes] => {
            let target = target::Target::new(url, ca_file)?;
            let load = websocket::load(target, number(sockets)?, number(seconds)?, number(bytes)?);
            load_maker()?.block_on(load)
        }
        ["sse", url, ca_file, header, watchers, seconds] => {
            let target = target::Target::new(url, ca_file)?;
            load_maker()?.block_on(sse::watch(
                target,
                header,
                number(watchers)?,
                number(seconds)?,
            ))
        }
        ["spectate", ca_file, token] => load_maker()?.block_on(spectate::watch(ca_file, token)),
        #[cfg(target_os = "linux")]
        ["relay", one, other] => relay::run(one, other),
        _ => bail!("{USAGE}"),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N> {
    text.parse()
        .ok()
        .with_context(|| format!("`{text}` is not a number"))
}

const USAGE: &str = "\
ws-echo ADDRESS                              a service that echoes WebSocket messages
ws URL CA_FILE SOCKETS SECONDS BYTES         messages there and back, one under way on each socket
sse URL CA_FILE HEADER WATCHERS SECONDS      server-sent events that carry `stamp=<Unix ns>;`
spectate CA_FILE TOKEN                       watchers of a terminal session; stdin: URL SESSION PARTICIPANT GRANT
relay DEVICE DEVICE                          packets between two TUN devices; stdin: MS PER_MILLE";

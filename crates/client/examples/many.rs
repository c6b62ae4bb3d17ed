//! Many tunnels in one process, for `bench/managed.py`: agents that hold tunnels to one service, and
//! say when each of them is online.
//!
//! ```sh
//! SVC_TOKEN=… many engine.example.com:443 ca.pem 127.0.0.1:8080 100 10    # agents, tunnels of each
//! ```
//!
//! A line for each tunnel that comes online, at the start and after each loss: its number, its host
//! name, and the time in Unix seconds.
#![expect(clippy::print_stdout, reason = "it tells the bench what happens")]

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use svc_client::{Agent, Config, Properties, Target, Token, Trust, tunnel::Status};
use transport::Workers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [engine, ca_file, target, agents, tunnels] = arguments.as_slice() else {
        return Err("many ENGINE CA_FILE TARGET AGENTS TUNNELS".into());
    };
    let mut config = Config::new(engine.parse()?, Token::new(&std::env::var("SVC_TOKEN")?));
    config.trust = Trust::CaFile(ca_file.into());
    let workers = Workers::per_core("many")?;
    config.runtimes = workers.handles().to_vec();
    let target: Target = target.parse()?;
    let (agents, tunnels): (usize, usize) = (agents.parse()?, tunnels.parse()?);
    let mut all = Vec::new();
    for agent in 0..agents {
        let handle = Agent::start(config.clone())?;
        for tunnel in 0..tunnels {
            let mut opened = handle.open(Properties::http());
            tokio::spawn(tell(agent * tunnels + tunnel, opened.status()));
            let target = target.clone();
            tokio::spawn(async move { opened.forward(target).await });
        }
        // A few at once, as people start them.
        handle.online().await?;
        all.push(handle);
    }
    std::future::pending::<()>().await;
    drop(all);
    Ok(())
}

/// Says when the tunnel is online, each time.
async fn tell(number: usize, mut status: tokio::sync::watch::Receiver<Status>) {
    loop {
        let online = match &*status.borrow_and_update() {
            Status::Online(online) => online.properties.hostname.clone(),
            _ => None,
        };
        if let Some(hostname) = online {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since.unwrap_or_default().as_secs_f64();
            println!("{number} {hostname} {seconds:.6}");
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

//! Events at a steady rate, for `bench/fanout.py`: private tunnels that come and go.
//!
//! ```sh
//! SVC_TOKEN=… churn engine.example.com:443 ca.pem 20 6    # events a second, seconds
//! ```
//!
//! Every other event is a tunnel that comes, with the label `bench` of `stamp=<Unix ns>;`; the ones
//! between are tunnels that close, two seconds after they opened, so that a watcher can distinguish
//! a stamp that is the event's own from an old one.
#![expect(clippy::print_stdout, reason = "it tells the bench what happens")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use svc_client::{Agent, Config, Properties, Token, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [engine, ca_file, rate, seconds] = arguments.as_slice() else {
        return Err("churn ENGINE CA_FILE RATE SECONDS".into());
    };
    let mut config = Config::new(engine.parse()?, Token::new(&std::env::var("SVC_TOKEN")?));
    config.trust = Trust::CaFile(ca_file.into());
    let (rate, seconds): (u32, u32) = (rate.parse()?, seconds.parse()?);
    let agent = Agent::connect(config).await?;
    // Tunnels that can go from the start.
    let mut open = VecDeque::new();
    for number in 0..rate {
        let mut tunnel = agent.open(stamped(format!("early-{number}"), 1));
        tunnel.online().await?;
        open.push_back(tunnel);
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    for number in 0..rate * seconds {
        ticks.tick().await;
        if number % 2 == 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
            open.push_back(agent.open(stamped(format!("churn-{number}"), now)));
        } else if let Some(tunnel) = open.pop_front() {
            // It is closed when it is dropped.
            drop(tunnel);
        }
    }
    println!("done");
    // Until it is killed: the end of an agent is also an event.
    std::future::pending::<()>().await;
    drop(open);
    Ok(())
}

fn stamped(name: String, stamp: u128) -> Properties {
    let mut properties = Properties::private(name);
    let stamp = format!("stamp={stamp};");
    properties.labels.insert("bench".to_owned(), stamp);
    properties
}

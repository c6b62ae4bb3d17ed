//! Publishes a service of this machine, as `svc forward` does.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run --example forward 3000
//! ```
//!
//! An engine with a private authority needs `SVC_CA_FILE`.
#![expect(clippy::print_stdout, reason = "it prints where the service is")]

use std::{env, error::Error};

use svc_client::{Agent, Config, ForwardOptions, Properties, Target, Token, Trust};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let target: Target = env::args().nth(1).ok_or("forward TARGET")?.parse()?;
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token);
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config = config.with_trust(Trust::CaFile(file.into()));
    }
    let agent = Agent::connect(config).await?;
    let mut tunnel = agent.open(Properties::http().named("web"));
    println!("{}", tunnel.online().await?.forwarding);
    let forwarding =
        ForwardOptions::to(target).with_observer(|connection| println!("{connection:?}"));
    let closed = tunnel.forward(forwarding).await;
    Err(format!("the tunnel is over: {closed:?}").into())
}

//! Prints what happens at an engine: the agents and tunnels that there are, then each that comes or
//! goes.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run --example watch
//! ```
//!
//! An engine with a private authority needs `SVC_CA_FILE`.
#![expect(clippy::print_stdout, reason = "it prints the events")]

use std::{env, error::Error};

use svc_client::{
    Config, Token, Trust,
    api::{Api, EventQuery},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token);
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config = config.with_trust(Trust::CaFile(file.into()));
    }
    let mut events = Api::new(&config)?.events(EventQuery::new()).await?;
    while let Some(event) = events.next().await? {
        println!("{}", event.text);
    }
    let reason = events.reason().unwrap_or("no reason is given");
    Err(format!("the engine ended the stream: {reason}").into())
}

//! Publishes an axum service without a listening socket: axum answers the streams of a tunnel.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run --features axum --example publish
//! ```
//!
//! An engine with a private authority needs `SVC_CA_FILE`. Ctrl-C leaves the engine, and waits for
//! the requests in progress.
#![expect(clippy::print_stdout, reason = "it prints where the service is")]

use std::{env, error::Error, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, OriginalUri},
    routing::get,
};
use svc_client::{Agent, Config, Details, Properties, Token, Trust, Visitor};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token)
        .with_details(Details::of_program("publish", "1.0"))
        .with_connect_timeout(Duration::from_secs(20));
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config = config.with_trust(Trust::CaFile(file.into()));
    }
    let agent = Agent::connect(config).await?;
    let mut tunnel = agent.open(Properties::http().named("hello"));
    println!("{}", tunnel.online().await?.forwarding);

    let router = Router::new().fallback(get(hello));
    let listener = tunnel.into_listener();
    let over = listener.closed();
    let leave = async {
        tokio::select! {
            why = over => println!("the tunnel is over: {why:?}"),
            _asked = tokio::signal::ctrl_c() => {}
        }
    };
    let service = router.into_make_service_with_connect_info::<Visitor>();
    axum::serve(listener, service)
        .with_graceful_shutdown(leave)
        .await?;
    agent.close(Duration::from_secs(10)).await;
    Ok(())
}

async fn hello(
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    OriginalUri(uri): OriginalUri,
) -> String {
    let from = visitor
        .source_ip
        .map_or_else(|| "nowhere".to_owned(), |ip| ip.to_string());
    format!("hello from {} to {from}\n", uri.path())
}

//! A web service without a listening socket: axum answers the streams of a tunnel themselves.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run -p svc-client --example accept
//! ```
//!
//! An engine with a private authority needs `SVC_CA_FILE`. Ctrl-C leaves the engine, and waits for
//! the requests under way.
#![expect(clippy::print_stdout, reason = "it tells where the service is")]

use std::{env, error::Error, time::Duration};

use axum::{Router, extract::OriginalUri, routing::get};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use svc_client::{Agent, Config, Properties, Stream, Token, Trust};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token);
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config.trust = Trust::CaFile(file.into());
    }
    let agent = Agent::connect(config).await?;
    let mut tunnel = agent.open(Properties::http().named("hello"));
    println!("{}", tunnel.online().await?.forwarding);
    let router = Router::new().fallback(get(|OriginalUri(uri): OriginalUri| async move {
        format!("hello from {}\n", uri.path())
    }));
    loop {
        tokio::select! {
            stream = tunnel.accept() => match stream {
                Some(stream) => drop(tokio::spawn(serve(stream, router.clone()))),
                None => return Err("the tunnel is over".into()),
            },
            _asked = tokio::signal::ctrl_c() => break,
        }
    }
    agent.close(Duration::from_secs(10)).await;
    Ok(())
}

/// Serves one connection of the edge, which carries one request after another.
async fn serve(stream: Stream, router: Router) {
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Whatever ended it, the edge has told its visitor.
    serving.with_upgrades().await.ok();
}

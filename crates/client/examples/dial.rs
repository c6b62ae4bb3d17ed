//! Asks an HTTP service behind a private tunnel for a path, with hyper's client over the connector.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run --features tower --example dial http://billing/
//! ```
//!
//! For a stream of bytes, `svc_client::dial` is enough. An engine with a private authority needs
//! `SVC_CA_FILE`.
#![expect(clippy::print_stdout, reason = "it prints the answer")]

use std::{env, error::Error};

use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use svc_client::{Config, Token, Trust, TunnelConnector, api::Bytes};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).ok_or("dial http://TUNNEL/PATH")?;
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token);
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config = config.with_trust(Trust::CaFile(file.into()));
    }
    let connector = TunnelConnector::new(config);
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let answer = client.get(uri.parse()?).await?;
    println!("{}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&body));
    Ok(())
}

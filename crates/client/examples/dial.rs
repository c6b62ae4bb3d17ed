//! Says something to a private tunnel, and prints what comes back.
//!
//! ```sh
//! SVC_ENGINE=engine.example.com:443 SVC_TOKEN=… cargo run -p svc-client --example dial db 'hello'
//! ```
//!
//! An engine with a private authority needs `SVC_CA_FILE`.

use std::{env, error::Error};

use svc_client::{Config, Token, Trust, dial};
use tokio::io::{AsyncWriteExt, copy, stdout};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(name), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("dial NAME TEXT".into());
    };
    let token = Token::new(&env::var("SVC_TOKEN")?);
    let mut config = Config::new(env::var("SVC_ENGINE")?.parse()?, token);
    if let Some(file) = env::var_os("SVC_CA_FILE") {
        config.trust = Trust::CaFile(file.into());
    }
    let mut stream = dial(&config, &name).await?;
    stream.write_all(text.as_bytes()).await?;
    // The other side sees the end, and may still answer.
    stream.shutdown().await?;
    copy(&mut stream, &mut stdout()).await?;
    Ok(())
}

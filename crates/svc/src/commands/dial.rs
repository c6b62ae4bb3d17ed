//! `svc dial`: a private tunnel on stdin and stdout, or on a local port.

use std::{sync::Arc, time::Duration};

use clap::Parser;
use client::{Config, ConnectError};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;
use tracing::warn;
use transport::pump;

use crate::{
    cli::Format,
    connection::Connection,
    descriptors,
    failure::{Failure, chain},
    output, signals,
};

/// The flags of `svc dial`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The tunnel, by its name or id
    #[arg(value_name = "svc://NAME", value_parser = name)]
    tunnel: String,

    /// Serve it on this local address (or port) instead, a stream for each connection
    #[arg(long, value_name = "HOST:PORT", value_parser = local)]
    listen: Option<String>,

    /// How the address of --listen is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Dials, and joins what it gets.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let config = args.connection.resolve()?;
    match args.listen {
        None => standard_streams(&config, &args.tunnel).await,
        Some(address) => {
            let listener = TcpListener::bind(&address).await.map_err(|error| {
                Failure::of(&format!("cannot listen on {address}"), error)
                    .hint("port 0 takes a free one")
            })?;
            let local = listener
                .local_addr()
                .map_err(|error| Failure::of("the address is not known", error))?;
            match args.output {
                Format::Json => output::json(&json!({ "listening": local.to_string() }))?,
                Format::Text => output::line(&format!("svc://{} on {local}", args.tunnel))?,
            }
            serve(listener, config, args.tunnel).await
        }
    }
}

/// Ends when the other side has ended and its bytes are written, as `ssh` needs of a proxy.
async fn standard_streams(config: &Config, tunnel: &str) -> Result<(), Failure> {
    let stream = client::dial(config, tunnel).await?;
    let (mut from_tunnel, mut to_tunnel) = tokio::io::split(stream);
    let up = async {
        let mut input = tokio::io::stdin();
        tokio::io::copy(&mut input, &mut to_tunnel).await?;
        to_tunnel.shutdown().await
    };
    let down = async {
        let mut output = tokio::io::stdout();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_tunnel.read(&mut buffer).await?;
            if read == 0 {
                return output.flush().await;
            }
            output
                .write_all(buffer.get(..read).unwrap_or_default())
                .await?;
            // Whoever talks over this waits for each piece.
            output.flush().await?;
        }
    };
    tokio::pin!(up, down);
    let ended = tokio::select! {
        ended = &mut down => ended,
        // Also when it failed: the other side does not listen any more, and what it says still
        // counts.
        _sent = &mut up => down.await,
    };
    ended.map_err(|error| Failure::of("the stream broke", error))
}

/// Serves until the first signal; then what runs may finish.
async fn serve(listener: TcpListener, config: Config, tunnel: String) -> Result<(), Failure> {
    descriptors::raise_limit();
    let shutdown = signals::listen(signals::DRAIN)?;
    let config = Arc::new(config);
    let streams = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.drain().cancelled() => break,
        };
        match accepted {
            Ok((local, _peer)) => {
                let (config, tunnel) = (Arc::clone(&config), tunnel.clone());
                let hard = shutdown.hard().clone();
                streams.spawn(async move {
                    let joined = hard
                        .run_until_cancelled(join(local, &config, &tunnel))
                        .await;
                    if let Some(Err(error)) = joined {
                        output::message(&format!("svc://{tunnel}: {}", chain(&error)));
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, mostly: a pause lets streams end.
                warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    streams.close();
    tokio::select! {
        () = streams.wait() => Ok(()),
        () = shutdown.hard().cancelled() => Ok(()),
    }
}

async fn join(mut local: TcpStream, config: &Config, tunnel: &str) -> Result<(), ConnectError> {
    // Best effort: without it small messages are late, not wrong.
    drop(local.set_nodelay(true));
    let mut stream = client::dial(config, tunnel).await?;
    // Either side may break off whenever it likes; both know it then.
    drop(pump(&mut local, &mut stream).await);
    Ok(())
}

/// `svc://name`, or the name alone.
fn name(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("svc://").unwrap_or(text);
    let name = name.strip_suffix('/').unwrap_or(name);
    if name.is_empty() || name.contains(['/', ':']) {
        return Err(format!("`{text}` is no svc://NAME"));
    }
    Ok(name.to_owned())
}

/// `host:port`, or a port of this machine.
fn local(text: &str) -> Result<String, String> {
    if text.parse::<u16>().is_ok() {
        return Ok(format!("127.0.0.1:{text}"));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err(format!("`{text}` is no host:port")),
    }
}

/// Long enough that a process without descriptors does not spin.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_may_be_a_port_alone() {
        assert_eq!(local("15432").unwrap(), "127.0.0.1:15432");
        assert_eq!(local("[::1]:0").unwrap(), "[::1]:0");
        for text in ["", "localhost", ":1", "a:b", "99999"] {
            assert!(local(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tunnel_is_named_with_or_without_the_scheme() {
        for text in ["svc://db", "db", "svc://db/"] {
            assert_eq!(name(text).unwrap(), "db");
        }
        for text in ["", "svc://", "https://db", "svc://db/x", "db:80"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}

//! `svc dial`: private tunnels on stdin and stdout, or on local addresses.

mod local;
mod serve;

use clap::Parser;
use client::{
    Config,
    api::{Api, ApiError, ListQuery},
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::local::LocalAddress;
use crate::args::suggest;
use crate::client_key::ClientKey;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::id_prefix::{self, Candidate};
use crate::output::Format;
use crate::process::lifecycle::LifecycleFlags;
use crate::token_refusal;

/// The flags of `svc dial`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc dial db --listen 5432
  svc dial db=5432 cache=127.0.0.1:6379 web=unix:/run/web.sock
  ssh -o ProxyCommand='svc dial ssh' me@host")]
pub(crate) struct Args {
    /// The tunnel, by name or id (`svc://NAME` works as well). Add `=LISTEN` to serve it on a local
    /// address: a port, HOST:PORT or unix:PATH (repeatable)
    #[arg(value_name = "NAME[=LISTEN]", required = true, value_parser = dialled)]
    tunnels: Vec<DialTarget>,

    /// Serve the tunnel on this local address, with one stream per connection
    #[arg(long, value_name = "LISTEN")]
    listen: Option<LocalAddress>,

    /// Output format of the message that all addresses are ready
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    key: ClientKey,

    #[command(flatten)]
    lifecycle: LifecycleFlags,

    #[command(flatten)]
    connection: Connection,
}

/// A tunnel, and the local address that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DialTarget {
    tunnel: String,
    local: Option<LocalAddress>,
}

/// Dials the tunnels and connects them to the local side.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let places = dial_mode(args.tunnels, args.listen)?;
    if matches!(places, DialMode::Standard(_)) && args.lifecycle.has_health() {
        return Err(Failure::usage(
            "--health-listen (SVC_HEALTH_LISTEN) needs a local address: stdin and stdout serve one \
             stream",
        )
        .hint("write NAME=PORT, or leave it out"));
    }
    let config = args.connection.resolve_with(args.key.tokens()?)?;
    let places = complete_ids(&config, places).await?;
    match places {
        DialMode::Standard(tunnel) => standard_streams(&config, &tunnel).await,
        DialMode::Local(served) => serve::serve(served, config, args.output, &args.lifecycle).await,
    }
}

/// The local side of the streams.
#[derive(Debug, PartialEq, Eq)]
enum DialMode {
    /// One tunnel on stdin and stdout.
    Standard(String),
    /// Each tunnel on its own local address.
    Local(Vec<(String, LocalAddress)>),
}

fn dial_mode(tunnels: Vec<DialTarget>, listen: Option<LocalAddress>) -> Result<DialMode, Failure> {
    match (tunnels.as_slice(), listen) {
        (
            [
                DialTarget {
                    tunnel,
                    local: None,
                },
            ],
            None,
        ) => Ok(DialMode::Standard(tunnel.clone())),
        (
            [
                DialTarget {
                    tunnel,
                    local: None,
                },
            ],
            Some(local),
        ) => Ok(DialMode::Local(vec![(tunnel.clone(), local)])),
        (_, Some(_)) => Err(
            Failure::usage("--listen needs exactly one tunnel without an address")
                .hint("write NAME=LISTEN for each of several"),
        ),
        (_, None) => {
            let place = |DialTarget { tunnel, local }| match local {
                Some(local) => Ok((tunnel, local)),
                None => Err(Failure::usage(format!(
                    "`{tunnel}` has no local address: stdin and stdout can serve only one tunnel"
                ))
                .hint(format!("write {tunnel}=PORT"))),
            };
            let places: Result<_, _> = tunnels.into_iter().map(place).collect();
            places.map(DialMode::Local)
        }
    }
}

/// Completes ids of tunnels. A name is left unchanged.
async fn complete_ids(config: &Config, places: DialMode) -> Result<DialMode, Failure> {
    match places {
        DialMode::Standard(tunnel) => {
            let tunnel = complete_id(config, tunnel).await?;
            Ok(DialMode::Standard(tunnel))
        }
        DialMode::Local(mut served) => {
            for (tunnel, _) in &mut served {
                *tunnel = complete_id(config, std::mem::take(tunnel)).await?;
            }
            Ok(DialMode::Local(served))
        }
    }
}

async fn complete_id(config: &Config, tunnel: String) -> Result<String, Failure> {
    if !tunnel.starts_with("tun_") || !id_prefix::is_prefix(&tunnel) {
        return Ok(tunnel);
    }
    let tunnels = match list_private(config).await {
        Ok(tunnels) => tunnels,
        // A token may be limited to dialling. Its names can have the form of ids.
        Err(ApiError::Refused(_)) => return Ok(tunnel),
        Err(error) => return Err(error.into()),
    };
    let mut names = tunnels.iter().filter_map(|listed| text(listed, "name"));
    if names.any(|name| name == tunnel) {
        return Ok(tunnel);
    }
    let candidate = |listed: &Value| {
        let name = text(listed, "name").unwrap_or_default();
        Some(Candidate::new(text(listed, "id")?, name))
    };
    let candidates = tunnels.iter().filter_map(candidate).collect();
    let found = id_prefix::select("tunnel", &tunnel, candidates)?;
    Ok(found.map_or(tunnel, |found| found.id))
}

/// A text of an object of the Engine API.
fn text<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object.get(key)?.as_str()
}

/// Returns when the peer has closed its direction and all its bytes are written. `ssh` requires
/// this of a proxy command.
async fn standard_streams(config: &Config, tunnel: &str) -> Result<(), Failure> {
    let stream = match client::dial(config, tunnel).await {
        Ok(stream) => stream,
        Err(error) => return Err(refused(config, tunnel, error).await),
    };
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
            // Interactive programs wait for each piece.
            output.flush().await?;
        }
    };
    tokio::pin!(up, down);
    let ended = tokio::select! {
        ended = &mut down => ended,
        // This applies also after an error: the peer no longer reads, but its response still
        // counts.
        _sent = &mut up => down.await,
    };
    ended.map_err(|error| Failure::from_error("the stream broke", error))
}

/// Reports a refusal. For an unknown name, it suggests the most similar existing one.
async fn refused(config: &Config, tunnel: &str, error: client::ConnectError) -> Failure {
    let is_unknown = error
        .refusal()
        .is_some_and(|refusal| refusal.kind == client::RefusalKind::NotFound);
    let failure = Failure::from(error);
    if !is_unknown {
        return token_refusal::explain(failure, config).await;
    }
    let names = list_names(config).await.unwrap_or_default();
    match suggest::nearest(tunnel, names.iter().map(String::as_str)) {
        Some(known) => failure.hint(format!(
            "did you mean `{known}`? `svc tunnels` shows them all"
        )),
        None => failure,
    }
}

/// The names of private tunnels that the token may list.
async fn list_names(config: &Config) -> Result<Vec<String>, ApiError> {
    let list = list_private(config).await?;
    let names = list.iter().filter_map(|tunnel| text(tunnel, "name"));
    Ok(names.map(str::to_owned).collect())
}

/// The private tunnels that the token may list.
async fn list_private(config: &Config) -> Result<Vec<Value>, ApiError> {
    let filters = [("publish".to_owned(), false.into())].into_iter().collect();
    let query = ListQuery::new().with_filters(filters);
    Api::new(config)?.tunnels(&query).await
}

/// Parses `name` or `svc://name`, with an optional `=LISTEN`.
fn dialled(text: &str) -> Result<DialTarget, String> {
    let (tunnel, local) = match text.split_once('=') {
        Some((tunnel, local)) => (tunnel, Some(local.parse()?)),
        None => (text, None),
    };
    Ok(DialTarget {
        tunnel: name(tunnel)?,
        local,
    })
}

/// Parses `svc://name`, or the name alone.
fn name(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("svc://").unwrap_or(text);
    let name = name.strip_suffix('/').unwrap_or(name);
    if name.is_empty() || name.contains(['/', ':']) {
        return Err(format!("`{text}` is not svc://NAME"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_named_with_or_without_the_scheme() {
        for text in ["svc://db", "db", "svc://db/"] {
            assert_eq!(name(text).unwrap(), "db");
        }
        for text in ["", "svc://", "https://db", "svc://db/x", "db:80"] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    fn places_of(texts: &[&str], listen: Option<&str>) -> Result<String, Failure> {
        let tunnels = texts.iter().map(|text| dialled(text).unwrap()).collect();
        let listen = listen.map(|text| text.parse().unwrap());
        dial_mode(tunnels, listen).map(|places| match places {
            DialMode::Standard(tunnel) => format!("{tunnel} here"),
            DialMode::Local(all) => {
                let all = all
                    .iter()
                    .map(|(tunnel, local)| format!("{tunnel} {local}"));
                all.collect::<Vec<_>>().join(", ")
            }
        })
    }

    #[test]
    fn each_tunnel_has_one_local_address() {
        assert_eq!(places_of(&["db"], None).unwrap(), "db here");
        assert_eq!(
            places_of(&["db"], Some("5432")).unwrap(),
            "db 127.0.0.1:5432"
        );
        assert_eq!(
            places_of(&["svc://db=5432", "b=unix:/x"], None).unwrap(),
            "db 127.0.0.1:5432, b unix:/x"
        );
        for (texts, listen, hint) in [
            (&["a", "b"][..], None, "a=PORT"),
            (&["a=1", "b"], None, "b=PORT"),
            (&["a", "b"], Some("1"), "NAME=LISTEN"),
            (&["a=1"], Some("1"), "NAME=LISTEN"),
        ] {
            let failure = places_of(texts, listen).unwrap_err();
            assert!(failure.to_string().contains(hint), "{failure}");
        }
        assert!(dialled("db=").is_err());
        assert!(dialled("=1").is_err());
    }
}

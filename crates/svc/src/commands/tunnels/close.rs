//! `svc tunnels close`: closes tunnels at the engine.

use api::engine::TUNNEL;
use clap::Parser;
use client::Config;
use client::api::{Api, ApiError, Call, ListQuery, path};
use http::Method;
use serde_json::Value;
use types::id::TunnelId;

use crate::args::filters;
use crate::connection::Connection;
use crate::failure::{Code, Failure};
use crate::output::{Format, plain};
use crate::{output, prompt, token_refusal};

/// The flags of `svc tunnels close`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc tunnels close web
  svc tunnels close tun_01h455vb4pex5vsknk084sn02q --yes")]
pub(super) struct CloseArgs {
    /// Name of the tunnels, or id of one
    #[arg(value_name = "TUNNEL")]
    tunnel: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Closes every tunnel with the name, or the one with the id.
pub(super) async fn close(args: CloseArgs) -> Result<(), Failure> {
    let config = args.connection.resolve()?;
    let api = Api::new(&config)?;
    let ids = find(&api, &config, &args.tunnel).await?;
    if !args.yes {
        confirm(&args.tunnel, ids.len())?;
    }
    let mut closed = Vec::with_capacity(ids.len());
    let mut missing = None;
    for id in &ids {
        let path = path(TUNNEL, &[("id", id)]);
        match api.call(Call::new(Method::DELETE, &path)).await {
            Ok(_nothing) => closed.push(id),
            // This one has ended meanwhile; there may be others.
            Err(ApiError::Refused(problem)) if problem.status == 404 => missing = Some(problem),
            Err(error) => return Err(token_refusal::explain(error.into(), &config).await),
        }
    }
    if let Some(problem) = missing.filter(|_| closed.is_empty()) {
        let error = ApiError::Refused(problem);
        return Err(token_refusal::explain(error.into(), &config).await);
    }
    match args.output {
        Format::Json => output::json(&closed),
        Format::Text => {
            for id in closed {
                output::message(&format!("{} is closed", plain(id)));
            }
            Ok(())
        }
    }
}

/// The ids of the tunnels that an argument names.
async fn find(api: &Api, config: &Config, tunnel: &str) -> Result<Vec<String>, Failure> {
    if tunnel.parse::<TunnelId>().is_ok() {
        return Ok(vec![tunnel.to_owned()]);
    }
    let name = ("name".to_owned(), Some(tunnel.to_owned()));
    let query = ListQuery::new().with_filters(filters::collect(&[name]));
    let found = match api.tunnels(&query).await {
        Ok(found) => found,
        Err(error) => return Err(token_refusal::explain(error.into(), config).await),
    };
    let ids = found
        .iter()
        .filter_map(|tunnel| tunnel.get("id").and_then(Value::as_str));
    let ids: Vec<_> = ids.map(str::to_owned).collect();
    if ids.is_empty() {
        let message = format!("no tunnel with the name {} is online", plain(tunnel));
        return Err(Failure::new(Code::Failed, message)
            .named("tunnel_not_found")
            .hint("`svc tunnels` shows the names that are online"));
    }
    Ok(ids)
}

fn confirm(tunnel: &str, count: usize) -> Result<(), Failure> {
    let several = if count > 1 {
        format!(" ({count} agents)")
    } else {
        String::new()
    };
    let effect = format!("{}{several} and its open connections", plain(tunnel));
    if !prompt::is_possible() {
        return Err(Failure::usage(format!("{effect} would be closed"))
            .hint("add --yes to confirm without a prompt"));
    }
    if prompt::confirm(&format!("Close {effect}?"))? {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, "nothing was closed"))
    }
}

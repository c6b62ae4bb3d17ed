//! Requests for control and their answers, kick and terminate.

use api::webtty::{CONTROL_REQUEST, CONTROL_REQUESTS, PARTICIPANT, SESSION};
use clap::Parser;
use client::api::Call;
use http::Method;
use serde_json::Value;
use types::webtty::ControlAction;

use super::{OutputArgs, SessionArgs, set_params, write_one};
use crate::args::time;
use crate::failure::{Code, Failure};
use crate::{output, prompt};

/// The flags of `svc webtty sessions request-control`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions request-control wts_… --participant-id wtp_… --reason \"to see the logs\"
  svc webtty sessions request-control wts_… --participant-id wtp_… --lines 1")]
pub(crate) struct RequestArgs {
    /// The requesting participant, which must be connected (with `join` or a web page)
    #[arg(long, value_name = "ID")]
    participant_id: String,

    /// Reason, shown to the approver
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Number of lines: 1 is one command. Default without --for: until control is revoked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    lines: Option<u32>,

    /// Duration of control
    #[arg(long = "for", value_name = "DURATION", value_parser = time::duration)]
    for_time: Option<std::time::Duration>,

    /// Time to wait for an answer. Default: 2m
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    wait: Option<std::time::Duration>,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// The flags of `svc webtty sessions resolve-control`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions resolve-control wts_… wtr_… --action grant
  svc webtty sessions resolve-control wts_… wtr_… --action revoke --reason \"thank you\"")]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    on: SessionArgs,

    /// Id of the request
    #[arg(value_name = "REQUEST")]
    request: String,

    /// Action: grant, refuse, or revoke granted control
    #[arg(long, value_parser = action)]
    action: ControlAction,

    /// The approving participant, which has control. Default: an owner
    #[arg(long, value_name = "ID")]
    approver_participant_id: Option<String>,

    /// Reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    written: OutputArgs,
}

/// The flags of `svc webtty sessions kick`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions kick wts_… wtp_… --reason \"this one is private\"")]
pub(crate) struct KickArgs {
    #[command(flatten)]
    on: SessionArgs,

    /// Id of the participant
    #[arg(value_name = "PARTICIPANT")]
    participant: String,

    /// Reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The flags of `svc webtty sessions terminate`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions terminate wts_… --yes")]
pub(crate) struct TerminateArgs {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    on: SessionArgs,
}

/// Requests control.
pub(super) async fn request(mut args: RequestArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let participant = args.on.participant(&api, &args.participant_id).await?;
    let expires_at = args.wait.map(|wait| {
        let at = jiff::Timestamp::now().saturating_add(wait);
        format!("{:.3}", at.unwrap_or(jiff::Timestamp::MAX))
    });
    let body = set_params([
        ("participant_id", Some(participant.into())),
        ("reason", args.reason.map(Value::String)),
        ("control_lines", args.lines.map(Value::from)),
        (
            "control_seconds",
            args.for_time.map(|time| time.as_secs().max(1).into()),
        ),
        ("expires_at", expires_at.map(Value::String)),
    ]);
    let path = args.on.path(CONTROL_REQUESTS);
    let body = Value::Object(body);
    let made = api.call(Call::new(Method::POST, &path).with_body(&body));
    write_one(args.written.output, &made.await?, FIELDS)
}

/// Answers a request.
pub(super) async fn resolve(mut args: ResolveArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let request = args.on.control_request(&api, &args.request).await?;
    let approver = match &args.approver_participant_id {
        Some(id) => Some(args.on.participant(&api, id).await?),
        None => None,
    };
    let body = set_params([
        ("action", Some(args.action.as_str().into())),
        ("approver_participant_id", approver.map(Value::String)),
        ("reason", args.reason.map(Value::String)),
    ]);
    let path = args.on.path_of(CONTROL_REQUEST, "request_id", &request);
    let body = Value::Object(body);
    let answered = api.call(Call::new(Method::POST, &path).with_body(&body));
    write_one(args.written.output, &answered.await?, FIELDS)
}

/// Removes a participant.
pub(super) async fn kick(mut args: KickArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let participant = args.on.participant(&api, &args.participant).await?;
    let path = args.on.path_of(PARTICIPANT, "participant_id", &participant);
    let body = set_params([("reason", args.reason.map(Value::String))]);
    let body = Value::Object(body);
    api.call(Call::new(Method::POST, &path).with_body(&body))
        .await?;
    output::message(&format!("{participant} has left"));
    Ok(())
}

/// Ends a session.
pub(super) async fn terminate(mut args: TerminateArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let session = &args.on.session;
    if !args.yes {
        if !prompt::is_possible() {
            return Err(Failure::usage(format!(
                "{session} would end, with the command that runs in it"
            ))
            .hint("add --yes to confirm without a prompt"));
        }
        if !prompt::confirm(&format!("End {session}, with the command that runs in it?"))? {
            return Err(Failure::new(Code::Failed, "nothing was ended"));
        }
    }
    let path = args.on.path(SESSION);
    api.call(Call::new(Method::DELETE, &path)).await?;
    output::message(&format!("{session} is ending"));
    Ok(())
}

fn action(text: &str) -> Result<ControlAction, String> {
    text.parse()
        .map_err(|_unknown| "use grant, refuse or revoke".to_owned())
}

const FIELDS: &[(&str, &str)] = &[
    ("id", "/id"),
    ("status", "/status"),
    ("participant", "/requester_participant_id"),
    ("asked by", "/requester_user_id"),
    ("reason", "/reason"),
    ("seconds", "/control_seconds"),
    ("lines", "/control_lines"),
    ("answered by", "/approver_user_id"),
    ("asked", "/created_at"),
    ("answered", "/resolved_at"),
    ("expires", "/expires_at"),
];

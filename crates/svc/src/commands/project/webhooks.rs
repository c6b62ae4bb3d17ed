//! `svc project webhooks`: endpoints that receive events, and their deliveries.

use api::control::webhooks::{
    CREATE, CreateWebhook, DELETE, GET, GET_DELIVERY, LIST, LIST_DELIVERIES, RETRY_DELIVERY,
    ROTATE, RotateWebhookSecret, UPDATE, UpdateWebhook, Webhook, WebhookConfig, WebhookDelivery,
    WebhookDeliveryList, WebhookDestinationType, WebhookEventType, WebhookList, WebhookStatus,
    WebhookWithSecret,
};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::{ProjectArg, confirm_deletion, more};
use crate::args::time;
use crate::failure::Failure;
use crate::id_prefix::{self, Candidate};
use crate::output;
use crate::output::Format;
use crate::platform::Session;

/// The subcommands of `svc project webhooks`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the webhooks of a project
    List(ListArgs),
    /// Show a webhook
    Get(GetArgs),
    /// Add a webhook; its signing secret is shown once
    Create(CreateArgs),
    /// Change a webhook, enable or disable it
    Update(UpdateArgs),
    /// Replace the signing secret; the old one stays valid for a while
    Rotate(RotateArgs),
    /// Remove a webhook
    Delete(DeleteArgs),
    /// List the deliveries to a webhook, newest first
    Deliveries(DeliveriesArgs),
    /// Show a delivery with its attempts
    Delivery(DeliveryArgs),
    /// Retry a delivery that failed or was canceled
    Retry(DeliveryArgs),
}

/// The flags of `svc project webhooks list`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project webhooks list --status disabled")]
pub(crate) struct ListArgs {
    /// Only webhooks whose name or address contains this text
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    /// Only webhooks with this status
    #[arg(long, value_parser = ["enabled", "disabled"])]
    status: Option<String>,

    #[command(flatten)]
    pages: Pages,

    #[command(flatten)]
    on: ProjectArg,
}

/// Pagination of a list.
#[derive(Debug, Args)]
struct Pages {
    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Items per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,
}

/// The flags of `svc project webhooks get`.
#[derive(Debug, Parser)]
pub(crate) struct GetArgs {
    /// Id of the webhook
    webhook: String,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project webhooks create`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc project webhooks create chat --url https://chat.example.com/in --event tunnel.created")]
pub(crate) struct CreateArgs {
    /// Name of the webhook
    name: String,

    /// Receiver of the events: an https address
    #[arg(long)]
    url: String,

    /// Event type to deliver (repeatable), such as client.created, tunnel.deleted or
    /// domain.suspended. Default: all types
    #[arg(long = "event", value_name = "TYPE", value_parser = event)]
    events: Vec<WebhookEventType>,

    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project webhooks update`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project webhooks update whk_… --status enabled")]
pub(crate) struct UpdateArgs {
    /// Id of the webhook
    webhook: String,

    /// New name
    #[arg(long)]
    name: Option<String>,

    /// New address
    #[arg(long)]
    url: Option<String>,

    /// Event types to deliver from now on (repeatable)
    #[arg(long = "event", value_name = "TYPE", value_parser = event)]
    events: Vec<WebhookEventType>,

    /// New description; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// New status: enabled or disabled. Disabling cancels pending deliveries
    #[arg(long, value_parser = status)]
    status: Option<WebhookStatus>,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project webhooks rotate`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project webhooks rotate whk_… --overlap 1h")]
pub(crate) struct RotateArgs {
    /// Id of the webhook
    webhook: String,

    /// Time that the old secret also signs. Default: one day; at most one week
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    overlap: Option<std::time::Duration>,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project webhooks delete`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project webhooks delete whk_… --yes")]
pub(crate) struct DeleteArgs {
    /// Id of the webhook
    webhook: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project webhooks deliveries`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project webhooks deliveries whk_… --status failed")]
pub(crate) struct DeliveriesArgs {
    /// Id of the webhook
    webhook: String,

    /// Only deliveries with this status
    #[arg(long, value_parser = ["pending", "delivering", "retrying", "succeeded", "failed", "canceled"])]
    status: Option<String>,

    #[command(flatten)]
    pages: Pages,

    #[command(flatten)]
    on: ProjectArg,
}

/// A named delivery.
#[derive(Debug, Parser)]
pub(crate) struct DeliveryArgs {
    /// Id of the webhook
    webhook: String,

    /// Id of the delivery
    delivery: String,

    #[command(flatten)]
    on: ProjectArg,
}

/// Runs a subcommand.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(args).await,
        Command::Get(args) => get(args).await,
        Command::Create(args) => create(args).await,
        Command::Update(args) => update(args).await,
        Command::Rotate(args) => rotate(args).await,
        Command::Delete(args) => delete(args).await,
        Command::Deliveries(args) => deliveries(args).await,
        Command::Delivery(args) => delivery(args).await,
        Command::Retry(args) => retry(args).await,
    }
}

async fn open(on: &ProjectArg) -> Result<(Session, String), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    Ok((session, project.id))
}

/// Opens the platform, and finds the webhook. Returns the ids of the project and of the webhook.
async fn open_webhook(
    on: &ProjectArg,
    webhook: &str,
) -> Result<(Session, String, String), Failure> {
    let (session, project) = open(on).await?;
    let of_page = |list: WebhookList| {
        let webhooks = list.webhooks.into_iter();
        webhooks
            .map(|webhook| Candidate::new(webhook.id, webhook.name))
            .collect()
    };
    let ids = [project.as_str()];
    let candidates = session.candidates(LIST, &ids, of_page);
    let webhook = id_prefix::complete("webhook", webhook, candidates).await?;
    Ok((session, project, webhook))
}

/// The complete id of a delivery to a webhook.
async fn find_delivery(
    session: &Session,
    project: &str,
    webhook: &str,
    delivery: &str,
) -> Result<String, Failure> {
    let of_page = |list: WebhookDeliveryList| {
        let deliveries = list.deliveries.into_iter();
        deliveries
            .map(|delivery| Candidate::new(delivery.id, delivery.event_type))
            .collect()
    };
    let ids = [project, webhook];
    let candidates = session.candidates(LIST_DELIVERIES, &ids, of_page);
    id_prefix::complete("delivery", delivery, candidates).await
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let (session, project) = open(&args.on).await?;
    let call = session.platform.call(LIST, &[&project]);
    let list: WebhookList = call
        .query("q", args.q)
        .query("status", args.status)
        .query("page", args.pages.page)
        .query("pageSize", args.pages.page_size)
        .answer()
        .await?;
    if args.on.output == Format::Json {
        return output::json(&list);
    }
    let row = |webhook: &Webhook| {
        let events = webhook.events.iter().map(|event| event.as_str());
        vec![
            webhook.name.clone(),
            word(&webhook.status),
            events.collect::<Vec<_>>().join(","),
            webhook.config.url.clone(),
            webhook.id.clone(),
        ]
    };
    let rows: Vec<_> = list.webhooks.iter().map(row).collect();
    output::table(&["NAME", "STATUS", "EVENTS", "URL", "ID"], &rows)?;
    more(&list.paging);
    Ok(())
}

async fn get(args: GetArgs) -> Result<(), Failure> {
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let call = session.platform.call(GET, &[&project, &webhook]);
    show(args.on.output, &call.answer().await?)
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let body = CreateWebhook {
        name: args.name,
        description: args.description,
        status: WebhookStatus::default(),
        destination_type: WebhookDestinationType::default(),
        events: if args.events.is_empty() {
            EVENTS.to_vec()
        } else {
            args.events
        },
        config: WebhookConfig { url: args.url },
    };
    let (session, project) = open(&args.on).await?;
    let call = session.platform.call(CREATE, &[&project]);
    show_secret(args.on.output, &call.body(&body)?.answer().await?)
}

async fn update(args: UpdateArgs) -> Result<(), Failure> {
    let body = UpdateWebhook {
        name: args.name,
        description: args
            .description
            .map(|text| Some(text).filter(|text| !text.is_empty())),
        status: args.status,
        events: Some(args.events).filter(|events| !events.is_empty()),
        config: args.url.map(|url| WebhookConfig { url }),
    };
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let call = session.platform.call(UPDATE, &[&project, &webhook]);
    show(args.on.output, &call.body(&body)?.answer().await?)
}

async fn rotate(args: RotateArgs) -> Result<(), Failure> {
    let overlap = args.overlap.map(|overlap| u32::try_from(overlap.as_secs()));
    let body = RotateWebhookSecret {
        overlap_seconds: overlap
            .transpose()
            .map_err(|_| Failure::usage("the overlap is at most a week"))?,
    };
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let call = session.platform.call(ROTATE, &[&project, &webhook]);
    show_secret(args.on.output, &call.body(&body)?.answer().await?)
}

async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    confirm_deletion(&format!("the webhook {webhook}"), args.yes)?;
    let call = session.platform.call(DELETE, &[&project, &webhook]);
    call.execute().await?;
    output::message(&format!("the webhook {webhook} is deleted"));
    Ok(())
}

async fn deliveries(args: DeliveriesArgs) -> Result<(), Failure> {
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let call = session
        .platform
        .call(LIST_DELIVERIES, &[&project, &webhook]);
    let list: WebhookDeliveryList = call
        .query("status", args.status)
        .query("page", args.pages.page)
        .query("pageSize", args.pages.page_size)
        .answer()
        .await?;
    if args.on.output == Format::Json {
        return output::json(&list);
    }
    let row = |delivery: &WebhookDelivery| {
        let http = delivery.last_http_status.map(|status| status.to_string());
        vec![
            delivery.created_at.clone(),
            delivery.event_type.clone(),
            word(&delivery.status),
            delivery.attempt_count.to_string(),
            http.unwrap_or_default(),
            delivery.next_attempt_at.clone().unwrap_or_default(),
            delivery.id.clone(),
        ]
    };
    let heading = [
        "CREATED", "EVENT", "STATUS", "ATTEMPTS", "HTTP", "NEXT", "ID",
    ];
    let rows: Vec<_> = list.deliveries.iter().map(row).collect();
    output::table(&heading, &rows)?;
    more(&list.paging);
    Ok(())
}

async fn delivery(args: DeliveryArgs) -> Result<(), Failure> {
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let delivery = find_delivery(&session, &project, &webhook, &args.delivery).await?;
    let ids = [project.as_str(), &webhook, &delivery];
    let call = session.platform.call(GET_DELIVERY, &ids);
    show_delivery(args.on.output, &call.answer().await?)
}

async fn retry(args: DeliveryArgs) -> Result<(), Failure> {
    let (session, project, webhook) = open_webhook(&args.on, &args.webhook).await?;
    let delivery = find_delivery(&session, &project, &webhook, &args.delivery).await?;
    let ids = [project.as_str(), &webhook, &delivery];
    let call = session.platform.call(RETRY_DELIVERY, &ids);
    show_delivery(args.on.output, &call.answer().await?)
}

fn show(format: Format, webhook: &Webhook) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(webhook),
        Format::Text => output::record(&webhook_fields(webhook)),
    }
}

/// Prints the webhook with its new secret, and notes that the secret is shown only once.
fn show_secret(format: Format, made: &WebhookWithSecret) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(made);
    }
    let mut fields = webhook_fields(&made.webhook);
    fields.push(("signing secret", made.signing_secret.clone()));
    output::record(&fields)?;
    output::message("the signing secret is shown only once");
    Ok(())
}

fn webhook_fields(webhook: &Webhook) -> Vec<(&'static str, String)> {
    let events = webhook.events.iter().map(|event| event.as_str());
    let mut fields = vec![
        ("name", webhook.name.clone()),
        ("id", webhook.id.clone()),
        ("status", word(&webhook.status)),
        ("events", events.collect::<Vec<_>>().join(",")),
        ("url", webhook.config.url.clone()),
    ];
    for (name, value) in [
        ("description", &webhook.description),
        ("failing since", &webhook.failing_since),
        (
            "old secret signs until",
            &webhook.previous_secret_expires_at,
        ),
    ] {
        fields.extend(value.clone().map(|value| (name, value)));
    }
    fields
}

fn show_delivery(format: Format, delivery: &WebhookDelivery) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(delivery);
    }
    let mut fields = vec![
        ("id", delivery.id.clone()),
        ("event", delivery.event_type.clone()),
        ("event id", delivery.event_id.clone()),
        ("status", word(&delivery.status)),
    ];
    if let Some(next) = &delivery.next_attempt_at {
        fields.push(("next attempt", next.clone()));
    }
    for attempt in delivery.attempts.iter().flatten() {
        let status = attempt.http_status.map(|status| status.to_string());
        let outcome = attempt.error_message.clone().unwrap_or_default();
        let line = format!(
            "{} {} {outcome}",
            attempt.started_at,
            status.unwrap_or_else(|| "-".to_owned()),
        );
        fields.push(("attempt", line.trim_end().to_owned()));
    }
    output::record(&fields)
}

/// An enum value as the API writes it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

const EVENTS: [WebhookEventType; 12] = [
    WebhookEventType::ClientCreated,
    WebhookEventType::ClientDeleted,
    WebhookEventType::TunnelCreated,
    WebhookEventType::TunnelDeleted,
    WebhookEventType::DomainCreated,
    WebhookEventType::DomainVerified,
    WebhookEventType::DomainWarned,
    WebhookEventType::DomainSuspended,
    WebhookEventType::DomainReleased,
    WebhookEventType::DomainDeleted,
    WebhookEventType::DomainCertificateUploaded,
    WebhookEventType::DomainCertificateRemoved,
];

fn event(text: &str) -> Result<WebhookEventType, String> {
    let known = EVENTS.into_iter().find(|event| event.as_str() == text);
    known.ok_or_else(|| {
        let words = EVENTS.map(WebhookEventType::as_str).join(", ");
        format!("expected one of {words}")
    })
}

fn status(text: &str) -> Result<WebhookStatus, String> {
    match text {
        "enabled" => Ok(WebhookStatus::Enabled),
        "disabled" => Ok(WebhookStatus::Disabled),
        _ => Err("expected enabled or disabled".to_owned()),
    }
}

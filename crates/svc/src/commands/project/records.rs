//! `svc project plan`, `usage`, `logs` and `events`: the plan of a project and its records.

use api::control::{
    MAX_PAGE_SIZE,
    records::{
        EVENTS, EventList, LOGS, LogList, PLAN, ProjectPlan, StoredEvent, TURN_USAGE, TurnUsage,
        USAGE, Usage,
    },
};
use clap::{Args, Parser};

use super::ProjectArg;
use super::plan_change::{self, ChangeArgs};
use crate::{
    commands::explain::Record,
    failure::Failure,
    id_prefix::{self, Candidate, Candidates},
    names::Names,
    output,
    output::Format,
    platform::{Call, Session},
};

/// The flags of `svc project plan`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc project plan --project staging
  svc project plan --change pro --preview --output json
  svc project plan --change pro --confirm <changeFingerprint>")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    to: ChangeArgs,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project usage`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project usage --timeline 1w")]
pub(crate) struct UsageArgs {
    /// Show the traffic of TURN relays instead of tunnels
    #[arg(long)]
    turn: bool,

    #[command(flatten)]
    range: Range,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project logs`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project logs --timeline 1h --outcome denied")]
pub(crate) struct LogsArgs {
    /// Result of the stream
    #[arg(long, value_parser = ["connected", "failed", "denied"])]
    outcome: Option<String>,

    /// Only streams of this tunnel
    #[arg(long, value_name = "ID")]
    tunnel: Option<String>,

    /// Only streams whose host, path or address contains this text
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    #[command(flatten)]
    list: List,

    #[command(flatten)]
    on: ProjectArg,
}

/// The flags of `svc project events`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project events --type tunnel.created")]
pub(crate) struct EventsArgs {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    #[command(flatten)]
    list: List,

    #[command(flatten)]
    on: ProjectArg,
}

/// A time range.
#[derive(Debug, Args)]
struct Range {
    /// Length of a range that ends now. Default: 24h
    #[arg(long, value_parser = ["30m", "1h", "12h", "24h", "3d", "1w", "30d"],
        conflicts_with_all = ["start", "end"])]
    timeline: Option<String>,

    /// Start of the range (RFC 3339)
    #[arg(long, value_name = "TIME")]
    start: Option<String>,

    /// End of the range, exclusive
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
}

/// Pagination of a list of events.
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    range: Range,

    /// Only events after the event with this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    /// Time order. Default: newest first
    #[arg(long, value_parser = ["asc", "desc"])]
    order: Option<String>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Items per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,
}

impl Range {
    fn narrow(self, call: Call<'_>) -> Call<'_> {
        call.query("timeline", self.timeline)
            .query("start", self.start)
            .query("end", self.end)
    }
}

impl List {
    fn narrow(self, call: Call<'_>) -> Call<'_> {
        self.range
            .narrow(call)
            .query("afterEventId", self.after)
            .query("order", self.order)
            .query("page", self.page)
            .query("pageSize", self.page_size)
    }
}

pub(super) async fn plan(args: PlanArgs) -> Result<(), Failure> {
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    if let Some(to) = args.to.change {
        return plan_change::run(args.to, to, (&session, &project, args.on.output)).await;
    }
    let plan: ProjectPlan = session.platform.call(PLAN, &[&project.id]).answer().await?;
    if args.on.output == Format::Json {
        return output::json(&plan);
    }
    let monthly = plan.monthly.map_or_else(
        || "nothing".to_owned(),
        |price| super::offer::amount(price.amount_minor, price.currency),
    );
    output::record(&[
        ("plan", plan.plan.to_string()),
        ("name", plan.name),
        ("description", plan.description),
        ("monthly", monthly),
        ("logs are kept", format!("{} days", plan.log_retention_days)),
        (
            "webhooks",
            if plan.webhooks { "yes" } else { "no" }.to_owned(),
        ),
        ("TCP addresses", plan.tcp_addresses.to_string()),
        ("custom domains", plan.domains.to_string()),
    ])
}

pub(super) async fn usage(args: UsageArgs) -> Result<(), Failure> {
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let operation = if args.turn { TURN_USAGE } else { USAGE };
    let call = session.platform.call(operation, &[&project.id]);
    let call = args.range.narrow(call);
    if args.turn {
        let usage: TurnUsage = call.answer().await?;
        if args.on.output == Format::Json {
            return output::json(&usage);
        }
        return output::record(&[
            ("from", usage.start),
            ("to", usage.end),
            ("credentials", usage.total.credentials.to_string()),
            ("allocations", usage.total.allocations.to_string()),
            ("relayed bytes", usage.total.relayed_bytes.to_string()),
        ]);
    }
    let usage: Usage = call.answer().await?;
    if args.on.output == Format::Json {
        return output::json(&usage);
    }
    output::record(&[
        ("from", usage.start),
        ("to", usage.end),
        ("streams", usage.total.streams.to_string()),
        ("failed streams", usage.total.failed_streams.to_string()),
        ("upstream bytes", usage.total.upstream_bytes.to_string()),
        ("downstream bytes", usage.total.downstream_bytes.to_string()),
    ])
}

pub(super) async fn logs(args: LogsArgs) -> Result<(), Failure> {
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let tunnel = match &args.tunnel {
        Some(id) => Some(complete_tunnel_id(&session, &project.id, id).await?),
        None => None,
    };
    let call = args
        .list
        .narrow(session.platform.call(LOGS, &[&project.id]));
    let list: LogList = call
        .query("outcome", args.outcome)
        .query("tunnelId", tunnel)
        .query("q", args.q)
        .answer()
        .await?;
    if args.on.output == Format::Json {
        return output::json(&list);
    }
    let records: Vec<_> = list.logs.iter().map(Record::from_event).collect();
    let mut names = Names::default();
    // Streams of TCP tunnels and dialled ones have no host.
    if records.iter().any(|record| record.request.host.is_none()) {
        // A list without names is still useful.
        let tunnels = tunnels(&session, &project.id).await.unwrap_or_default();
        for tunnel in tunnels.all {
            names.insert(&tunnel.id, &tunnel.name);
        }
    }
    let heading = [
        "TIME",
        "OUTCOME",
        "METHOD",
        "HOST",
        "PATH",
        "STATUS",
        "FROM",
        "REFERENCE",
    ];
    let rows = records.into_iter().map(|record| log(record, &names));
    output::table(&heading, &rows.collect::<Vec<_>>())
}

/// The tunnels of a project, newest first, from the stored events of their creation.
async fn tunnels(session: &Session, project_id: &str) -> Result<Candidates, Failure> {
    let mut tunnels = Candidates {
        all: Vec::new(),
        is_truncated: true,
    };
    for page in 1..=MAX_PAGES {
        let call = session.platform.call(EVENTS, &[project_id]);
        let list: EventList = call
            .query("eventType", Some("tunnel.created"))
            .query("timeline", Some("30d"))
            .query("page", Some(page))
            .query("pageSize", Some(MAX_PAGE_SIZE))
            .answer()
            .await?;
        let is_last = list.events.len() < usize::try_from(MAX_PAGE_SIZE).unwrap_or(usize::MAX);
        let candidate = |event: &StoredEvent| {
            let text = |name: &str| event.payload.get(name)?.as_str();
            Some(Candidate::new(
                text("id")?,
                text("name").unwrap_or_default(),
            ))
        };
        tunnels.all.extend(list.events.iter().filter_map(candidate));
        if is_last {
            tunnels.is_truncated = false;
            break;
        }
    }
    Ok(tunnels)
}

/// The complete id of a tunnel of a project.
async fn complete_tunnel_id(
    session: &Session,
    project_id: &str,
    id: &str,
) -> Result<String, Failure> {
    id_prefix::complete("tunnel", id, tunnels(session, project_id)).await
}

pub(super) async fn events(args: EventsArgs) -> Result<(), Failure> {
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let call = session.platform.call(EVENTS, &[&project.id]);
    let list: EventList = args
        .list
        .narrow(call)
        .query("eventType", args.kind)
        .answer()
        .await?;
    if args.on.output == Format::Json {
        return output::json(&list);
    }
    let mut names = Names::default();
    if output::is_terminal() {
        names.add_members(&session, &project.workspace_id).await;
    }
    let rows = list.events.iter().map(|one| event(one, &names));
    output::table(&["TIME", "TYPE", "USER", "ID"], &rows.collect::<Vec<_>>())
}

fn log(record: Record, names: &Names) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let of_tunnel = record.tunnel_id.map(|id| names.of(&id));
    vec![
        record.at,
        record.outcome.to_owned(),
        or_dash(record.request.method),
        or_dash(record.request.host.or(of_tunnel)),
        or_dash(record.request.path),
        or_dash(record.status.map(|status| status.to_string())),
        record.request.from,
        record.reference,
    ]
}

fn event(event: &StoredEvent, names: &Names) -> Vec<String> {
    let user = event.user_id.as_ref();
    vec![
        event.created_at.clone(),
        event.event_type.clone(),
        user.map_or_else(|| "-".to_owned(), |id| names.of(id)),
        event.event_id.clone(),
    ]
}

/// Pages of tunnels that are read: two thousand.
const MAX_PAGES: u32 = 20;

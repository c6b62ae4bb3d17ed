//! Limits that differ between two plans, with the use that the platform stores.

use api::control::plan_change::{LimitChange, LimitEffect, PlanLimit};
use store::{Conn, addresses, domains, webhooks};
use types::id::ProjectId;

use crate::billing::plans::PlanTerms;
use crate::http_api::problem::HandlerResult;

/// Stored objects of a project that plans limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoredUse {
    webhooks: u64,
    tcp_addresses: u64,
    domains: u64,
}

/// Counts the objects of a project.
pub(super) async fn used(conn: &mut Conn, project: ProjectId) -> HandlerResult<StoredUse> {
    let addresses = addresses::of_project(conn, project).await?;
    let domains = domains::of_project(conn, project).await?;
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Ok(StoredUse {
        webhooks: webhooks::count(conn, project).await?,
        tcp_addresses: count(addresses.len()),
        domains: count(domains.len()),
    })
}

/// The limits that differ. The engine counts the use of its own limits, so it is not part of them.
pub(super) fn differences(old: &PlanTerms, new: &PlanTerms, used: StoredUse) -> Vec<LimitChange> {
    let values = ALL.map(|limit| (limit, value(old, limit), value(new, limit)));
    let differing = values.into_iter().filter(|(_, from, to)| from != to);
    differing
        .map(|(limit, from, to)| {
            let used = match limit {
                PlanLimit::Webhooks => Some(used.webhooks),
                PlanLimit::TcpAddresses => Some(used.tcp_addresses),
                PlanLimit::Domains => Some(used.domains),
                _ => None,
            };
            LimitChange {
                limit,
                from,
                to,
                used,
                effect: effect(limit, (from, to), used),
            }
        })
        .collect()
}

/// Every limit, in display order.
const ALL: [PlanLimit; 10] = [
    PlanLimit::Agents,
    PlanLimit::Tunnels,
    PlanLimit::RequestsPerSecond,
    PlanLimit::TunnelRequestsPerSecond,
    PlanLimit::BytesPerSecond,
    PlanLimit::TunnelBytesPerSecond,
    PlanLimit::LogRetentionDays,
    PlanLimit::Webhooks,
    PlanLimit::TcpAddresses,
    PlanLimit::Domains,
];

/// The value of a limit; `None`: no limit.
fn value(terms: &PlanTerms, limit: PlanLimit) -> Option<u64> {
    let limits = &terms.limits;
    match limit {
        PlanLimit::Agents => limits.clients.map(u64::from),
        PlanLimit::Tunnels => limits.tunnels.map(u64::from),
        PlanLimit::RequestsPerSecond => limits.requests_per_second.map(u64::from),
        PlanLimit::TunnelRequestsPerSecond => limits.tunnel_requests_per_second.map(u64::from),
        PlanLimit::BytesPerSecond => limits.bytes_per_second,
        PlanLimit::TunnelBytesPerSecond => limits.tunnel_bytes_per_second,
        PlanLimit::LogRetentionDays => Some(terms.log_retention_days.into()),
        PlanLimit::Webhooks => (!terms.webhooks).then_some(0),
        PlanLimit::TcpAddresses => Some(terms.tcp_addresses.into()),
        PlanLimit::Domains => Some(terms.domains.into()),
    }
}

fn effect(
    limit: PlanLimit,
    (from, to): (Option<u64>, Option<u64>),
    used: Option<u64>,
) -> LimitEffect {
    let Some(to) = to.filter(|to| from.is_none_or(|from| *to < from)) else {
        return LimitEffect::None;
    };
    let is_exceeded = used.is_some_and(|used| used > to);
    match limit {
        PlanLimit::Agents | PlanLimit::Tunnels => LimitEffect::RefusesMore,
        PlanLimit::RequestsPerSecond
        | PlanLimit::TunnelRequestsPerSecond
        | PlanLimit::BytesPerSecond
        | PlanLimit::TunnelBytesPerSecond => LimitEffect::Slows,
        PlanLimit::LogRetentionDays => LimitEffect::NewOnly,
        PlanLimit::Webhooks if is_exceeded => LimitEffect::RefusesMore,
        PlanLimit::TcpAddresses | PlanLimit::Domains if is_exceeded => LimitEffect::RemoveFirst,
        PlanLimit::Webhooks | PlanLimit::TcpAddresses | PlanLimit::Domains => LimitEffect::None,
    }
}

//! Every statement of this crate, with its sorted and filtered variants.

use types::id::{EventId, LogId, ProjectId, StreamId, TunnelId};

use crate::accounts::users;
use crate::database::page::{Order, Paging};
use crate::database::sql::sorted;
use crate::database::timeline::Period;
use crate::logs::search;
use crate::logs::search::LogSearch;
use crate::webhooks::deliveries;
use crate::workspaces::members;
use crate::{credentials, events, logs, projects, webhooks, workspaces};

/// Adds the list of each entity, sorted by each of its columns.
macro_rules! sorted_by_each {
    ($every:ident, $order:ident, $($entity:ident)+) => {$(
        let columns = $entity::Sort::ALL.iter().map(|sort| sort.column());
        $every.extend(columns.map(|column| sorted($entity::LIST, column, $order)));
    )+};
}

/// All statements for one kind of database, before they are converted to its syntax.
pub(crate) fn every(is_embedded: bool) -> Vec<String> {
    let fixed = [
        crate::projects::addresses::STATEMENTS,
        crate::accounts::attempts::STATEMENTS,
        crate::audit::STATEMENTS,
        crate::billing::STATEMENTS,
        crate::credentials::callers::STATEMENTS,
        crate::credentials::expiry::STATEMENTS,
        crate::projects::capacity::STATEMENTS,
        crate::database::changes::STATEMENTS,
        credentials::STATEMENTS,
        crate::projects::deleted_projects::STATEMENTS,
        crate::projects::domains::STATEMENTS,
        deliveries::STATEMENTS,
        crate::oauth::device_grants::STATEMENTS,
        crate::directory::STATEMENTS,
        crate::engines::STATEMENTS,
        events::STATEMENTS,
        crate::idempotency::STATEMENTS,
        crate::workspaces::invitations::STATEMENTS,
        crate::accounts::links::STATEMENTS,
        logs::STATEMENTS,
        members::STATEMENTS,
        crate::oauth::oauth_codes::STATEMENTS,
        crate::oldest_rows::STATEMENTS,
        crate::oauth::oauth_requests::STATEMENTS,
        crate::accounts::passkeys::STATEMENTS,
        crate::accounts::pending_sign_ins::STATEMENTS,
        crate::keys::platform_secrets::STATEMENTS,
        projects::STATEMENTS,
        crate::credentials::revoked_tokens::STATEMENTS,
        crate::accounts::sessions::STATEMENTS,
        crate::keys::signing_keys::STATEMENTS,
        crate::stored_records::STATEMENTS,
        crate::projects::takedowns::STATEMENTS,
        crate::traffic::STATEMENTS,
        crate::usage::STATEMENTS,
        crate::accounts::used_challenges::STATEMENTS,
        users::STATEMENTS,
        webhooks::STATEMENTS,
        crate::webtty_servers::STATEMENTS,
        workspaces::STATEMENTS,
    ];
    let mut every: Vec<String> = fixed
        .into_iter()
        .flatten()
        .map(|text| (*text).to_owned())
        .collect();
    every.push(deliveries::COUNT.to_owned());
    let own = if is_embedded {
        search::EMBEDDED
    } else {
        search::SERVER
    };
    every.extend(own.iter().map(|text| (*text).to_owned()));
    every.extend(crate::audit::every());
    for order in Order::ALL {
        for filter in projects::Filter::every() {
            every.push(filter.count_text());
            every.extend(
                projects::Sort::ALL
                    .iter()
                    .map(|sort| filter.list_text(*sort, order)),
            );
        }
        sorted_by_each!(every, order, users members workspaces webhooks);
        every.push(sorted(credentials::LIST, "id", order));
        every.push(sorted(deliveries::LIST, "id", order));
        every.extend(timelines(order, is_embedded));
    }
    every.sort_unstable();
    every.dedup();
    every
}

/// Each combination of filters of the two lists by time.
fn timelines(order: Order, is_embedded: bool) -> Vec<String> {
    let mut every = Vec::new();
    for bits in 0..128_u8 {
        let given = |bit: u8| bits & (1 << bit) != 0;
        let period = Period {
            start: given(0).then_some(jiff::Timestamp::MIN),
            end: given(1).then_some(jiff::Timestamp::MAX),
        };
        let list = logs::List {
            project: ProjectId::new(0, [0; 10]),
            period,
            after: given(2).then(|| LogId::new(0, [0; 10])),
            outcome: given(3).then_some("failed"),
            tunnel: given(4).then(|| TunnelId::new(0, [0; 10])),
            search: given(5).then_some("a"),
            stream: given(6).then_some(StreamId([0; 12])),
            order,
            paging: Paging::DEFAULT,
        };
        let timeline = logs::timeline(&list);
        every.extend([timeline.count_text(order), timeline.list_text(order)]);
        let search = LogSearch::new(&list, "abc", "%abc%", is_embedded);
        every.extend([search.count_text(), search.list_text(order)]);
        let list = events::List {
            project: ProjectId::new(0, [0; 10]),
            period,
            after: given(2).then(|| EventId::new(0, [0; 10])),
            kind: given(3).then_some("tunnel.created"),
            order,
            paging: Paging::DEFAULT,
        };
        let timeline = events::timeline(&list, given(2).then_some("evt"));
        every.extend([timeline.count_text(order), timeline.list_text(order)]);
    }
    every.sort_unstable();
    every.dedup();
    every
}

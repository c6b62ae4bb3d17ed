//! The whole state that a cluster serves, at one moment.

use api::link::{Item, LinkMessage};
use store::{Snapshot, changes, directory};

use super::changes::cursor_at;
use super::items::{self, Parts};
use super::link::{Link, LinkEnd};
use crate::runtime::metrics;

/// Sends the whole state in pages. At most one page is in memory.
pub(super) async fn send_all(link: &mut Link) -> Result<(), LinkEnd> {
    let _turn = wait_for_permit(link).await?;
    let mut snapshot = link.app.store.snapshot().await?;
    let head = changes::head(&mut snapshot).await?;
    // The keys are read after the log position, so that a key which another process made before it
    // is included.
    link.reload_keys().await?;
    snapshot.next_page();
    let platform = link.cluster.platform();
    link.lines
        .push(&LinkMessage::SnapshotBegin { platform })
        .await?;
    item(link, items::keys(&link.app)).await?;
    if let Some(keys) = items::relay_keys(&link.app, &link.cluster) {
        item(link, keys).await?;
    }
    projects(link, &mut snapshot).await?;
    people(link, &mut snapshot).await?;
    credentials(link, &mut snapshot).await?;
    webtty_servers(link, &mut snapshot).await?;
    ended(link, &mut snapshot).await?;
    drop(snapshot);
    let cursor = cursor_at(&link.cluster, &head);
    link.lines
        .push(&LinkMessage::SnapshotEnd { cursor })
        .await?;
    link.lines.flush().await?;
    link.sent_version = Some(head);
    metrics::link_snapshot();
    Ok(())
}

/// Waits for a permit to send the whole state. The engine receives keep-alives meanwhile.
async fn wait_for_permit(link: &mut Link) -> Result<tokio::sync::OwnedSemaphorePermit, LinkEnd> {
    let mut permit =
        std::pin::pin!(std::sync::Arc::clone(&link.app.engines.snapshot_permits).acquire_owned());
    loop {
        tokio::select! {
            permit = &mut permit => return permit.map_err(|_| LinkEnd::Stopped),
            ended = link.pause() => ended?,
        }
        link.keep_alive().await?;
    }
}

async fn item(link: &mut Link, item: Item) -> Result<(), LinkEnd> {
    Ok(link.lines.push(&LinkMessage::Item { item }).await?)
}

async fn projects(link: &mut Link, snapshot: &mut Snapshot) -> Result<(), LinkEnd> {
    let cluster = std::sync::Arc::clone(&link.cluster);
    let mut after = None;
    loop {
        snapshot.next_page();
        let page = cluster
            .directory
            .projects_after(snapshot, after, PAGE)
            .await?;
        let ids: Vec<_> = page.iter().map(|project| project.id).collect();
        let parts = Parts::of(snapshot, &cluster, &ids).await?;
        let is_last = is_last_page(page.len());
        for one in items::projects(&cluster, page, &parts) {
            item(link, one).await?;
        }
        // Those of one project are in memory at a time.
        for id in items::with_certificates(&cluster, &parts.domains) {
            snapshot.next_page();
            let certificates = directory::domain_certificates(snapshot, id).await?;
            for row in certificates {
                if let Some(one) = items::certificate(&link.app, row) {
                    item(link, one).await?;
                }
            }
        }
        if is_last {
            return Ok(());
        }
        after = ids.last().copied();
    }
}

async fn people(link: &mut Link, snapshot: &mut Snapshot) -> Result<(), LinkEnd> {
    let cluster = std::sync::Arc::clone(&link.cluster);
    let mut after = None;
    loop {
        snapshot.next_page();
        let page = cluster
            .directory
            .people_after(snapshot, after, PAGE)
            .await?;
        let ids: Vec<_> = page.iter().map(|person| person.id).collect();
        let parts = cluster.directory.memberships(snapshot, &ids).await?;
        let is_last = is_last_page(page.len());
        for one in items::people(page, &parts) {
            item(link, one).await?;
        }
        if is_last {
            return Ok(());
        }
        after = ids.last().copied();
    }
}

async fn credentials(link: &mut Link, snapshot: &mut Snapshot) -> Result<(), LinkEnd> {
    let cluster = std::sync::Arc::clone(&link.cluster);
    let mut after = None;
    loop {
        snapshot.next_page();
        let now = link.app.now();
        let page = cluster
            .directory
            .credentials_after(snapshot, after, now, PAGE);
        let page = page.await?;
        let is_last = is_last_page(page.len());
        after = page.last().map(|credential| credential.id);
        let known = page.into_iter().filter(|row| cluster.accepts(row));
        for one in known.filter_map(items::credential) {
            item(link, one).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn webtty_servers(link: &mut Link, snapshot: &mut Snapshot) -> Result<(), LinkEnd> {
    let cluster = std::sync::Arc::clone(&link.cluster);
    let mut after = None;
    loop {
        snapshot.next_page();
        let page = cluster
            .directory
            .webtty_servers_after(snapshot, after, PAGE);
        let page = page.await?;
        let is_last = is_last_page(page.len());
        after = page.last().map(|server| server.id);
        for one in page.into_iter().map(items::webtty_server) {
            item(link, one).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn ended(link: &mut Link, snapshot: &mut Snapshot) -> Result<(), LinkEnd> {
    let mut after: Option<String> = None;
    loop {
        snapshot.next_page();
        let now = link.app.now();
        let page = directory::ended_after(snapshot, after.as_deref(), now, PAGE).await?;
        let is_last = is_last_page(page.len());
        after = page.last().map(|ended| ended.jti.clone());
        for one in page.into_iter().map(items::ended_object) {
            item(link, one).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// True if a page with so many rows is the last one.
fn is_last_page(rows: usize) -> bool {
    u32::try_from(rows).is_ok_and(|rows| rows < PAGE)
}

/// Maximum number of rows in memory: some hundred kilobytes, and at worst a few megabytes of
/// certificates.
const PAGE: u32 = 500;

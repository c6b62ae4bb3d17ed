//! The part of the live state that one caller sees: one filter for the list, the snapshot and each
//! event.

use std::io;
use std::sync::Arc;

use credentials::VerifiedToken;
use serde::Serialize;
use serde_json::Value;
use types::boundary::ListScope;
use types::client::Client;
use types::event::{Event, EventType};
use types::filter::WatchParams;
use types::id::EventId;
use types::tunnel::Tunnel;

use super::watch::Snapshot;

/// A project, filtered by the caller's request and by the token's permission to list.
#[derive(Debug, Clone)]
pub struct View {
    /// Id of the project that the caller's token is valid for.
    pub project: Arc<str>,
    /// Workspace of the project, on managed engines.
    pub workspace: Option<Arc<str>>,
    /// The caller's filter.
    pub params: WatchParams,
    /// The token, for its boundary; its permissions were checked before.
    pub token: Arc<VerifiedToken>,
    /// True if events of managed terminals are in the view: requested, and permitted.
    pub webtty: bool,
    /// `compat.rstream`: true if objects have rstream's field names as well.
    pub compat: bool,
}

impl View {
    /// Returns true if a client is in the view. A boundary only applies to tunnels: one that shows
    /// some tunnels, or some fields of them, shows no client at all.
    pub fn shows_client(&self, client: &Client) -> bool {
        client.project_id.as_deref() == Some(&*self.project)
            && self.params.clients.matches(client)
            && self
                .token
                .limits
                .boundary()
                .may_list_all(&self.project, self.workspace.as_deref())
    }

    /// Returns true if a tunnel is in the view.
    pub fn shows_tunnel(&self, tunnel: &Tunnel) -> bool {
        tunnel.project_id.as_deref() == Some(&*self.project)
            && self.params.tunnels.matches(tunnel)
            && self.scope(tunnel) != ListScope::Hidden
    }

    /// Returns true if events of sessions at this tunnel's server are in the view. The caller's
    /// filter of tunnels does not apply to sessions.
    pub fn shows_webtty(&self, tunnel: &Tunnel) -> bool {
        self.webtty
            && tunnel.project_id.as_deref() == Some(&*self.project)
            && self.scope(tunnel) != ListScope::Hidden
    }

    /// The fields of a tunnel that the token shows.
    pub fn scope(&self, tunnel: &Tunnel) -> ListScope {
        self.token
            .limits
            .boundary()
            .list(&self.project, self.workspace.as_deref(), tunnel)
    }

    /// A tunnel of the view as JSON for its caller.
    pub fn tunnel_json(&self, tunnel: &Tunnel) -> Option<Value> {
        self.scope(tunnel).apply(tunnel.to_json(self.compat))
    }

    /// Writes the first event of a stream (EN-3), object by object. However much is online, memory
    /// is only needed for the part that `out` buffers.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_initial(
        &self,
        id: EventId,
        snapshot: &Snapshot,
        out: &mut impl io::Write,
    ) -> io::Result<()> {
        let mut event = Event::new(id, EventType::StateInitial, snapshot.at, Value::Null);
        event.project_id = Some(self.project.to_string());
        event.workspace_id = self.workspace.as_ref().map(ToString::to_string);
        let line = event.to_line();
        // The object is the last member of an event.
        let front = line.strip_suffix("null}").unwrap_or_default();
        write!(out, "{front}{{\"snapshot_at\":\"{:.3}\",", snapshot.at)?;
        out.write_all(b"\"clients\":")?;
        let clients = snapshot.clients.iter().map(|client| client.to_json());
        write_array(out, clients)?;
        out.write_all(b",\"tunnels\":")?;
        let tunnels = snapshot.tunnels.iter();
        write_array(out, tunnels.filter_map(|tunnel| self.tunnel_json(tunnel)))?;
        out.write_all(b"}}")
    }
}

/// Writes an array of JSON, value by value.
///
/// # Errors
/// Write errors of `out`.
pub(crate) fn write_array<T: Serialize>(
    out: &mut impl io::Write,
    values: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    let mut before = b"[";
    for value in values {
        out.write_all(before)?;
        serde_json::to_writer(&mut *out, &value)?;
        before = b",";
    }
    out.write_all(if before == b"[" { b"[]" } else { b"]" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_written_like_the_library_does() {
        for values in [vec![], vec![1], vec![1, 2, 3]] {
            let mut written = Vec::new();
            write_array(&mut written, &values).unwrap();
            assert_eq!(written, serde_json::to_vec(&values).unwrap());
        }
    }
}

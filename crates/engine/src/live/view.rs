//! What one caller sees of the live state: one value for the list, the snapshot and each event.

use std::io;
use std::sync::Arc;

use credentials::Verified;
use serde::Serialize;
use serde_json::Value;
use types::boundary::ListScope;
use types::client::Client;
use types::event::{Event, EventType};
use types::filter::WatchParams;
use types::id::EventId;
use types::tunnel::Tunnel;

use super::watch::Snapshot;

/// A project, cut by what the caller asked for and by what its token may list.
#[derive(Debug, Clone)]
pub struct View {
    /// Id of the project that the caller's token is good for.
    pub project: Arc<str>,
    /// Workspace of the project, on managed engines.
    pub workspace: Option<Arc<str>>,
    /// What the caller asked for.
    pub params: WatchParams,
    /// The token, for where it reaches; its permissions were judged before.
    pub token: Arc<Verified>,
    /// Whether events of managed terminals are in the view: asked for, and permitted.
    pub webtty: bool,
    /// `compat.rstream`: whether objects carry the other brand's field names too.
    pub compat: bool,
}

impl View {
    /// Whether a client is in the view. A boundary speaks of tunnels only: one that shows some
    /// tunnels, or some fields of them, shows no client at all.
    pub fn shows_client(&self, client: &Client) -> bool {
        client.project_id.as_deref() == Some(&*self.project)
            && self.params.clients.matches(client)
            && self
                .token
                .limits
                .boundary()
                .may_list_all(&self.project, self.workspace.as_deref())
    }

    /// Whether a tunnel is in the view.
    pub fn shows_tunnel(&self, tunnel: &Tunnel) -> bool {
        tunnel.project_id.as_deref() == Some(&*self.project)
            && self.params.tunnels.matches(tunnel)
            && self.scope(tunnel) != ListScope::Hidden
    }

    /// Whether what happens in a session at this tunnel's server is in the view. What was asked of
    /// tunnels narrows tunnels, not sessions.
    pub fn shows_webtty(&self, tunnel: &Tunnel) -> bool {
        self.webtty
            && tunnel.project_id.as_deref() == Some(&*self.project)
            && self.scope(tunnel) != ListScope::Hidden
    }

    /// How much of a tunnel the token shows.
    pub fn scope(&self, tunnel: &Tunnel) -> ListScope {
        self.token
            .limits
            .boundary()
            .list(&self.project, self.workspace.as_deref(), tunnel)
    }

    /// A tunnel of the view as its caller sees it.
    pub fn tunnel_json(&self, tunnel: &Tunnel) -> Option<Value> {
        self.scope(tunnel).apply(tunnel.to_json(self.compat))
    }

    /// Writes the first event of a stream (EN-3), object by object: however much is online, no more
    /// of it is in memory at once than `out` keeps.
    ///
    /// # Errors
    /// Those of `out`.
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
/// Those of `out`.
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
    fn an_array_is_written_as_the_library_writes_it() {
        for values in [vec![], vec![1], vec![1, 2, 3]] {
            let mut written = Vec::new();
            write_array(&mut written, &values).unwrap();
            assert_eq!(written, serde_json::to_vec(&values).unwrap());
        }
    }
}

//! Tunnels of registered terminal servers: the check before one is opened, and their end.

use std::sync::Arc;

use tty::admission::{LABEL, SERVER_ID, Subject};
use types::client::Labels;
use types::id::TunnelId;
use types::tunnel::{Protocol, TunnelProperties, TunnelType};
use wire::Error;

use super::deferred::OpenRefusal;
use super::{Session, SessionEnd};
use crate::directory::{ServerAdmissionError, WebttyServer};

impl Session {
    /// The registered server of this tunnel; `None` for a tunnel of another protocol. The labels
    /// are those that the agent sent and signed. The proof is removed from the tunnel, so that
    /// other users who see the tunnel do not see it.
    pub(super) fn admit(
        &self,
        signed_labels: &Labels,
        properties: &mut TunnelProperties,
    ) -> Result<Option<Arc<WebttyServer>>, OpenRefusal> {
        if properties.protocol != Some(Protocol::Webtty) {
            return Ok(None);
        }
        let admitted = self.admitted_server(signed_labels, properties.tunnel_type);
        let server = admitted.map_err(|refused| {
            let error = Error::unauthorized(refused.to_string());
            match refused {
                ServerAdmissionError::Unknown | ServerAdmissionError::NotEnrolled => {
                    OpenRefusal::NeedsUpdate(error)
                }
                _ => OpenRefusal::Final(error),
            }
        })?;
        properties.labels.remove(LABEL);
        Ok(Some(server))
    }

    fn admitted_server(
        &self,
        labels: &Labels,
        tunnel_type: Option<TunnelType>,
    ) -> Result<Arc<WebttyServer>, ServerAdmissionError> {
        let (Some(id), Some(proof)) = (labels.get(SERVER_ID), labels.get(LABEL)) else {
            return Err(ServerAdmissionError::Unlabelled);
        };
        // A community engine has no registered servers and does not reach this point.
        let directory = self.core.tenancy.directory();
        let server = directory
            .and_then(|known| known.webtty_server(&self.project.id, id))
            .ok_or(ServerAdmissionError::Unknown)?;
        let subject = Subject {
            project_id: &self.project.id,
            server_id: id,
            tunnel_protocol: Protocol::Webtty.as_str(),
            tunnel_type: tunnel_type.unwrap_or(TunnelType::Bytestream).as_str(),
            labels,
        };
        server.admit(proof, subject, self.core.clock.now())?;
        Ok(server)
    }

    /// Closes the tunnels whose registered server may no longer serve.
    pub(super) fn close_refused_servers(&mut self) -> Result<(), SessionEnd> {
        let ended = self.servers.iter();
        let ended = ended.filter(|(_, server)| server.ended().is_cancelled());
        let ended: Vec<TunnelId> = ended.map(|(tunnel, _)| *tunnel).collect();
        self.close_tunnels(ended, "the registered server was suspended or deleted")
    }
}

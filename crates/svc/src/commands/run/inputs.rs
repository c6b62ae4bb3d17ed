//! Selects the file and the engines from flags, environment, file and context.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use client::Config;

use super::{
    Args,
    agent_set::EngineName,
    file::EngineSection,
    plan::{DesiredTunnel, Plan},
};
use crate::{
    connection::{Connection, config_directory, non_empty_path},
    failure::Failure,
};

impl Args {
    /// The named file, or the existing default. With containers a file is optional.
    pub(super) fn find_file(&self) -> Result<Option<PathBuf>, Failure> {
        if self.file.is_some() {
            return Ok(self.file.clone());
        }
        let here = PathBuf::from(LOCAL_FILE_NAME);
        let in_config_dir = config_directory(self.connection.config.as_ref())
            .map(|directory| directory.join(CONFIG_FILE_NAME));
        let found = [Some(here), in_config_dir.clone()]
            .into_iter()
            .flatten()
            .find(|path| path.exists());
        if found.is_none() && !self.docker.is_enabled() {
            let places = match in_config_dir {
                Some(path) => format!(
                    "{LOCAL_FILE_NAME} in this directory and no {}",
                    path.display()
                ),
                None => format!("{LOCAL_FILE_NAME} here"),
            };
            return Err(Failure::usage(format!("not found: {places}"))
                .hint("give a file or --docker; see docs/agent-configuration.md for examples"));
        }
        Ok(found)
    }

    /// Configurations of the engines that a plan uses. An error contains the key of its section.
    pub(super) fn engines(
        &self,
        plan: &Plan,
    ) -> Result<BTreeMap<EngineName, Config>, (String, Failure)> {
        let mut engines = BTreeMap::new();
        let uses_top = plan.tunnels.values().any(|wanted| wanted.engine.is_none());
        let containers = self.docker.is_enabled();
        if uses_top || containers {
            let config = self
                .connection_at_top(&plan.engine)
                .and_then(|connection| connection.resolve_with(self.key_tokens.clone()))
                .map_err(|failure| (String::new(), failure))?;
            engines.insert(None, config);
        }
        for (name, section) in &plan.engines {
            let is_used = |wanted: &DesiredTunnel| wanted.engine.as_ref() == Some(name);
            if !containers && !plan.tunnels.values().any(is_used) {
                continue;
            }
            let config = self
                .connection_of(section)
                .and_then(|connection| connection.resolve())
                .map_err(|failure| (format!("engines.{name}"), failure))?;
            engines.insert(Some(name.clone()), config);
        }
        if let Some(bytes) = plan.max_buffered_bytes {
            transport::memory::set_limit(bytes);
        }
        for config in engines.values_mut() {
            config.labels.clone_from(&plan.client_labels);
            if let Some(heartbeat) = plan.heartbeat {
                config.heartbeat = heartbeat;
            }
        }
        Ok(engines)
    }

    /// Flags and environment take precedence over the file. The file's token for its own engine is
    /// not sent to a different engine that a flag names.
    fn connection_at_top(&self, section: &EngineSection) -> Result<Connection, Failure> {
        // An empty variable counts as unset.
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (engine, token) = (
            given(&self.connection.engine),
            given(&self.connection.token),
        );
        let is_other = engine.is_some() && section.engine.is_some() && engine != section.engine;
        let nothing = EngineSection::default();
        let section = if is_other { &nothing } else { section };
        let token_file = match non_empty_path(self.token_file.as_ref()) {
            Some(path) => Some(path.display().to_string()),
            None => section.token_file.clone(),
        };
        let of_file = self.connection_of(&EngineSection {
            // With an explicit token the file is not needed.
            token_file: token_file.filter(|_| token.is_none() && self.key_tokens.is_none()),
            ..section.clone()
        })?;
        Ok(Connection {
            engine: engine.or(of_file.engine),
            token: token.or(of_file.token),
            ca_file: self.connection.ca_file().cloned().or(of_file.ca_file),
            context: given(&self.connection.context).or(of_file.context),
            ..of_file
        })
    }

    fn connection_of(&self, section: &EngineSection) -> Result<Connection, Failure> {
        let token = section.token_file.as_deref().map(read_token).transpose()?;
        Ok(Connection {
            engine: section.engine.clone(),
            token,
            ca_file: section.ca_file.as_deref().map(PathBuf::from),
            context: section.context.clone(),
            config: self.connection.config.clone(),
            proxy: self.connection.proxy.clone(),
        })
    }
}

fn read_token(path: &str) -> Result<String, Failure> {
    let bytes = daemon::files::read_bounded(Path::new(path), MAX_TOKEN_BYTES)
        .map_err(|error| Failure::usage(format!("the token in {path} cannot be read: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_invalid| Failure::usage(format!("{path} does not contain a token")))?;
    match text.trim() {
        "" => Err(Failure::usage(format!(
            "{path} is empty: it should contain a token"
        ))),
        token => Ok(token.to_owned()),
    }
}

/// File name in the working directory.
pub(crate) const LOCAL_FILE_NAME: &str = "svc.yaml";
/// File name in the configuration directory.
const CONFIG_FILE_NAME: &str = "agent.yaml";
/// Tokens have at most 8 KiB. A longer file is not a token.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;

//! Files that an engine opens at its start.

use std::sync::Arc;

use daemon::access_log::{AccessLog, AccessLogThread};

use crate::config::{Auth, EngineConfig};
use crate::geo::{Countries, GeoError};
use crate::start_error::StartError;

/// A community engine does not use countries.
pub(super) async fn countries(config: &EngineConfig) -> Result<Option<Arc<Countries>>, StartError> {
    let (Some(path), Auth::Platform(_)) = (config.geoip_file.clone(), &config.auth) else {
        return Ok(None);
    };
    let file = path.clone();
    let reading = tokio::task::spawn_blocking(move || Countries::load(&file));
    let read = reading.await.map_err(std::io::Error::other);
    match read.map_err(GeoError::from).and_then(|read| read) {
        Ok(countries) => Ok(Some(Arc::new(countries))),
        Err(source) => Err(StartError::GeoIp { path, source }),
    }
}

type OpenLog = (Option<AccessLog>, Option<AccessLogThread>);

pub(super) fn open_access_log(config: &EngineConfig) -> Result<OpenLog, StartError> {
    let Some(log) = &config.access_log else {
        return Ok((None, None));
    };
    let path = &log.path;
    let opened = AccessLog::open(path).and_then(|(log, mut thread)| {
        thread.reopen_on_hangup()?;
        Ok((Some(log), Some(thread)))
    });
    opened.map_err(|source| StartError::AccessLog {
        path: path.clone(),
        source,
    })
}

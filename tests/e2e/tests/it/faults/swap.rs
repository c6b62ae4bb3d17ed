//! A certificate is replaced while visitors come.

use std::fs;

use anyhow::Result;
use e2e::{Curl, Managed, eventually};

use super::{COUNTED, Visits, every_record_is_there, publish};

/// EN-12: who comes while the files are replaced one after the other is served, by the old
/// certificate or by the new one.
#[test]
fn nobody_notices_that_the_certificate_is_replaced() -> Result<()> {
    let managed = Managed::on_sqlite()?;
    let agent = publish(&managed)?;
    let both = tempfile::NamedTempFile::new()?;
    let (replaced, put) = managed.engine.next_certificate()?;
    fs::write(
        &both,
        [fs::read(managed.engine.ca_file())?, fs::read(&replaced)?].concat(),
    )?;
    let visits = Visits::start(4, &agent.url(COUNTED), managed.token(), both.path());
    visits.more(20)?;

    put()?;
    let document = format!("https://{}/api/openapi.json", managed.engine.address());
    let new = Curl::trusting(replaced);
    eventually("the new certificate", || Ok(new.get(&[&document]).is_ok()))?;
    visits.more(40)?;
    every_record_is_there(&managed, visits.stop()?)
}

//! A certificate is replaced while visitors connect.

use std::fs;

use anyhow::Result;
use e2e::{Curl, ManagedPair, eventually};

use super::{COUNTED, Visits, every_record_is_there, publish};

/// EN-12: a visitor that connects while the files are replaced one after the other is served, with
/// the old certificate or the new one.
#[test]
fn replacing_the_certificate_affects_no_visitor() -> Result<()> {
    let managed = ManagedPair::on_sqlite()?;
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

//! Certificates of the authorities that this program creates.

use std::{fs, io, path::Path};

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{CertificateParams, Issuer, KeyPair};
use terminal::private;

use crate::failure::Failure;

/// Signs a certificate for a new key.
pub(super) fn issue(
    params: &CertificateParams,
    issuer: &Issuer<'static, KeyPair>,
    cert_file: &Path,
    key_file: &Path,
) -> Result<(), Failure> {
    let key = KeyPair::generate().map_err(cannot_make)?;
    let cert = params.signed_by(&key, issuer).map_err(cannot_make)?;
    // The key is written first. A server that reloads in between sees a mismatched pair, and tries
    // again.
    write(key_file, &key.serialize_pem())?;
    write(cert_file, &cert.pem())
}

/// Sets the validity. It starts yesterday, for clocks that are slightly behind.
pub(super) fn valid_for(params: &mut CertificateParams, days: i64) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let at = |date: Date| {
        let month = u8::try_from(date.month()).unwrap_or(1);
        let day = u8::try_from(date.day()).unwrap_or(1);
        rcgen::date_time_ymd(date.year().into(), month, day)
    };
    params.not_before = at(today.saturating_sub(1.day()));
    params.not_after = at(today.saturating_add(days.days()));
}

/// Reads a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::from_error(
            &format!("cannot read {}", path.display()),
            error,
        )),
    }
}

/// Writes a file that only its owner can read.
pub(super) fn write(path: &Path, pem: &str) -> Result<(), Failure> {
    private::write(path, pem.as_bytes())
        .map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))
}

pub(super) fn cannot_make(error: rcgen::Error) -> Failure {
    Failure::from_error("cannot create the certificate", error)
}

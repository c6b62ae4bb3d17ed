//! A tap that records its calls, for tests.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{StreamTap, Tap, TlsInterceptor, Visit};

/// Records the calls of its streams, one in each line.
#[derive(Clone, Default)]
pub(crate) struct TapRecorder {
    pub(crate) calls: Arc<Mutex<String>>,
    pub(crate) opener: Option<TlsInterceptor>,
}

impl TapRecorder {
    fn record(&self, call: &str) {
        self.calls.lock().push_str(call);
    }
}

impl Tap for TapRecorder {
    fn stream(&self, _visit: &Visit) -> Option<Box<dyn StreamTap>> {
        Some(Box::new(self.clone()))
    }

    fn opener(&self) -> Option<&TlsInterceptor> {
        self.opener.as_ref()
    }
}

impl StreamTap for TapRecorder {
    fn opened(&mut self, name: &str) {
        self.record(&format!("opened {name}\n"));
    }

    fn to_service(&mut self, bytes: &[u8]) {
        self.record(&format!("> {}\n", String::from_utf8_lossy(bytes)));
    }

    fn to_visitor(&mut self, bytes: &[u8]) {
        self.record(&format!("< {}\n", String::from_utf8_lossy(bytes)));
    }

    fn ended(self: Box<Self>, error: Option<&str>) {
        self.record(&format!("ended {error:?}\n"));
    }

    fn has_request(&self) -> bool {
        self.calls.lock().contains('>')
    }
}

/// A certificate for this name, with its key.
pub(crate) fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    (made.cert.der().clone(), key.into())
}

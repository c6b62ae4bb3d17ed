//! The certificate of a handshake: from files, from an authority, or from both by server name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use daemon::tls::{ReloadingCert, names_of};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::manager::Certificate;

/// Selects the source of the certificates. With files alone, handshakes cost the same as without
/// this module.
pub(crate) fn resolver(
    files: Option<Arc<ReloadingCert>>,
    ordered: Option<Certificate>,
) -> Arc<dyn ResolvesServerCert> {
    match (files, ordered) {
        (Some(files), Some(ordered)) => Arc::new(BothSources::new(files, ordered)),
        (Some(files), None) => files,
        (None, ordered) => Arc::new(OrderedSource(ordered.unwrap_or_default())),
    }
}

/// The certificate from an authority. A handshake fails until there is one.
#[derive(Debug)]
struct OrderedSource(Certificate);

impl ResolvesServerCert for OrderedSource {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let issued = self.0.current()?;
        Some(Arc::clone(issued.certified()))
    }
}

/// Files and an authority.
#[derive(Debug)]
struct BothSources {
    files: Arc<ReloadingCert>,
    /// The names in the files, read once for each certificate.
    names: ArcSwap<FileNames>,
    ordered: Certificate,
}

#[derive(Debug)]
struct FileNames {
    certified: Arc<CertifiedKey>,
    names: Vec<String>,
}

impl FileNames {
    fn of(certified: Arc<CertifiedKey>) -> Self {
        let names = certified.cert.first().map(names_of).unwrap_or_default();
        Self { certified, names }
    }
}

impl BothSources {
    fn new(files: Arc<ReloadingCert>, ordered: Certificate) -> Self {
        Self {
            names: ArcSwap::from_pointee(FileNames::of(files.current())),
            files,
            ordered,
        }
    }

    fn select(&self, from_files: Arc<CertifiedKey>, name: &str) -> Arc<CertifiedKey> {
        let Some(issued) = self.ordered.current() else {
            return from_files;
        };
        if !Arc::ptr_eq(&self.names.load().certified, &from_files) {
            let names = FileNames::of(Arc::clone(&from_files));
            self.names.store(Arc::new(names));
        }
        let names = self.names.load();
        let of_files = Rank::of(&names.names, name, self.files.not_after());
        let of_order = Rank::of(issued.names(), name, issued.validity().not_after);
        if is_order_preferred(of_order, of_files, issued.was_expired()) {
            Arc::clone(issued.certified())
        } else {
            from_files
        }
    }
}

impl ResolvesServerCert for BothSources {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let from_files = self.files.resolve(hello)?;
        match name {
            Some(name) => Some(self.select(from_files, &name)),
            None => Some(from_files),
        }
    }
}

/// Suitability of a certificate for a host. The fields are compared in this order: of two
/// certificates that name the host equally, the one that expires later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    name: NameMatch,
    /// Seconds since 1970.
    expiry: i64,
}

impl Rank {
    fn of(names: &[String], host: &str, expiry: i64) -> Self {
        let name = best_match(names, host);
        Self { name, expiry }
    }
}

/// True if the certificate from the authority suits a host better than that in the files. One that
/// had expired when it was read is only for a host that it names and the files do not.
fn is_order_preferred(of_order: Rank, of_files: Rank, was_expired: bool) -> bool {
    if was_expired {
        return of_order.name > NameMatch::None && of_files.name == NameMatch::None;
    }
    of_order > of_files
}

/// How specifically a certificate names a host; the greatest one is the most specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    None,
    Wildcard,
    Exact,
}

fn best_match(names: &[String], host: &str) -> NameMatch {
    let of = |name: &String| match name.strip_prefix("*.") {
        _ if name.eq_ignore_ascii_case(host) => NameMatch::Exact,
        Some(rest)
            if host
                .split_once('.')
                .is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(rest)) =>
        {
            NameMatch::Wildcard
        }
        _ => NameMatch::None,
    };
    names.iter().map(of).max().unwrap_or(NameMatch::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_name_counts() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let both = names(&["H.example", "*.t.h.example"]);
        for (names, host, expected) in [
            (&both, "h.example", NameMatch::Exact),
            (&both, "a.t.h.example", NameMatch::Wildcard),
            (&both, "t.h.example", NameMatch::None),
            (&both, "a.b.t.h.example", NameMatch::None),
            (&both, "other.example", NameMatch::None),
            (
                &names(&["*.example", "h.example"]),
                "h.example",
                NameMatch::Exact,
            ),
            (&names(&[]), "h.example", NameMatch::None),
        ] {
            assert_eq!(best_match(names, host), expected, "{host}");
        }
        assert!(NameMatch::Exact > NameMatch::Wildcard);
        assert!(NameMatch::Wildcard > NameMatch::None);
    }

    #[test]
    fn an_expired_certificate_is_only_for_a_name_that_has_no_other_one() {
        let rank = |name, expiry| Rank { name, expiry };
        let (none, wildcard, exact) = (NameMatch::None, NameMatch::Wildcard, NameMatch::Exact);
        for (of_order, of_files, expected) in [
            (rank(exact, 2), rank(none, 1), [true, true]),
            (rank(exact, 2), rank(wildcard, 1), [true, false]),
            (rank(exact, 2), rank(exact, 1), [true, false]),
            (rank(none, 2), rank(none, 1), [true, false]),
            (rank(none, 2), rank(exact, 1), [false, false]),
        ] {
            let found = [false, true].map(|was| is_order_preferred(of_order, of_files, was));
            assert_eq!(found, expected, "{of_order:?} {of_files:?}");
        }
    }

    #[test]
    fn the_name_counts_before_the_expiry() {
        let exact = ["a.t.h.example".to_owned()];
        let wildcard = ["*.t.h.example".to_owned()];
        let rank = |names: &[String], expiry| Rank::of(names, "a.t.h.example", expiry);
        assert!(rank(&exact, 1) > rank(&wildcard, 2));
        assert!(rank(&wildcard, 1) > rank(&[], 2));
        for names in [&exact[..], &wildcard, &[]] {
            assert!(rank(names, 2) > rank(names, 1), "{names:?}");
            assert_eq!(rank(names, 1), rank(names, 1), "{names:?}");
        }
    }
}

//! Client certificates of visitors (ED-3): the result of the handshake, and the matching
//! credentials.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use super::digest::Digest;
use crate::directory::{Chain, Credential, CredentialMatcher, Directory, Project, Validity};

/// A certificate whose private key the visitor proved to have in the TLS handshake. There is one
/// for each connection. Its owner is looked up for every request, so that changes apply to open
/// connections as well.
#[derive(Debug)]
pub struct ClientCertificate {
    /// SHA-256 of the DER form.
    digest: Digest,
    /// The chain as it was sent: the certificate and possible intermediates to an authority.
    chain: Box<[CertificateDer<'static>]>,
    validity: Validity,
    /// The authorities that issued it. Signatures are verified once for a connection, and again
    /// when the set of authorities changes.
    last_search: ArcSwapOption<CredentialSearch>,
}

#[derive(Debug)]
struct CredentialSearch {
    /// The authorities that were searched, and the project of the search.
    authorities: Arc<Vec<Arc<Credential>>>,
    project: Arc<str>,
    found: Vec<(Arc<Credential>, Validity)>,
}

/// Reasons why no credential matches a certificate; for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("no credential matches the certificate")]
    Unknown,
    #[error("the certificate, or one of its issuers, has expired or is not valid yet")]
    Time,
    #[error("the certificate's credential has expired")]
    Expired,
}

impl ClientCertificate {
    /// Parses the chain of a handshake. `None` for a certificate that cannot be parsed.
    pub fn proven(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let own = chain.first()?;
        let mut sum = Digest::default();
        sum.copy_from_slice(digest(&SHA256, own).as_ref());
        Some(Self {
            digest: sum,
            validity: Validity::of(own)?,
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
            last_search: ArcSwapOption::empty(),
        })
    }

    #[cfg(test)]
    pub(crate) fn with_digest(digest: Digest) -> Self {
        Self {
            digest,
            chain: Box::default(),
            validity: Validity::ALWAYS,
            last_search: ArcSwapOption::empty(),
        }
    }

    /// The credentials for this certificate that are valid at `now` (Unix seconds), each with the
    /// validity of the certificate: first the one for this very certificate, then those for an
    /// authority that issued it. There can be several. Any user may register a public certificate;
    /// this must neither give that user access nor lock out the owner of the certificate.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn credentials(
        &self,
        directory: &Directory,
        project: &Project,
        now: i64,
    ) -> Result<Vec<(Arc<Credential>, Validity)>, CertificateError> {
        let registered = self.exact_matches(directory, project);
        let registered = registered
            .into_iter()
            .map(|credential| (credential, self.validity));
        let search = self.search(directory, project, now);
        let mut known: Vec<_> = registered.chain(search.found.iter().cloned()).collect();
        let mut why = match (known.is_empty(), self.validity.contains(now)) {
            (true, true) => CertificateError::Unknown,
            _ => CertificateError::Time,
        };
        known.retain(|(credential, validity)| {
            let in_time = validity.contains(now);
            if in_time && credential.is_expired(now) {
                why = CertificateError::Expired;
            }
            in_time && !credential.is_expired(now)
        });
        if known.is_empty() {
            return Err(why);
        }
        Ok(known)
    }

    /// The credentials for this very certificate: those of the project's members, if one of them
    /// registered it. Users outside the project who registered it as well do not displace members.
    /// If only such users registered it, the credential of one of them determines the reason of the
    /// refusal.
    fn exact_matches(&self, directory: &Directory, project: &Project) -> Vec<Arc<Credential>> {
        let all = directory.certificates(&self.digest);
        let is_member = members_of(directory, project);
        let members = all.iter().filter(|one| is_member(&one.user_id));
        let members: Vec<_> = members.take(CANDIDATES).map(Arc::clone).collect();
        if members.is_empty() {
            return all.first().map(Arc::clone).into_iter().collect();
        }
        members
    }

    /// Searches the authorities of the project's members. Registrations by users outside the
    /// project cost a visitor nothing and displace no member.
    fn search(&self, directory: &Directory, project: &Project, now: i64) -> Arc<CredentialSearch> {
        let authorities = directory.authorities();
        let known = self.last_search.load_full();
        let is_current = |known: &Arc<CredentialSearch>| {
            Arc::ptr_eq(&known.authorities, &authorities) && known.project == project.id
        };
        if let Some(known) = known.filter(is_current) {
            return known;
        }
        let chain = Chain::read(&self.chain);
        let is_member = members_of(directory, project);
        let leads_to = |credential: &Arc<Credential>| match &credential.proof {
            CredentialMatcher::Authority(authority) if is_member(&credential.user_id) => {
                let validity = authority.vouches_for(chain.as_ref()?, now)?;
                Some((Arc::clone(credential), validity))
            }
            _ => None,
        };
        let found = authorities.iter().filter_map(leads_to).take(CANDIDATES);
        let search = Arc::new(CredentialSearch {
            found: found.collect(),
            authorities: Arc::clone(&authorities),
            project: Arc::clone(&project.id),
        });
        self.last_search.store(Some(Arc::clone(&search)));
        search
    }
}

/// Returns a predicate that is true for members of the project's workspace.
fn members_of(directory: &Directory, project: &Project) -> impl Fn(&str) -> bool {
    let state = project.state();
    move |user| {
        let workspace = state.workspace_id.as_deref().unwrap_or_default();
        let person = directory.person(user);
        person.is_some_and(|person| person.is_member(workspace))
    }
}

/// Limit of members' credentials for one certificate, of each kind. Usually there is one; there are
/// more only if several members registered the same certificate or authority.
const CANDIDATES: usize = 16;

//! One order: account, challenges, certificate. Its state on disk lets the next process continue.

mod account;

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Challenge, ChallengeHandle, ChallengeType,
    Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::crypto::CryptoProvider;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::chain::IssuedCertificate;
use crate::challenges::{Challenges, PendingAnswer, is_token};
use crate::dns_challenge::{DnsRecord, challenge_name};
use crate::error::{OrderError, printable};
use crate::http_client::{AuthorityClient, LONGEST_POLL};
use crate::settings::{ChallengeKind, KeyType, Settings, WallClock};
use crate::store::{OrderLock, StateFolder};

pub(crate) use self::account::{account_url, existing_account};

/// The certificate on disk: chain and key in one file, so that both are replaced at once.
#[derive(Deserialize, Serialize)]
pub(crate) struct CertificateFile {
    pub(crate) directory: String,
    pub(crate) names: Vec<String>,
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// An unfinished order, with the key of its certificate.
#[derive(Deserialize, Serialize)]
struct OrderFile {
    directory: String,
    names: Vec<String>,
    url: String,
    key: String,
}

pub(crate) const CERTIFICATE_FILE: &str = "certificate.json";
const ORDER_FILE: &str = "order.json";

/// One attempt to get a certificate, by the holder of the lock.
pub(crate) struct OrderAttempt<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) folder: &'a StateFolder,
    pub(crate) lock: &'a OrderLock,
    pub(crate) challenges: &'a Arc<Challenges>,
    pub(crate) provider: &'a Arc<CryptoProvider>,
    pub(crate) client: &'a AuthorityClient,
    pub(crate) now: &'a WallClock,
    /// Consecutive failures before this attempt. Each one selects the next challenge.
    pub(crate) failures: u32,
}

/// Answers to the challenges of one order.
#[derive(Default)]
struct OrderAnswers {
    served: Vec<PendingAnswer>,
    records: Vec<DnsRecord>,
    /// The challenge of each authorization, in their order; `None` if it is valid already.
    chosen: Vec<Option<ChallengeKind>>,
}

impl OrderAttempt<'_> {
    /// Gets a certificate and stores it. `replaces` is the certificate that it renews.
    ///
    /// # Errors
    /// [`OrderError`]; nothing was replaced.
    pub(crate) async fn run(
        &self,
        replaces: Option<CertificateIdentifier<'_>>,
    ) -> Result<IssuedCertificate, OrderError> {
        let account = self.account().await?;
        self.run_for(&account, replaces).await
    }

    /// The same with the account in another folder, which several certificates share. `None` while
    /// another order or process registers the account.
    ///
    /// # Errors
    /// [`OrderError`]; nothing was replaced.
    pub(crate) async fn run_with_account_of(
        &self,
        folder: &StateFolder,
        replaces: Option<CertificateIdentifier<'_>>,
    ) -> Result<Option<IssuedCertificate>, OrderError> {
        let Some(account) = self.account_of(folder).await? else {
            return Ok(None);
        };
        self.run_for(&account, replaces).await.map(Some)
    }

    async fn run_for(
        &self,
        account: &Account,
        replaces: Option<CertificateIdentifier<'_>>,
    ) -> Result<IssuedCertificate, OrderError> {
        // Before the order: the authority reads it.
        if let Some(provider) = &self.settings.dns {
            provider.set_account(account.id());
        }
        let (mut order, key) = match self.unfinished(account).await? {
            Some(unfinished) => unfinished,
            None => self.place(account, replaces).await?,
        };
        match self.complete(&mut order, &key).await {
            Ok(issued) => {
                self.remove(ORDER_FILE)?;
                Ok(issued)
            }
            Err(error) => {
                if self.is_order_over(&error) {
                    self.remove(ORDER_FILE)?;
                }
                Err(error)
            }
        }
    }

    /// Returns true if the next attempt places another order after this failure.
    fn is_order_over(&self, error: &OrderError) -> bool {
        let failures = self.failures.saturating_add(1);
        failures.is_multiple_of(error.attempts_per_order())
    }

    /// The order that an earlier attempt stored, unless it has no further use.
    fn stored_order(&self) -> Result<Option<OrderFile>, OrderError> {
        let certificate = stored::<CertificateFile>(self.folder, CERTIFICATE_FILE)?;
        let is_useful = |file: &OrderFile| {
            // A process that was killed at the end of an order has not removed it.
            let is_finished = certificate.as_ref().is_some_and(|it| it.key == file.key);
            // Without an address the process ended before the authority had responded.
            !is_finished
                && !file.url.is_empty()
                && file.directory == self.settings.directory
                && file.names == self.settings.names
        };
        Ok(stored::<OrderFile>(self.folder, ORDER_FILE)?.filter(is_useful))
    }

    /// The order that an earlier attempt did not finish, with its key.
    async fn unfinished(&self, account: &Account) -> Result<Option<(Order, KeyPair)>, OrderError> {
        if let Some(file) = self.stored_order()?
            && let Ok(key) = KeyPair::from_pem(&file.key)
        {
            match account.order(file.url).await {
                Ok(mut order) => {
                    if order.state().status != OrderStatus::Invalid {
                        info!("an unfinished order is continued");
                        return Ok(Some((order, key)));
                    }
                }
                Err(error) => {
                    let error = OrderError::from(error);
                    // Otherwise it has expired, or belongs to another account.
                    if !self.is_order_over(&error) {
                        return Err(error);
                    }
                }
            }
        }
        self.remove(ORDER_FILE)?;
        Ok(None)
    }

    /// Places an order, and stores its address and key before anything else.
    async fn place(
        &self,
        account: &Account,
        replaces: Option<CertificateIdentifier<'_>>,
    ) -> Result<(Order, KeyPair), OrderError> {
        let profile = self.profile(account)?;
        let key = new_key(self.settings.key_type)?;
        let names = self.settings.names.iter();
        let identifiers: Vec<_> = names.map(|name| Identifier::Dns(name.clone())).collect();
        let mut order = OrderFile {
            directory: self.settings.directory.clone(),
            names: self.settings.names.clone(),
            url: String::new(),
            key: key.serialize_pem(),
        };
        // A disk that is full fails here, and not after the authority has counted the order.
        self.store(ORDER_FILE, &order)?;
        info!(names = ?self.settings.names, "a certificate is ordered");
        let new_order = || {
            let new = NewOrder::new(&identifiers);
            match profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        let mut placed = match replaces {
            Some(replaces) => account.new_order(&new_order().replaces(replaces)).await,
            None => account.new_order(&new_order()).await,
        };
        if placed.as_ref().is_err_and(concerns_replacement) {
            placed = account.new_order(&new_order()).await;
        }
        let placed = placed?;
        placed.url().clone_into(&mut order.url);
        self.store(ORDER_FILE, &order)?;
        Ok((placed, key))
    }

    /// The configured profile. An authority that does not have it may ignore it, and issue another
    /// certificate than the operator wants: no order is placed there.
    fn profile(&self, account: &Account) -> Result<Option<&str>, OrderError> {
        let Some(wanted) = self.settings.profile.as_deref() else {
            return Ok(None);
        };
        let mut offered: Vec<_> = account.profiles().map(|profile| profile.name).collect();
        if offered.contains(&wanted) {
            return Ok(Some(wanted));
        }
        offered.sort_unstable();
        Err(OrderError::Profile {
            wanted: wanted.to_owned(),
            offered: printable(&offered.join(", ")),
        })
    }

    /// Continues an order from its current state to the stored certificate.
    async fn complete(
        &self,
        order: &mut Order,
        key: &KeyPair,
    ) -> Result<IssuedCertificate, OrderError> {
        if order.state().status == OrderStatus::Pending {
            self.authorize(order).await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = signing_request(&self.settings.names, key)?;
            order.finalize_csr(&request).await?;
        }
        let chain = order.poll_certificate(&POLLS).await?;
        let key = key.serialize_pem();
        let names = &self.settings.names;
        let issued = IssuedCertificate::check(&chain, &key, names, (self.now)(), self.provider)?;
        let file = CertificateFile {
            directory: self.settings.directory.clone(),
            names: names.clone(),
            chain,
            key,
        };
        self.store(CERTIFICATE_FILE, &file)?;
        Ok(issued)
    }

    /// Answers the challenges until the order is ready, and removes the answers again.
    async fn authorize(&self, order: &mut Order) -> Result<(), OrderError> {
        let mut answers = OrderAnswers::default();
        let validated = self.validate(order, &mut answers).await;
        if let Some(provider) = &self.settings.dns {
            for record in &answers.records {
                if let Err(error) = provider.clean_up(record, (self.now)()).await {
                    warn!(%error, record = record.name, "a DNS record was not removed");
                }
            }
        }
        validated
    }

    async fn validate(
        &self,
        order: &mut Order,
        answers: &mut OrderAnswers,
    ) -> Result<(), OrderError> {
        self.answer(order, answers).await?;
        if let Some(provider) = self
            .settings
            .dns
            .as_ref()
            .filter(|_| !answers.records.is_empty())
        {
            tokio::time::sleep(provider.propagation()).await;
        }
        let mut authorizations = order.authorizations();
        let mut chosen = answers.chosen.iter();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let Some(Some(kind)) = chosen.next() else {
                continue;
            };
            if let Some(mut challenge) = authorization.challenge(challenge_type(*kind)) {
                challenge.set_ready().await?;
            }
        }
        match order.poll_ready(&POLLS).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(refusal(order, "the order is invalid".to_owned()).await),
            Err(Error::Api(problem)) => Err(refusal(order, printable(&problem.to_string())).await),
            Err(error) => Err(error.into()),
        }
    }

    /// Serves an answer to one challenge of each pending authorization.
    async fn answer(
        &self,
        order: &mut Order,
        answers: &mut OrderAnswers,
    ) -> Result<(), OrderError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if answers.chosen.len() >= self.settings.names.len() {
                let problem = "it has more authorizations than names".to_owned();
                return Err(OrderError::Order(problem));
            }
            match authorization.status {
                AuthorizationStatus::Valid => {
                    answers.chosen.push(None);
                    continue;
                }
                AuthorizationStatus::Pending => {}
                status => {
                    let problem = format!("an authorization is {status:?}");
                    return Err(OrderError::Order(problem));
                }
            }
            let (name, base, is_wildcard) = {
                let identifier = authorization.identifier();
                let Identifier::Dns(base) = identifier.identifier else {
                    return Err(OrderError::Challenge(printable(&identifier.to_string())));
                };
                (identifier.to_string(), base.clone(), identifier.wildcard)
            };
            // An authority must not choose names whose answers the listeners serve.
            let kind = Some(&name)
                .filter(|name| self.settings.names.contains(name))
                .and_then(|_| self.choose(is_wildcard, &authorization.challenges));
            let Some(kind) = kind else {
                return Err(OrderError::Challenge(printable(&name)));
            };
            let Some(challenge) = authorization.challenge(challenge_type(kind)) else {
                return Err(OrderError::Challenge(name));
            };
            self.serve(kind, &challenge, &base, answers).await?;
            answers.chosen.push(Some(kind));
        }
        Ok(())
    }

    /// Serves the answer to one challenge. `base` is the name without a wildcard.
    async fn serve(
        &self,
        kind: ChallengeKind,
        challenge: &ChallengeHandle<'_>,
        base: &str,
        answers: &mut OrderAnswers,
    ) -> Result<(), OrderError> {
        let token = &challenge.token;
        if !is_token(token) {
            let problem = "a token has invalid characters".to_owned();
            return Err(OrderError::Order(problem));
        }
        let answer = challenge.key_authorization();
        match kind {
            ChallengeKind::Http01 => {
                let (token, answer) = (token.clone(), answer.as_str().to_owned());
                let served = self.challenges.answer_http(token, answer);
                answers.served.push(served);
            }
            ChallengeKind::TlsAlpn01 => {
                let (digest, provider) = (answer.digest(), self.provider);
                let served = self
                    .challenges
                    .answer_tls(base, digest.as_ref(), provider)?;
                answers.served.push(served);
            }
            ChallengeKind::Dns01 => {
                let alias = self.settings.challenge_alias.clone();
                let record = DnsRecord {
                    name: alias.unwrap_or_else(|| challenge_name(base)),
                    value: answer.dns_value(),
                };
                self.publish(record, answers).await?;
            }
        }
        Ok(())
    }

    async fn publish(
        &self,
        record: DnsRecord,
        answers: &mut OrderAnswers,
    ) -> Result<(), OrderError> {
        let Some(provider) = &self.settings.dns else {
            return Err(OrderError::Challenge(record.name));
        };
        let published = provider.present(&record, (self.now)()).await;
        // After a failure the record may be published.
        answers.records.push(record);
        published
    }

    /// The challenge for an authorization. After a failure the next configured one is preferred.
    fn choose(&self, is_wildcard: bool, offered: &[Challenge]) -> Option<ChallengeKind> {
        let wildcard = [ChallengeKind::Dns01];
        let kinds = if is_wildcard {
            &wildcard[..]
        } else {
            &self.settings.challenges
        };
        let first = usize::try_from(self.failures).unwrap_or_default() % kinds.len().max(1);
        let preferred = kinds.iter().cycle().skip(first).take(kinds.len());
        preferred.copied().find(|kind| {
            let wanted = challenge_type(*kind);
            offered.iter().any(|challenge| challenge.r#type == wanted)
        })
    }

    fn store(&self, name: &str, value: &impl Serialize) -> Result<(), OrderError> {
        let bytes = serde_json::to_vec(value).map_err(OrderError::internal)?;
        let written = self.folder.write(self.lock, name, &bytes);
        written.map_err(OrderError::state(&self.folder.path().join(name)))
    }

    fn remove(&self, name: &str) -> Result<(), OrderError> {
        let removed = self.folder.remove(self.lock, name);
        removed.map_err(OrderError::state(&self.folder.path().join(name)))
    }
}

/// A file of the state directory. One that cannot be parsed counts as missing.
pub(crate) fn stored<T: serde::de::DeserializeOwned>(
    folder: &StateFolder,
    name: &str,
) -> Result<Option<T>, OrderError> {
    let path = folder.path().join(name);
    let bytes = folder.read(name).map_err(OrderError::state(&path))?;
    let parsed = bytes.map(|bytes| serde_json::from_slice(&bytes));
    let Ok(parsed) = parsed.transpose() else {
        warn!(path = %path.display(), "the file is damaged and not used");
        return Ok(None);
    };
    Ok(parsed)
}

/// Returns true if an authority refuses only the reference to the previous certificate, which it
/// does not have or has replaced already (RFC 9773 section 5).
fn concerns_replacement(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            ["alreadyReplaced", "malformed", "notFound", "unauthorized"]
                .iter()
                .any(|kind_without_prefix| kind.ends_with(kind_without_prefix))
        }
        _ => false,
    }
}

/// The reason of a failed order: that of its first failed challenge, else `detail`.
async fn refusal(order: &mut Order, detail: String) -> OrderError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        for challenge in &authorization.challenges {
            let kinds = [
                ChallengeKind::Http01,
                ChallengeKind::TlsAlpn01,
                ChallengeKind::Dns01,
            ];
            let kind = kinds
                .into_iter()
                .find(|kind| challenge_type(*kind) == challenge.r#type);
            if let (Some(problem), Some(kind)) = (&challenge.error, kind) {
                return OrderError::Validation {
                    name: printable(&authorization.identifier().to_string()),
                    challenge: kind.name(),
                    detail: printable(&problem.to_string()),
                };
            }
        }
    }
    let kind = "orderInvalid".to_owned();
    OrderError::Refused { kind, detail }
}

fn challenge_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns01 => ChallengeType::Dns01,
    }
}

fn new_key(kind: KeyType) -> Result<KeyPair, OrderError> {
    let algorithm = match kind {
        KeyType::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyType::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
    };
    KeyPair::generate_for(algorithm).map_err(OrderError::internal)
}

fn signing_request(names: &[String], key: &KeyPair) -> Result<Vec<u8>, OrderError> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(OrderError::internal)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key);
    Ok(request.map_err(OrderError::internal)?.der().to_vec())
}

const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(LONGEST_POLL);

#[cfg(test)]
mod tests;

//! Signing secrets. The database has them encrypted and bound to their webhook.

use credentials::webhook::WebhookSecret;
use jiff::Timestamp;
use store::SealedBytes;
use store::webhooks::Webhook;
use types::id::WebhookId;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::keys::Seal;
use crate::runtime::random;

/// Draws a new secret.
pub(super) fn draw() -> HandlerResult<WebhookSecret> {
    let drawn = WebhookSecret::draw(&random::bytes()?);
    drawn.ok_or_else(|| Problem::internal().into())
}

/// The encrypted secret, for the database.
pub(super) fn sealed(
    app: &App,
    id: WebhookId,
    secret: &WebhookSecret,
) -> HandlerResult<SealedBytes> {
    let sealed = webhook_seal(app)?.seal(id.as_str(), secret.expose().as_bytes())?;
    Ok(SealedBytes(sealed))
}

/// The secrets that currently sign: the present one first, then the previous one during the
/// overlap.
///
/// # Errors
/// A secret cannot be decrypted because the platform's key was changed.
pub(super) fn active_secrets(
    app: &App,
    webhook: &Webhook,
    now: Timestamp,
) -> HandlerResult<Vec<WebhookSecret>> {
    let seal = webhook_seal(app)?;
    let overlaps = webhook
        .previous_secret_expires_at
        .is_some_and(|end| now < end);
    let previous = webhook.previous_sealed_secret.as_ref().filter(|_| overlaps);
    [Some(&webhook.sealed_secret), previous]
        .into_iter()
        .flatten()
        .map(|SealedBytes(sealed)| {
            let opened = seal.open(webhook.id.as_str(), sealed);
            let text = opened
                .as_ref()
                .and_then(|text| std::str::from_utf8(text).ok());
            text.and_then(WebhookSecret::parse).ok_or_else(|| {
                tracing::error!(
                    webhook.id = %webhook.id,
                    "a signing secret cannot be decrypted: was the platform's key changed?"
                );
                Problem::internal().into()
            })
        })
        .collect()
}

fn webhook_seal(app: &App) -> HandlerResult<Seal> {
    Seal::new(&app.keys.derive("webhook-secrets")?)
}

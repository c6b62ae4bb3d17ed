//! Events in the form of webhooks, with the types, body and signatures that the platform sends.

use api::control::webhooks::WebhookEventType;
use client::api::Event;
use credentials::webhook::{Message, WebhookSecret, headers};
use jiff::Timestamp;
use serde_json::Value;
use types::event::EventType;

use crate::failure::Failure;
use crate::output;
use crate::process::random;

/// The data of one event that is sent.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) event_id: String,
    pub(super) event_type: String,
    pub(super) delivery_id: String,
    /// The event as received from the stream. Exactly these bytes are signed.
    pub(super) body: String,
}

impl Post {
    pub(super) fn of(event: &Event) -> Result<Self, Failure> {
        let text = |name: &str| event.value.get(name).and_then(Value::as_str);
        let mut body = event.text.clone();
        let event_id = if let Some(id) = text("id") {
            id.to_owned()
        } else {
            // Receivers recognise a repeated event by its id, so each event needs one.
            let id = format!("evt_cli_{}", random::hex::<12>()?);
            let mut with_id = event.value.clone();
            if let Some(members) = with_id.as_object_mut() {
                members.insert("id".to_owned(), id.clone().into());
            }
            body = with_id.to_string();
            id
        };
        if body.contains('\n') {
            body = event.value.to_string();
        }
        Ok(Self {
            event_id,
            event_type: text("type").unwrap_or_default().to_owned(),
            delivery_id: format!("cli_del_{}", random::hex::<12>()?),
            body,
        })
    }
}

/// Signs requests like one webhook endpoint of the platform.
#[derive(Debug)]
pub(super) struct Signer {
    secret: WebhookSecret,
    webhook_id: String,
    compat: bool,
}

impl Signer {
    /// Uses this secret, or a new one that is printed.
    pub(super) fn new(secret: Option<WebhookSecret>, compat: bool) -> Result<Self, Failure> {
        let secret = if let Some(secret) = secret {
            secret
        } else {
            let drawn = WebhookSecret::draw(&random::bytes()?)
                .ok_or_else(|| Failure::usage("the operating system provides no random numbers"))?;
            output::message(&format!("signing with {}", drawn.expose()));
            drawn
        };
        Ok(Self {
            secret,
            webhook_id: format!("cli_we_{}", random::hex::<12>()?),
            compat,
        })
    }

    /// The headers of a request that is sent now.
    pub(super) fn sign(&self, post: &Post) -> Vec<(&'static str, String)> {
        let message = Message {
            event_id: &post.event_id,
            event_type: &post.event_type,
            webhook_id: &self.webhook_id,
            delivery_id: &post.delivery_id,
            sent_at: Timestamp::now().as_second(),
            body: post.body.as_bytes(),
        };
        headers(&message, std::slice::from_ref(&self.secret), self.compat)
    }
}

/// True if webhooks are sent for events of this type.
pub(super) fn is_delivered(kind: EventType) -> bool {
    WebhookEventType::of(kind).is_some()
}

/// Parses a signing secret.
pub(super) fn secret(text: &str) -> Result<WebhookSecret, String> {
    // The message does not repeat the text, which may be a truncated secret.
    WebhookSecret::parse(text.trim())
        .ok_or_else(|| "a signing secret is `whsec_` followed by base64".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_without_an_id_gets_one() {
        let value = json!({"type": "tunnel.created", "object": {}});
        let event = Event::from(value);
        let post = Post::of(&event).unwrap();
        assert!(post.event_id.starts_with("evt_cli_"));
        let body: Value = serde_json::from_str(&post.body).unwrap();
        assert_eq!(body["id"], post.event_id);
    }

    #[test]
    fn webhooks_are_sent_for_created_and_deleted_objects_and_domains() {
        let sent = EventType::ALL.iter().filter(|kind| is_delivered(**kind));
        let sent: Vec<_> = sent.map(|kind| kind.as_str()).collect();
        assert_eq!(
            sent,
            [
                "client.created",
                "client.deleted",
                "tunnel.created",
                "tunnel.deleted",
                "domain.created",
                "domain.verified",
                "domain.warned",
                "domain.suspended",
                "domain.released",
                "domain.deleted",
                "domain.certificate_uploaded",
                "domain.certificate_removed"
            ]
        );
    }
}

//! `--inspect`: what passes is recorded, and shown to the person at this machine.

use std::{
    io::{IsTerminal as _, stdout},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use client::{
    Properties, Status, Target,
    properties::Protocol,
    tap::{Opener, Tap},
};
use inspector::{About, Inspector, InspectorServer, RecordingMode, Settings, Subscription, serve};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{failure::Failure, output, output::Format, random};

/// What `--inspect` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inspect {
    /// At the usual place, or at this one.
    On(Option<SocketAddr>),
    Off,
}

impl FromStr for Inspect {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => return Ok(Self::On(None)),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self::On(Some((Ipv4Addr::LOCALHOST, port).into())));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::On(Some((address, inspector::serve::PORT).into())));
        }
        text.parse()
            .map(|address| Self::On(Some(address)))
            .map_err(|_| "it is an address such as 127.0.0.1:4040, a port, or off")
    }
}

/// The inspector of one tunnel, where there is one.
pub(crate) struct Inspection {
    on: Option<InspectorOptions>,
}

struct InspectorOptions {
    inspector: Inspector,
    serving: InspectorServer,
    to: Target,
    /// Where the edge speaks TLS with the service.
    opener: Option<Opener>,
    about: About,
}

impl Inspection {
    /// Starts it where it was asked for, or where there is somebody to look and something to see.
    /// `named` is how the person has written `to`.
    pub(crate) async fn start(
        wanted: Option<Inspect>,
        format: Format,
        to: &Target,
        named: &str,
        properties: &Properties,
    ) -> Result<Self, Failure> {
        let unseen = unseen(properties);
        let address = match wanted {
            Some(Inspect::Off) => return Ok(Self { on: None }),
            Some(Inspect::On(address)) => address,
            None => {
                let somebody = format == Format::Text && stdout().is_terminal();
                if !somebody || unseen.is_some() {
                    return Ok(Self { on: None });
                }
                None
            }
        };
        if let Some(unseen) = unseen {
            output::message(&format!("the inspector has nothing to show: {unseen}"));
        }
        if address.is_some_and(|address| !address.ip().is_loopback()) {
            output::message(
                "the inspector listens for other machines, without TLS: whoever has its address \
                 with the token sees the traffic",
            );
        }
        let opener = match properties.upstream_tls {
            Some(true) if unseen.is_none() => Some(opener()?),
            _ => None,
        };
        let inspector = Inspector::new(RecordingMode::Always);
        let about = About {
            forwarding: None,
            target: named.to_owned(),
            unseen: unseen.map(ToOwned::to_owned),
        };
        inspector.describe(about.clone());
        let settings = Settings {
            address,
            token: random::hex::<16>()?,
            version: env!("CARGO_PKG_VERSION"),
        };
        let serving = serve(inspector.clone(), settings).await.map_err(|error| {
            let at = address.map_or_else(|| "loopback".to_owned(), |at| at.to_string());
            Failure::of(&format!("the inspector cannot listen on {at}"), error).hint(
                "give another address with --inspect=ADDRESS, or leave it out with --inspect=off",
            )
        })?;
        Ok(Self {
            on: Some(InspectorOptions {
                inspector,
                serving,
                to: to.clone(),
                opener,
                about,
            }),
        })
    }

    /// What the agent is given.
    pub(crate) fn tap(&self) -> Option<Arc<dyn Tap>> {
        let on = self.on.as_ref().filter(|on| on.about.unseen.is_none())?;
        let tap = on.inspector.tap_opened(on.to.clone(), on.opener.clone());
        Some(tap)
    }

    /// The requests, for somebody else who shows them.
    pub(crate) fn subscribe(&self) -> Option<Subscription> {
        let on = self.on.as_ref().filter(|on| on.about.unseen.is_none())?;
        Some(on.inspector.subscribe())
    }

    /// What a person opens.
    pub(crate) fn url(&self) -> Option<String> {
        self.on.as_ref().map(|on| on.serving.url())
    }

    /// Tells the page where the tunnel stands.
    pub(crate) fn status(&self, status: &Status) {
        let Some(on) = &self.on else {
            return;
        };
        let forwarding = match status {
            Status::Online(online) => Some(online.forwarding.clone()),
            _ => None,
        };
        on.inspector.describe(About {
            forwarding,
            ..on.about.clone()
        });
    }

    /// Ends it, after the last stream.
    pub(crate) async fn end(self) {
        if let Some(on) = self.on {
            on.serving.shutdown().await;
        }
    }
}

/// Why nothing of a tunnel's streams can be read, where that is so.
fn unseen(properties: &Properties) -> Option<&'static str> {
    if properties.protocol != Some(Protocol::Http) {
        return Some("only http tunnels are inspected");
    }
    let private = properties.publish == Some(false);
    (private && properties.upstream_tls == Some(true)).then_some(
        "whoever dials a private tunnel speaks TLS with the service, so it is not inspected",
    )
}

/// What the edge sees of this agent instead of the service: a key of this run, of nobody's name,
/// since the edge asks for none.
fn opener() -> Result<Opener, Failure> {
    let what = "the inspector cannot open TLS";
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .map_err(|error| Failure::of(what, error))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Opener::new(made.cert.der().clone(), PrivateKeyDer::Pkcs8(key))
        .map_err(|error| Failure::of(what, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_inspector_is_written_in_few_ways() {
        let at = |text: &str| Ok(Inspect::On(Some(text.parse().unwrap())));
        for (text, inspect) in [
            ("on", Ok(Inspect::On(None))),
            ("off", Ok(Inspect::Off)),
            ("4041", at("127.0.0.1:4041")),
            ("0", at("127.0.0.1:0")),
            ("0.0.0.0:8080", at("0.0.0.0:8080")),
            ("[::1]:8080", at("[::1]:8080")),
            ("::1", at("[::1]:4040")),
        ] {
            assert_eq!(text.parse::<Inspect>(), inspect, "{text}");
        }
        for text in ["", "yes", "localhost:4040", "70000"] {
            assert!(text.parse::<Inspect>().is_err(), "{text}");
        }
    }
}

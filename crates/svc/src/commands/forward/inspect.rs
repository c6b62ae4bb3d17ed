//! `--inspect`: records requests and shows them in a local web page.

use std::{
    io::{IsTerminal as _, stdout},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use client::{
    Properties, Status, Target,
    properties::Protocol,
    tap::{Tap, TlsInterceptor},
};
use inspector::{
    Inspector, InspectorInfo, InspectorServer, RecordingMode, Settings, Subscription, Summary,
    Update, serve,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::failure::Failure;
use crate::output;
use crate::output::Format;
use crate::process::random;

/// Value of `--inspect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inspect {
    /// Enabled, on the default address or on this one.
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
            .map_err(|_| "use an address such as 127.0.0.1:4040, a port, or off")
    }
}

/// The inspector of a tunnel, if it has one.
pub(crate) struct Inspection {
    running: Option<RunningInspector>,
}

struct RunningInspector {
    inspector: Inspector,
    serving: InspectorServer,
    to: Target,
    /// Decrypts the TLS that the edge uses to the service.
    interceptor: Option<TlsInterceptor>,
    info: InspectorInfo,
}

impl Inspection {
    /// Starts the inspector if it was requested, or if there is a terminal and the traffic can be
    /// inspected. `named` is the target as the user wrote it.
    pub(crate) async fn start(
        wanted: Option<Inspect>,
        format: Format,
        to: &Target,
        named: &str,
        properties: &Properties,
    ) -> Result<Self, Failure> {
        let not_inspectable = inspection_obstacle(properties);
        let address = match wanted {
            Some(Inspect::Off) => return Ok(Self { running: None }),
            Some(Inspect::On(address)) => address,
            None => {
                let has_viewer = format == Format::Text && stdout().is_terminal();
                if !has_viewer || not_inspectable.is_some() {
                    return Ok(Self { running: None });
                }
                None
            }
        };
        if let Some(not_inspectable) = not_inspectable {
            output::message(&format!(
                "the inspector cannot show this tunnel: {not_inspectable}"
            ));
        }
        if address.is_some_and(|address| !address.ip().is_loopback()) {
            output::message(
                "the inspector accepts connections from other machines without TLS: anyone with \
                 its address and token can see the traffic",
            );
        }
        let opener = match properties.upstream_tls {
            Some(true) if not_inspectable.is_none() => Some(opener()?),
            _ => None,
        };
        let inspector = Inspector::new(RecordingMode::Always);
        let about = InspectorInfo {
            forwarding: None,
            target: named.to_owned(),
            unseen: not_inspectable.map(ToOwned::to_owned),
        };
        inspector.set_info(about.clone());
        let settings = Settings {
            address,
            token: random::hex::<16>()?,
            version: env!("CARGO_PKG_VERSION"),
        };
        let serving = serve(inspector.clone(), settings).await.map_err(|error| {
            let at = address.map_or_else(|| "loopback".to_owned(), |at| at.to_string());
            Failure::from_error(&format!("the inspector cannot listen on {at}"), error).hint(
                "give another address with --inspect=ADDRESS, or turn it off with --inspect=off",
            )
        })?;
        Ok(Self {
            running: Some(RunningInspector {
                inspector,
                serving,
                to: to.clone(),
                interceptor: opener,
                info: about,
            }),
        })
    }

    /// The tap for the agent.
    pub(crate) fn tap(&self) -> Option<Arc<dyn Tap>> {
        let on = self
            .running
            .as_ref()
            .filter(|on| on.info.unseen.is_none())?;
        let tap = on
            .inspector
            .tap_with_opener(on.to.clone(), on.interceptor.clone());
        Some(tap)
    }

    /// The recorded requests, for another display.
    pub(crate) fn subscribe(&self) -> Option<Subscription> {
        let on = self
            .running
            .as_ref()
            .filter(|on| on.info.unseen.is_none())?;
        Some(on.inspector.subscribe())
    }

    /// The URL of the page.
    pub(crate) fn url(&self) -> Option<String> {
        self.running.as_ref().map(|on| on.serving.url())
    }

    /// Shows the tunnel's status on the page.
    pub(crate) fn status(&self, status: &Status) {
        let Some(on) = &self.running else {
            return;
        };
        let forwarding = match status {
            Status::Online(online) => Some(online.forwarding.clone()),
            _ => None,
        };
        on.inspector.set_info(InspectorInfo {
            forwarding,
            ..on.info.clone()
        });
    }

    /// Stops the inspector after the last stream.
    pub(crate) async fn end(self) {
        if let Some(on) = self.running {
            on.serving.shutdown().await;
        }
    }
}

/// The next request that has ended. Pending without a subscription. Cancel safe.
pub(crate) async fn next_ended(requests: &mut Option<Subscription>) -> Summary {
    while let Some(inspected) = requests {
        match inspected.next().await {
            Some(Update::Exchange(summary)) if summary.duration.is_some() => return summary,
            // Requests that a slow reader of the output missed are not reported later.
            Some(_) => {}
            None => *requests = None,
        }
    }
    std::future::pending().await
}

/// Reason why the streams of a tunnel cannot be inspected, if there is one.
fn inspection_obstacle(properties: &Properties) -> Option<&'static str> {
    if properties.protocol != Some(Protocol::Http) {
        return Some("only http tunnels are inspected");
    }
    let private = properties.publish == Some(false);
    (private && properties.upstream_tls == Some(true)).then_some(
        "the dialling client uses TLS end to end with the service of a private tunnel, so it is \
         not inspected",
    )
}

/// The TLS identity that the edge sees instead of the service's. Its key is made for this run, and
/// its name does not matter because the edge does not check it.
fn opener() -> Result<TlsInterceptor, Failure> {
    let what = "the inspector cannot set up TLS";
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .map_err(|error| Failure::from_error(what, error))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    TlsInterceptor::new(made.cert.der().clone(), PrivateKeyDer::Pkcs8(key))
        .map_err(|error| Failure::from_error(what, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inspector_addresses_are_parsed() {
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

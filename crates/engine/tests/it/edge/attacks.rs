//! The table of attacks: harmful input from a visitor, an agent or a service. Each row states the
//! outcome and whether a service receives anything, and checks that the other tunnels of the engine
//! keep working.

mod agents;
mod frames;
mod http1;
mod http2;
mod http2_idle;
mod mass_reconnect;
mod names;
mod paths;
mod queries;
mod slow;
mod stalled_peers;
mod tokens;
mod upstreams;

use testing::{TestEngine, TestTunnel, Upstream};

/// An engine with an attacked tunnel, and another tunnel that the attacker has no access to.
struct Site {
    engine: TestEngine,
    service: Upstream,
    tunnel: TestTunnel,
    bystander: TestTunnel,
    _bystanders_service: Upstream,
}

impl Site {
    async fn start() -> Self {
        Self::with("").await
    }

    /// Starts the engine with further configuration sections.
    async fn with(sections: &str) -> Self {
        let engine = TestEngine::start_with(sections).await;
        let (service, other) = (Upstream::http1().await, Upstream::http1().await);
        let tunnel = engine.publish(service.addr()).await;
        let bystander = engine.publish(other.addr()).await;
        Self {
            engine,
            service,
            tunnel,
            bystander,
            _bystanders_service: other,
        }
    }

    /// The host name of the attacked tunnel.
    fn host(&self) -> &str {
        self.tunnel.hostname()
    }

    /// Checks that the other tunnel works over both HTTP versions.
    async fn check_other_tunnel(&self) {
        let host = self.bystander.hostname();
        let mut http1 = self.engine.visitor().http1(host).await;
        assert_eq!(http1.get("/", host).await.status, 200);
        let mut h2 = self.engine.visitor().h2(host).await;
        assert_eq!(h2.get("/", host).await.status, 200);
    }

    /// Checks that the service received nothing, and that both tunnels work.
    async fn check_untouched(&self) {
        assert_eq!(self.service.accepted(), 0, "the service was contacted");
        self.check_other_tunnel().await;
        self.check_both_tunnels().await;
    }

    /// Checks that both tunnels work.
    async fn check_both_tunnels(&self) {
        self.check_other_tunnel().await;
        let host = self.host();
        let mut visitor = self.engine.visitor().http1(host).await;
        assert_eq!(visitor.get("/", host).await.json()["target"], "/");
    }
}

/// The failed rows of a table. A run reports all of them together.
#[derive(Default)]
struct Table {
    wrong: Vec<String>,
}

impl Table {
    /// Compares the outcome of a case with the expected one. The parts of the case are shortened in
    /// the report.
    fn row<C, T>(&mut self, case: impl IntoIterator<Item = C>, was: &T, expected: &T)
    where
        C: AsRef<str>,
        T: std::fmt::Debug + PartialEq,
    {
        if was != expected {
            let parts = case.into_iter();
            let parts: Vec<String> = parts
                .map(|part| part.as_ref().chars().take(100).collect())
                .collect();
            self.wrong
                .push(format!("{parts:?} is {was:?}, not {expected:?}"));
        }
    }

    /// Fails if any row had another outcome.
    #[track_caller]
    fn assert_no_failures(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

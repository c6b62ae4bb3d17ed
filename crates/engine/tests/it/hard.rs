//! The table of attacks: what a stranger, an agent or a service may send to do harm, row by row,
//! with what becomes of it, whether a service hears of it, and that the other tunnels of the engine
//! are served all the while.

mod agents;
mod frames;
mod herd;
mod http1;
mod http2;
mod names;
mod paths;
mod queries;
mod slow;
mod stuck;
mod tokens;
mod upstreams;

use testing::{TestEngine, TestTunnel, Upstream};

/// An engine with a tunnel that is attacked, and one that is none of the attacker's business.
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

    /// With further sections of the configuration.
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

    /// The name of the tunnel that is attacked.
    fn host(&self) -> &str {
        self.tunnel.hostname()
    }

    /// The other tunnel serves, over both versions.
    async fn serves_others(&self) {
        let host = self.bystander.hostname();
        let mut http1 = self.engine.visitor().http1(host).await;
        assert_eq!(http1.get("/", host).await.status, 200);
        let mut h2 = self.engine.visitor().h2(host).await;
        assert_eq!(h2.get("/", host).await.status, 200);
    }

    /// The service has not heard of anything, and everybody is served.
    async fn is_untouched(&self) {
        assert_eq!(self.service.accepted(), 0, "the service was contacted");
        self.serves_others().await;
        self.serves_all().await;
    }

    /// Everybody is served.
    async fn serves_all(&self) {
        self.serves_others().await;
        let host = self.host();
        let mut visitor = self.engine.visitor().http1(host).await;
        assert_eq!(visitor.get("/", host).await.json()["target"], "/");
    }
}

/// The rows of a table that turned out otherwise than they say: a run tells all of them at once.
#[derive(Default)]
struct Table {
    wrong: Vec<String>,
}

impl Table {
    /// Compares what became of a case, whose parts are told shortened.
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

    /// Fails unless all rows were as they say.
    #[track_caller]
    fn holds(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

//! Memory that visitors can cause: a program of its own, since the limit is that of a process.

#[cfg(test)]
mod slow_visitors {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use client::{Agent, Properties, Target};
    use h2::client::{ResponseFuture, SendRequest};
    use hyper::Request;
    use testing::{TestEngine, TestTunnel, Upstream, within};
    use transport::memory;

    /// The least that can be configured.
    const LIMIT: usize = 16 * 1024 * 1024;
    /// What streams that are to be given up may hold until their tasks have run.
    const LEAVING: usize = 2 * 1024 * 1024;
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 100;
    /// More than a lane takes of an answer.
    const ANSWER: usize = 300_000;

    /// A connection of a visitor who never takes a byte of a body.
    struct SlowVisitor {
        _sender: SendRequest<bytes::Bytes>,
        _answers: Vec<ResponseFuture>,
    }

    impl SlowVisitor {
        async fn connect(engine: &TestEngine, tunnel: &TestTunnel) -> Self {
            let host = tunnel.hostname();
            let config = engine.ca().client(&["h2"]);
            let stream = engine.visitor().connect(host, &config).await;
            let (mut sender, connection) = h2::client::Builder::new()
                .initial_window_size(0)
                .handshake(stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            let mut answers = Vec::new();
            for _ in 0..STREAMS {
                sender = within("room for a stream", sender.ready()).await.unwrap();
                let request = Request::get(format!("https://{host}/bytes/{ANSWER}"));
                let (answer, _) = sender
                    .send_request(request.body(()).unwrap(), true)
                    .unwrap();
                answers.push(answer);
            }
            Self {
                _sender: sender,
                _answers: answers,
            }
        }
    }

    /// Another visitor than the slow ones, at another address.
    const BYSTANDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    /// Asks as another visitor, whose answer is whole however many others read nothing.
    async fn ask(engine: &TestEngine, tunnel: &TestTunnel) {
        let visitor = engine.visitor().from(BYSTANDER);
        let mut visitor = visitor.h2(tunnel.hostname()).await;
        for len in [100, 100_000, 1_000_000] {
            let answer = visitor
                .get(&format!("/bytes/{len}"), tunnel.hostname())
                .await;
            assert_eq!((answer.status, answer.body.len()), (200, len));
            assert!(answer.whole);
        }
    }

    /// An engine and an agent in this process, and visitors that ask for much more than may be held
    /// and read none of it: what is held stays within the limit, and nobody else notices.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_that_visitors_do_not_read_have_a_limit() {
        // An agent that knows other lanes than the engine (`lane/1`) agrees on none: its streams
        // have standing connections alone.
        for lanes in [true, false] {
            stay_within_the_limit(lanes).await;
        }
    }

    async fn stay_within_the_limit(lanes: bool) {
        let engine = TestEngine::start_with("limits: {max_buffered_bytes: 16777216}").await;
        assert_eq!(memory::limit(), LIMIT);
        let service = Upstream::http1().await;
        let mut config = engine.agent_config();
        config.lanes = lanes;
        let agent = Agent::connect(config).await.unwrap();
        let target: Target = service.addr().to_string().parse().unwrap();
        let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
        let given_up = memory::given_up();
        ask(&engine, &tunnel).await;
        let mut slow = Vec::new();
        let mut most = 0;
        for _ in 0..CONNECTIONS {
            slow.push(SlowVisitor::connect(&engine, &tunnel).await);
            most = most.max(memory::held());
            ask(&engine, &tunnel).await;
        }
        // Each of them wants what was asked for, and holds 48 KiB at least: more than fits together.
        let wanted = CONNECTIONS * STREAMS * ANSWER;
        assert!(wanted > 6 * LIMIT && CONNECTIONS * STREAMS * 48 * 1024 > LIMIT);
        // Standing connections have room of the system's beside it, so that not all of them need any.
        let is_reached = || {
            let has_given_up = memory::given_up() > given_up;
            has_given_up || (!lanes && memory::held() > LIMIT / 4)
        };
        let reached = async {
            while !is_reached() {
                most = most.max(memory::held());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("much to be held", reached).await;
        ask(&engine, &tunnel).await;
        most = most.max(memory::held());
        assert!(most <= LIMIT + LEAVING, "{most} bytes were held");
        println!(
            "at most {most} bytes held, {} streams given up",
            memory::given_up() - given_up
        );
        // What they cost ends with them.
        drop(slow);
        let released = async {
            while memory::held() > LIMIT / 16 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("memory to be released", released).await;
    }
}

//! The memory that visitors can cause an engine to use. It is a separate program, because the limit
//! applies to a process.

#[cfg(test)]
mod slow_visitors {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use client::{Agent, Properties, Target};
    use h2::client::{ResponseFuture, SendRequest};
    use hyper::Request;
    use testing::{TestEngine, TestTunnel, Upstream, within};
    use transport::memory;

    /// The smallest configurable limit.
    const LIMIT: usize = 16 * 1024 * 1024;
    /// Bytes that aborted streams may occupy until their tasks have run.
    const LEAVING: usize = 2 * 1024 * 1024;
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 100;
    /// More than a lane carries of an answer.
    const ANSWER: usize = 300_000;

    /// A connection of a visitor that never reads a byte of a body.
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

    /// Address of a visitor that reads.
    const BYSTANDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    /// Sends a request as the other visitor. Its answer is complete, however many slow visitors
    /// there are.
    async fn ask(engine: &TestEngine, tunnel: &TestTunnel) {
        let visitor = engine.visitor().from(BYSTANDER);
        let mut visitor = visitor.h2(tunnel.hostname()).await;
        for len in [100, 100_000, 1_000_000] {
            let answer = visitor
                .get(&format!("/bytes/{len}"), tunnel.hostname())
                .await;
            assert_eq!((answer.status, answer.body.len()), (200, len));
            assert!(answer.is_complete);
        }
    }

    /// An engine, an agent, and visitors that request far more than the limit and read none of it.
    /// Memory use stays within the limit, and other visitors are not affected.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unread_bytes_of_visitors_have_a_limit() {
        // An agent with another lane version than the engine (`lane/1`) negotiates none. Its
        // streams use standing connections only.
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
        let given_up = memory::aborted_streams();
        ask(&engine, &tunnel).await;
        let mut slow = Vec::new();
        let mut most = 0;
        for _ in 0..CONNECTIONS {
            slow.push(SlowVisitor::connect(&engine, &tunnel).await);
            most = most.max(memory::buffered());
            ask(&engine, &tunnel).await;
        }
        // Each of them requests an answer and occupies at least 48 KiB, which together exceeds the
        // limit.
        let wanted = CONNECTIONS * STREAMS * ANSWER;
        assert!(wanted > 6 * LIMIT && CONNECTIONS * STREAMS * 48 * 1024 > LIMIT);
        // Standing connections have socket buffers as well, so not all streams need buffer memory.
        let is_reached = || {
            let has_given_up = memory::aborted_streams() > given_up;
            has_given_up || (!lanes && memory::buffered() > LIMIT / 4)
        };
        let reached = async {
            while !is_reached() {
                most = most.max(memory::buffered());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("much to be held", reached).await;
        ask(&engine, &tunnel).await;
        most = most.max(memory::buffered());
        assert!(most <= LIMIT + LEAVING, "{most} bytes were buffered");
        println!(
            "at most {most} bytes buffered, {} streams aborted",
            memory::aborted_streams() - given_up
        );
        // Their memory is released with them.
        drop(slow);
        let released = async {
            while memory::buffered() > LIMIT / 16 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("memory to be released", released).await;
    }
}

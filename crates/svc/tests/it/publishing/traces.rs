//! Requests that belong to a trace (W3C Trace Context).

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::installed::alone;
use crate::local_platform::up::visitor;
use crate::program::Home;

/// Reads one request head.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn the_lines_of_an_agent_name_the_trace_of_each_request() {
    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let args = ["forward", &port, "--inspect=0", "-o", "json"];
    let mut agent = home.start(&args);
    let online = agent.json().await;
    let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
    let valid = format!("00-{ID}-00f067aa0ba902b7-01");
    let zero = valid.replace(ID, &"0".repeat(32));
    for (parent, id) in [(&valid, Value::from(ID)), (&zero, Value::Null)] {
        let request = client.get(url.join("/orders").unwrap());
        let request = request.header("traceparent", parent);
        let request = request.header("tracestate", "rojo=1").send();
        let served = async {
            let (mut stream, _) = service.accept().await.unwrap();
            let head = head_of(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            head
        };
        let (answer, head) = tokio::join!(request, served);
        assert_eq!(answer.unwrap().status(), 200);
        assert!(
            head.contains(&format!("traceparent: {parent}\r\n")),
            "{head}"
        );
        assert!(head.contains("tracestate: rojo=1\r\n"), "{head}");
        let line = agent.json_where(|line| line["request"].is_object()).await;
        let request = &line["request"];
        assert_eq!(request["trace_id"], id, "{line}");
        assert_eq!(request["path"], "/orders");
        assert_eq!(request["status"], 200);
    }
    agent.terminate().await;
    up.stop().await;
}

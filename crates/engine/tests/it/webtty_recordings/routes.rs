//! Recordings over the Engine API.

use engine::live::LiveLimits;
use engine::webtty::Sessions;
use serde_json::{Value, json};

use super::*;
use crate::document::compare;
use crate::support::{TestApi, auth, pat, token};

const LOGS: &str = "webtty.logs.read-only";
const DELETE: &str = "webtty.logs.read-write";
const WATCH: &str = "webtty.sessions.read-only";

struct RecordingServer {
    place: TestStorage,
    terminals: Arc<Sessions>,
    api: TestApi,
}

impl RecordingServer {
    async fn start() -> Self {
        let place = TestStorage::new();
        let terminals = Arc::new(Sessions::new(place.open().await));
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&place.clock);
        let limits = LiveLimits::default();
        let api = TestApi::with_terminals(clock, limits, false, Arc::clone(&terminals)).await;
        Self {
            place,
            terminals,
            api,
        }
    }

    async fn made(&self, entries: Vec<Entry>) -> String {
        record_session(self.terminals.recorder(), &self.place.clock, entries)
            .await
            .to_string()
    }

    async fn send(&self, method: &str, claims: &Value, path: &str) -> reqwest::Response {
        let method = method.parse().unwrap();
        let request = self.api.http.request(method, self.api.url(path));
        request.bearer_auth(token(claims)).send().await.unwrap()
    }

    async fn events(&self, claims: &Value, id: &str, params: &Value) -> (u16, Value) {
        let url = self.api.url(&format!("/api/webtty/sessions/{id}/events"));
        let request = self.api.http.get(url).bearer_auth(token(claims));
        let response = request
            .query(&[("params", params.to_string())])
            .send()
            .await
            .unwrap();
        let (status, body) = (response.status().as_u16(), response.json().await.unwrap());
        let path = format!("/api/webtty/sessions/{id}/events");
        compare("GET", &path, status, &body);
        (status, body)
    }
}

impl RecordingServer {
    /// The answer to a query with these parameters: its status and its detail.
    async fn said(&self, path: &str, params: &str) -> (u16, String) {
        let request = self.api.get(path).query(&[("params", params)]);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        (
            status,
            body["detail"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

fn may(permissions: &[&str]) -> Value {
    auth(NOW, 3600, json!({"permissions": permissions}))
}

/// EN-8, WT-4: a caller that may read recordings gets input and output. A caller that may only
/// watch gets the other events, and any other caller gets nothing. Each page continues at the end
/// of the previous one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_have_payloads_for_readers_of_recordings() {
    let served = RecordingServer::start().await;
    let id = served.made(sample()).await;
    let (status, all) = served.events(&may(&[LOGS]), &id, &json!({})).await;
    let all = all.as_array().unwrap();
    assert_eq!((status, all.len()), (200, 10));
    assert_eq!(all[1]["payload_plaintext"], "JCA=");
    assert_eq!(all[0]["type"], "open");
    assert_eq!(
        all[0]["metadata"]["terminal_size"],
        json!({"row": 4, "col": 40})
    );
    assert_eq!(all[4]["metadata"]["masked"], true);
    assert_eq!(all[4]["payload_length"], 18);
    assert_eq!(all[4].get("payload_plaintext"), None);
    assert_eq!(all[9]["metadata"]["exit_code"], 7);
    assert_eq!(all[1]["prev_hash"], all[0]["hash"]);
    // The data that a hash covers is shown together with the hash, or neither is shown. See
    // `wt_4_a_hash_does_not_tell_…` of `tty`.
    let salts = all.iter().map(|event| event["salt"].as_str().unwrap());
    let salts: std::collections::HashSet<_> = salts.collect();
    assert_eq!(salts.len(), 10, "each record has its own salt");

    let (status, watched) = served.events(&may(&[WATCH]), &id, &json!({})).await;
    assert_eq!(status, 200);
    let watched = watched.as_array().unwrap();
    assert_eq!(watched.len(), 10);
    assert!(
        watched
            .iter()
            .all(|event| event.get("payload_plaintext").is_none())
    );
    assert!(watched.iter().all(|event| event.get("salt").is_none()));
    assert_eq!(watched[1]["hash"], all[1]["hash"]);
    assert_eq!(watched[7]["type"], "participant");

    let (status, refused) = served
        .events(&may(&["tunnels.resources.read-only"]), &id, &json!({}))
        .await;
    assert_eq!(
        (status, &refused["scope"]),
        (403, &json!("webtty.sessions.read-only"))
    );

    let (_, page) = served
        .events(&pat(), &id, &json!({"from_seq": "3", "limit": 2}))
        .await;
    let numbers: Vec<_> = page
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["seq"].as_str())
        .collect();
    assert_eq!(numbers, [Some("3"), Some("4")]);
    assert_eq!(
        served.events(&pat(), &id, &json!({"from_seq": "11"})).await,
        (200, json!([]))
    );
    for (params, field) in [
        (json!({"from_seq": "x"}), "from_seq"),
        (json!({"from_seq": "-1"}), "from_seq"),
        (json!({"limit": 0}), "limit"),
        (json!({"limit": 1001}), "limit"),
        (json!({"other": 1}), "params"),
        (json!([]), "params"),
    ] {
        let (status, problem) = served.events(&pat(), &id, &params).await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{params}"
        );
    }
    let nobody = session_id(served.place.clock.now());
    for id in [nobody.as_str(), "wts_x", "..", "%2e%2e%2fsession"] {
        assert_eq!(served.events(&pat(), id, &json!({})).await.0, 404, "{id}");
    }
}

/// WT-4: each operation requires its own permission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_and_deleting_recordings_need_separate_permissions() {
    let served = RecordingServer::start().await;
    let id = served.made(sample()).await;
    let of = |what: &str| format!("/api/webtty/sessions/{id}/{what}");
    let search = "/api/webtty/recordings/search?params=%7B%22query%22%3A%22red%22%7D".to_owned();
    let reads = [
        ("GET", of("export")),
        ("GET", of("verify")),
        ("GET", search),
    ];
    for (method, path) in &reads {
        for wrong in [WATCH, DELETE, "webtty.sessions.read-write"] {
            let refused = served.send(method, &may(&[wrong]), path).await;
            assert_eq!(refused.status(), 403, "{path} by {wrong}");
        }
        let answer = served.send(method, &may(&[LOGS]), path).await;
        assert_eq!(answer.status(), 200, "{path}");
    }
    for wrong in [WATCH, LOGS, "webtty.sessions.read-write"] {
        let refused = served
            .send("DELETE", &may(&[wrong]), &of("recording"))
            .await;
        assert_eq!(refused.status(), 403);
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["scope"], DELETE);
    }
    let gone = served
        .send("DELETE", &may(&[DELETE]), &of("recording"))
        .await;
    assert_eq!(gone.status(), 204);
    for path in [of("export"), of("verify"), of("events")] {
        let answer = served.send("GET", &may(&[LOGS]), &path).await;
        assert_eq!(answer.status(), 404, "{path}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "recording_deleted");
    }
    let again = served
        .send("DELETE", &may(&[DELETE]), &of("recording"))
        .await;
    assert_eq!(again.status(), 404);
    // The session stays listed, and the disk contains nothing else of it.
    let (status, list) = served
        .api
        .json_as(&may(&[WATCH]), "/api/webtty/sessions")
        .await;
    assert_eq!((status, &list[0]["id"]), (200, &json!(id)));
    let (status, one) = served
        .api
        .json_as(&may(&[WATCH]), &of("")[..of("").len() - 1])
        .await;
    assert_eq!((status, &one["exit_code"]), (200, &json!(7)));
    let left = std::fs::read_dir(served.place.folder().join(format!("sessions/default/{id}")));
    assert_eq!(left.unwrap().count(), 1);
}

/// EN-7: a token that cannot see the tunnel of a server cannot see its recordings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_boundary_also_restricts_recordings() {
    let served = RecordingServer::start().await;
    let id = served.made(sample()).await;
    let within = |name: &str| {
        let list = json!({"filters": {"name": name}});
        let resources = json!({"tunnels": {"scopes": {"tunnels": {"list": list}}}});
        auth(
            NOW,
            3600,
            json!({"permissions": [LOGS, WATCH, DELETE], "resources": resources}),
        )
    };
    let search = "/api/webtty/recordings/search?params=%7B%22query%22%3A%22red%22%7D";
    let hits = async |claims: &Value| {
        let answer: Value = served
            .send("GET", claims, search)
            .await
            .json()
            .await
            .unwrap();
        answer["hits"].as_array().unwrap().len()
    };
    let (own, other) = (within("terminals"), within("others"));
    for what in ["events", "export", "verify"] {
        let path = format!("/api/webtty/sessions/{id}/{what}");
        assert_eq!(
            served.send("GET", &own, &path).await.status(),
            200,
            "{what}"
        );
        assert_eq!(
            served.send("GET", &other, &path).await.status(),
            404,
            "{what}"
        );
    }
    let path = format!("/api/webtty/sessions/{id}/recording");
    assert_eq!(served.send("DELETE", &other, &path).await.status(), 404);
    assert_eq!((hits(&own).await, hits(&other).await), (1, 0));
    let (_, list) = served.api.json_as(&other, "/api/webtty/sessions").await;
    assert_eq!(list, json!([]));
}

/// EN-8: search finds lines of the output, the newest session first, and returns no more than
/// requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_is_found_in_the_output() {
    let served = RecordingServer::start().await;
    let output = |text: &str| Entry::output(StreamType::Stdout, text.to_owned().into());
    let first = served
        .made(vec![output("deploy of \x1b[1mweb\x1b[0m failed\r\n")])
        .await;
    served.place.clock.advance(1);
    let typed = Entry::input("wtp_a", "deploy of secrets".into(), false);
    let many = (0..100).fold(String::new(), |text, n| {
        text + &format!("deploy of x{n}\r\n")
    });
    let second = served.made(vec![typed, output(&many)]).await;
    let search = async |params: Value| {
        let request = served.api.get("/api/webtty/recordings/search");
        let response = request
            .query(&[("params", params.to_string())])
            .send()
            .await
            .unwrap();
        (
            response.status().as_u16(),
            response.json::<Value>().await.unwrap(),
        )
    };
    let (status, found) = search(json!({"query": "Deploy of"})).await;
    assert_eq!(status, 200);
    let hits = found["hits"].as_array().unwrap();
    assert_eq!(
        hits.len(),
        21,
        "twenty of one session, and the other one: {found}"
    );
    assert_eq!(hits[0]["session_id"], second.as_str());
    assert_eq!(hits[0]["line"], "deploy of x0");
    assert_eq!(hits[20]["session_id"], first.as_str());
    assert_eq!(hits[20]["line"], "deploy of web failed");
    assert_eq!(
        (&hits[20]["seq"], &found["incomplete"]),
        (&json!("1"), &json!(false))
    );
    assert_eq!(found.get("next"), None);
    // Input that was not echoed is not found.
    assert_eq!(
        search(json!({"query": "secrets"})).await.1["hits"],
        json!([])
    );
    let (_, page) = search(json!({"query": "deploy", "limit": 5})).await;
    assert_eq!(page["hits"].as_array().unwrap().len(), 5);
    let (_, page) = search(json!({"query": "deploy", "before": page["next"]})).await;
    assert_eq!(page["hits"][0]["session_id"], first.as_str());
    let (_, own) = search(json!({"query": "web", "session_id": second, "user_id": "ann"})).await;
    assert_eq!(own["hits"], json!([]));
    for (params, field) in [
        (json!({}), "query"),
        (json!({"query": ""}), "query"),
        (json!({"query": "x".repeat(257)}), "query"),
        (json!({"query": "x", "limit": 201}), "limit"),
        (json!({"query": "x", "regex": true}), "params"),
    ] {
        let (status, problem) = search(params.clone()).await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{params}"
        );
    }
}

/// A changed recording is reported as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_reports_the_position_of_a_change() {
    let served = RecordingServer::start().await;
    let id = served.made(sample()).await;
    let path = format!("/api/webtty/sessions/{id}/verify");
    let (_, verdict) = served.api.json(&path).await;
    assert_eq!(
        (&verdict["ok"], &verdict["records"]),
        (&json!(true), &json!(10))
    );
    assert_eq!(verdict["head"].as_str().map(str::len), Some(64));
    let segment = served.place.object(&id, &format!("{:020}", 1));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (status, verdict) = served.api.json(&path).await;
    assert_eq!(
        (status, &verdict["ok"], &verdict["broken_at"]),
        (200, &json!(false), &json!("1"))
    );
    let (status, problem) = served.events(&pat(), &id, &json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("recording_broken"))
    );
}

/// An end-to-end encrypted session has no text, cast or search. Its records are ciphertext.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_session_is_returned_as_ciphertext() {
    let served = RecordingServer::start().await;
    let now = served.place.clock.now();
    let id = session_id(now);
    let mut sealed = meta(id, now);
    sealed.sealed = true;
    sealed.session.encryption_mode = EncryptionMode::E2e;
    let recorder = served.terminals.recorder();
    let recording = recorder.start(&sealed).unwrap();
    record_all(&recording, sample(), now);
    recording.finish(&ended(&sealed, 0, now));
    wait_stored(recorder, id).await;
    let (_, events) = served.events(&pat(), id.as_str(), &json!({})).await;
    assert_eq!(events[1]["payload_ciphertext"], "JCA=");
    assert_eq!(events[1].get("payload_plaintext"), None);
    for (format, status) in [
        ("text", 409),
        ("asciicast", 409),
        ("asciicast-v3", 409),
        ("json", 200),
        ("ndjson", 200),
    ] {
        let path = format!("/api/webtty/sessions/{id}/export?format={format}");
        assert_eq!(
            served.send("GET", &pat(), &path).await.status(),
            status,
            "{format}"
        );
    }
    let search = "/api/webtty/recordings/search?params=%7B%22query%22%3A%22red%22%7D";
    assert_eq!(served.api.json(search).await.1["hits"], json!([]));
}

/// A query has a maximum length and depth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_parameters_have_a_maximum_size_and_depth() {
    let served = RecordingServer::start().await;
    let id = served.made(sample()).await;
    let path = format!("/api/webtty/sessions/{id}/events");
    let padded = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!("{{\"other\": {open}{close}}}")
    };
    for (params, status, said) in [
        (padded(4096), 200, ""),
        (padded(4097), 400, "more than 4096 bytes"),
        (nested(5), 400, "nested too deeply"),
        // Unknown parameter, but not nested too deeply.
        (nested(4), 400, "unknown field"),
    ] {
        let answer = served.said(&path, &params).await;
        assert_eq!(answer.0, status, "{answer:?}");
        assert!(answer.1.contains(said), "{answer:?}");
    }
}

//! Updates with a server on a socket of this machine, which signs its responses or does not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hickory_proto::rr::TSigResponseContext;
use hickory_proto::rr::rdata::SOA;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;
use crate::key::KeyAlgorithm;

const NAME: &str = "_acme-challenge.h.example";
const SECRET: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0";
const NOW: i64 = 1_800_000_000;

/// The signature of a response.
#[derive(Clone, Copy)]
enum Signature {
    Right,
    WrongKey,
    Missing,
    Error(TsigError),
}

fn key(directory: &TempDir) -> KeySource {
    let file = directory.path().join("key");
    fs::write(&file, SECRET).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    KeySource {
        file,
        name: Some("svc".to_owned()),
        algorithm: Some(KeyAlgorithm::HmacSha512),
    }
}

fn signed(response: &Message, request: &Message, signature: Signature, key: &TSigner) -> Vec<u8> {
    let bytes = response.to_vec().unwrap();
    let now = u64::try_from(NOW).unwrap();
    let id = request.metadata.id;
    let mac = request.signature.as_ref().unwrap().data.mac.clone();
    let other = TSigner::new(
        vec![1; 32],
        key.algorithm().clone(),
        key.signer_name().clone(),
        300,
    );
    let context = match signature {
        Signature::Missing => return bytes,
        Signature::Right => TSigResponseContext::new(id, now, key.clone(), mac, None),
        Signature::WrongKey => TSigResponseContext::new(id, now, other.unwrap(), mac, None),
        Signature::Error(TsigError::BadSig) => {
            TSigResponseContext::bad_signature(id, now, key.clone())
        }
        Signature::Error(TsigError::BadKey) => {
            TSigResponseContext::unknown_key(id, now, key.signer_name().clone())
        }
        Signature::Error(error) => TSigResponseContext::new(id, now, key.clone(), mac, Some(error)),
    };
    let mut signed = response.clone();
    signed.set_signature(context.sign(&bytes).unwrap());
    signed.to_vec().unwrap()
}

/// Serves one connection. It returns the requests.
async fn serve(
    listener: TcpListener,
    key: TSigner,
    code: ResponseCode,
    signature: Signature,
) -> Vec<Message> {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut requests = Vec::new();
    while let Ok(length) = stream.read_u16().await {
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        key.verify_message_byte(&bytes, None, true).unwrap();
        let request = Message::from_vec(&bytes).unwrap();
        let mut response = Message::response(request.metadata.id, request.metadata.op_code);
        response.queries.clone_from(&request.queries);
        response.metadata.response_code = code;
        if request.metadata.op_code == OpCode::Query {
            let zone = parse_name("h.example").unwrap();
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 1, 1, 1, 1);
            response.metadata.response_code = ResponseCode::NXDomain;
            response.add_authority(Record::from_rdata(zone, 1, RData::SOA(soa)));
        }
        let bytes = signed(&response, &request, signature, &key);
        let length = u16::try_from(bytes.len()).unwrap();
        stream.write_all(&length.to_be_bytes()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        requests.push(request);
    }
    requests
}

/// The result of an update, and the requests that the server has got.
async fn update(
    code: ResponseCode,
    signature: Signature,
    change: impl AsyncFnOnce(&mut DnsUpdate) -> Result<(), UpdateError>,
) -> (Result<(), UpdateError>, Vec<Message>) {
    let directory = tempfile::tempdir().unwrap();
    let key = key(&directory);
    let signer = signer(&key.read().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = DnsUpdate {
        server: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        zone: Some("h.example".to_owned()),
        key,
    };
    let server = tokio::spawn(serve(listener, signer, code, signature));
    let result = change(&mut client).await;
    (result, server.await.unwrap())
}

async fn add(code: ResponseCode, signature: Signature) -> Result<(), UpdateError> {
    let added = update(code, signature, async |client| {
        client.add(NAME, "text", NOW).await
    });
    added.await.0
}

#[tokio::test]
async fn a_record_is_added_and_removed_alone() {
    let (result, requests) = update(ResponseCode::NoError, Signature::Right, async |client| {
        client.add(NAME, "text", NOW).await
    })
    .await;
    result.unwrap();
    let [request] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(request.metadata.op_code, OpCode::Update);
    assert_eq!(request.queries[0].name, parse_name("h.example").unwrap());
    assert_eq!(request.queries[0].query_type, RecordType::SOA);
    let expected = record(&parse_name(NAME).unwrap(), "text", RECORD_TTL);
    assert_eq!(request.authorities, std::slice::from_ref(&expected));
    assert_eq!(request.authorities[0].ttl, RECORD_TTL);

    let (result, requests) = update(ResponseCode::NoError, Signature::Right, async |client| {
        client.remove(NAME, "text", NOW).await
    })
    .await;
    result.unwrap();
    let deleted = &requests[0].authorities[0];
    assert_eq!(deleted.dns_class, DNSClass::NONE);
    assert_eq!(deleted.ttl, 0);
    assert_eq!(deleted.data, expected.data);
}

#[tokio::test]
async fn the_zone_is_requested_from_the_server() {
    let (result, requests) = update(ResponseCode::NoError, Signature::Right, async |client| {
        client.zone = None;
        client.add(NAME, "text", NOW).await
    })
    .await;
    result.unwrap();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        requests[1].queries[0].name,
        parse_name("h.example").unwrap()
    );
}

#[tokio::test]
async fn a_response_is_accepted_only_with_the_right_signature() {
    for (signature, reason) in [
        (Signature::Missing, "it is not signed"),
        (Signature::WrongKey, "its signature is wrong"),
        (Signature::Error(TsigError::BadSig), "BADSIG"),
        (Signature::Error(TsigError::BadKey), "`key_name`"),
        (Signature::Error(TsigError::BadTime), "correct the clock"),
    ] {
        let error = add(ResponseCode::NoError, signature).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_has_its_code_and_the_next_step() {
    for (code, reason) in [
        (ResponseCode::Refused, "REFUSED; allow the key"),
        (ResponseCode::NotAuth, "NOTAUTH; set `zone`"),
        (ResponseCode::NotZone, "NOTZONE; set `zone`"),
        (ResponseCode::ServFail, "SERVFAIL; see the log"),
    ] {
        for signature in [Signature::Right, Signature::Missing] {
            let error = add(code, signature).await.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

#[tokio::test]
async fn a_name_outside_of_the_zone_is_not_sent() {
    let (result, requests) = update(ResponseCode::NoError, Signature::Right, async |client| {
        client.zone = Some("other.example".to_owned());
        client.add(NAME, "text", NOW).await
    })
    .await;
    assert!(result.unwrap_err().to_string().contains("NOTZONE"));
    assert!(requests.is_empty());
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    let directory = tempfile::tempdir().unwrap();
    // The port stays taken, and nothing accepts.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let client = DnsUpdate {
        server: address.ip().to_string(),
        port: address.port(),
        zone: None,
        key: key(&directory),
    };
    let error = client.add(NAME, "text", NOW).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1 cannot be reached"), "{error}");
}

proptest! {
    #[test]
    fn any_response_is_an_error_without_a_signature(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut request = Message::query();
        request.metadata.id = 7;
        let mut bytes = bytes;
        if let Some(id) = bytes.first_chunk_mut::<2>() {
            *id = [0, 7];
        }
        let checked = check(&bytes, &request, |_| Err("no signature is right".into()));
        prop_assert!(checked.is_err());
    }
}

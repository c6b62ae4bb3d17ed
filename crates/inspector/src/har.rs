//! Exchanges as HAR 1.2, a format that browsers and many tools support.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::exchange::{Exchange, Fields, MessageKind, MessageSender, Response, content};
use crate::store::duration_between;
use crate::view::{FORM, Secrets, pairs, url};

/// An archive of exchanges, oldest first.
pub(crate) fn archive<'e>(
    exchanges: impl Iterator<Item = &'e Exchange>,
    version: &str,
    secrets: Secrets,
) -> Value {
    let entries: Vec<_> = exchanges.map(|exchange| entry(exchange, secrets)).collect();
    json!({"log": {
        "version": "1.2",
        "creator": {"name": "svc", "version": version},
        "entries": entries,
    }})
}

fn entry(exchange: &Exchange, secrets: Secrets) -> Value {
    let summary = &exchange.summary;
    let began = summary.began;
    let request_end = exchange.request_finished_at.unwrap_or(began);
    let answered = exchange
        .response_started_at
        .unwrap_or(request_end)
        .max(request_end);
    let ended = summary
        .duration
        .and_then(|took| began.checked_add(took).ok());
    let ended = ended.unwrap_or(answered).max(answered);
    let mut entry = json!({
        "startedDateTime": format!("{began:.3}"),
        "time": millis(began, ended),
        "request": request(exchange, secrets),
        "response": response(exchange, secrets),
        "cache": {},
        "timings": {
            "send": millis(began, request_end),
            "wait": millis(request_end, answered),
            "receive": millis(answered, ended),
        },
    });
    if let Some(error) = &summary.error {
        set(&mut entry, "comment", json!(&**error));
    }
    if exchange
        .messages
        .iter()
        .any(|message| matches!(message.what, MessageKind::Text | MessageKind::Binary))
    {
        // The form that Chromium writes.
        set(&mut entry, "_resourceType", json!("websocket"));
        set(&mut entry, "_webSocketMessages", messages(exchange));
    }
    entry
}

fn request(exchange: &Exchange, secrets: Secrets) -> Value {
    let request = &exchange.request;
    let body = &exchange.request_body;
    let url = url(exchange, secrets);
    let query: Vec<_> = url
        .split_once('?')
        .map(|(_, query)| query.split('&'))
        .into_iter()
        .flatten()
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            json!({"name": name, "value": value})
        })
        .collect();
    let mut value = json!({
        "method": request.method,
        "url": url,
        "httpVersion": request.version.as_str(),
        "cookies": cookies(&request.fields, "cookie", secrets),
        "headers": named(&request.fields, secrets),
        "queryString": query,
        "headersSize": -1,
        "bodySize": body.size,
    });
    if body.size > 0 {
        let shown = content::decode_body(&request.fields, body);
        let mime = request.fields.get("content-type").unwrap_or_default();
        let text = String::from_utf8_lossy(&shown.bytes);
        let form = secrets == Secrets::Masked && request.fields.content_type() == FORM;
        let text = if form {
            crate::mask::query(&text).into_owned()
        } else {
            text.into_owned()
        };
        set(
            &mut value,
            "postData",
            json!({"mimeType": mime, "text": text}),
        );
    }
    value
}

fn response(exchange: &Exchange, secrets: Secrets) -> Value {
    let Some(response) = &exchange.response else {
        // The form in which browsers write a request without a response.
        return json!({
            "status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
            "content": {"size": 0, "mimeType": "x-unknown"},
            "redirectURL": "", "headersSize": -1, "bodySize": -1,
        });
    };
    let location = pairs(&response.fields, secrets);
    let location = location
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("location"));
    json!({
        "status": response.status,
        "statusText": response.reason,
        "httpVersion": response.version.as_str(),
        "cookies": cookies(&response.fields, "set-cookie", secrets),
        "headers": named(&response.fields, secrets),
        "content": body(exchange, response),
        "redirectURL": location.map_or("", |(_, value)| value),
        "headersSize": -1,
        "bodySize": exchange.response_body.size,
    })
}

fn body(exchange: &Exchange, response: &Response) -> Value {
    let body = &exchange.response_body;
    let shown = content::decode_body(&response.fields, body);
    let mime = response.fields.get("content-type").unwrap_or("x-unknown");
    let mut value = json!({"size": shown.bytes.len(), "mimeType": mime});
    match String::from_utf8(shown.bytes) {
        Ok(text) => set(&mut value, "text", json!(text)),
        Err(error) => {
            set(&mut value, "text", json!(STANDARD.encode(error.as_bytes())));
            set(&mut value, "encoding", json!("base64"));
        }
    }
    if shown.is_truncated {
        set(
            &mut value,
            "comment",
            json!("truncated: not all of it was stored"),
        );
    }
    value
}

fn named(fields: &Fields, secrets: Secrets) -> Vec<Value> {
    let all = pairs(fields, secrets).into_iter();
    all.map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

fn cookies(fields: &Fields, field: &str, secrets: Secrets) -> Vec<Value> {
    let lines = pairs(fields, secrets).into_iter();
    let lines = lines.filter(|(name, _)| name.eq_ignore_ascii_case(field));
    let mut cookies = Vec::new();
    for (_, line) in lines {
        // `Cookie` contains only cookies; in `Set-Cookie` only the first piece is one.
        let count = if field == "cookie" { usize::MAX } else { 1 };
        for piece in line.split(';').take(count) {
            let (name, value) = piece.trim().split_once('=').unwrap_or((piece.trim(), ""));
            cookies.push(json!({"name": name, "value": value}));
        }
    }
    cookies
}

fn messages(exchange: &Exchange) -> Value {
    let messages = exchange.messages.iter().filter_map(|message| {
        let opcode = match message.what {
            MessageKind::Text => 1,
            MessageKind::Binary => 2,
            _ => return None,
        };
        let kind = match message.from {
            MessageSender::Visitor => "send",
            MessageSender::Service => "receive",
        };
        let data = match std::str::from_utf8(&message.kept) {
            Ok(text) if opcode == 1 => text.to_owned(),
            _ => STANDARD.encode(&message.kept),
        };
        let time = message.at.as_duration().as_secs_f64();
        Some(json!({"type": kind, "time": time, "opcode": opcode, "data": data}))
    });
    messages.collect()
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    (duration_between(from, to).as_secs_f64() * 1e6).round() / 1e3
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(object) = object {
        object.insert(name.to_owned(), value);
    }
}

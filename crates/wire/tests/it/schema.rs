//! `agent.proto` and the messages in `src/message/` are equivalent.

use std::collections::{BTreeMap, BTreeSet};

/// Message or enum → its members: (name, number, type).
type Schema = BTreeMap<String, BTreeSet<(String, u32, String)>>;

#[test]
fn schema_and_messages_have_the_same_names_numbers_and_types() {
    let proto = from_proto(include_str!("../../agent.proto"));
    let mut rust = Schema::new();
    for source in [
        include_str!("../../src/message.rs"),
        include_str!("../../src/message/control.rs"),
        include_str!("../../src/message/details.rs"),
        include_str!("../../src/message/stream.rs"),
        include_str!("../../src/message/tunnel.rs"),
        include_str!("../../src/error.rs"),
        include_str!("../../src/pool/payload.rs"),
    ] {
        from_rust(source, &mut rust);
    }
    assert!(
        proto["TunnelProperties"].len() == 32,
        "the parser saw the file"
    );
    assert_eq!(
        proto.keys().collect::<Vec<_>>(),
        rust.keys().collect::<Vec<_>>()
    );
    for (name, members) in &proto {
        assert_eq!(members, &rust[name], "{name}");
    }
}

/// The members of each `message` and `enum`; those of a `oneof` belong to its message.
fn from_proto(source: &str) -> Schema {
    let mut schema = Schema::new();
    let mut current = String::new();
    for line in source.lines().map(str::trim) {
        let words: Vec<&str> = line
            .split([' ', ';', '{', '}'])
            .filter(|w| !w.is_empty())
            .collect();
        match words.as_slice() {
            ["message" | "enum", name] => {
                current = (*name).to_owned();
                schema.entry(current.clone()).or_default();
            }
            [.., name, "=", number] if !current.is_empty() => {
                let ty = words[..words.len() - 3]
                    .join(" ")
                    .replace("google.protobuf.", "");
                let number = number.parse().expect("a number");
                schema
                    .get_mut(&current)
                    .expect("inside")
                    .insert(((*name).to_owned(), number, ty));
            }
            _ => {}
        }
    }
    schema
}

/// The members of each message struct and of the error codes, from the derive attributes.
fn from_rust(source: &str, schema: &mut Schema) {
    let mut oneofs: BTreeMap<String, String> = BTreeMap::new();
    let mut derives = "";
    let mut current: Option<String> = None;
    let mut attribute = String::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[derive(") {
            derives = line;
        } else if line.starts_with("#[prost(")
            || (!attribute.is_empty() && !attribute.ends_with(']'))
        {
            if line.starts_with("#[prost(") {
                attribute.clear();
            }
            attribute.push_str(line);
        } else if let Some(rest) = line
            .strip_prefix("pub struct ")
            .or(line.strip_prefix("pub enum "))
        {
            let name = rest
                .split([' ', '{', '('])
                .next()
                .expect("a name")
                .to_owned();
            let owner = oneofs.get(&name).cloned().unwrap_or(name);
            let ours = ["prost::Message", "prost::Oneof", "prost::Enumeration"];
            current = ours
                .iter()
                .any(|ours| derives.contains(ours))
                .then_some(owner);
            if let Some(owner) = &current {
                schema.entry(owner.clone()).or_default();
            }
            attribute.clear();
        } else if line == "}" || line.starts_with("impl ") {
            current = None;
        } else if let Some(owner) = &current {
            if let Some((name, number)) = line.trim_end_matches(',').split_once(" = ") {
                let number = number.parse().expect("a number");
                let member = (screaming(name), number, String::new());
                schema.get_mut(owner).expect("entered").insert(member);
            } else if !attribute.is_empty() && !line.starts_with("//") {
                if attribute.contains("oneof") {
                    let name = attribute.split('"').nth(1).expect("a name").to_owned();
                    oneofs.insert(name, owner.clone());
                } else {
                    schema
                        .get_mut(owner)
                        .expect("entered")
                        .insert(member(&attribute, line));
                }
                attribute.clear();
            }
        }
    }
}

fn member(attribute: &str, line: &str) -> (String, u32, String) {
    let tag = attribute
        .split("tag = \"")
        .nth(1)
        .expect("a tag")
        .split('"')
        .next()
        .expect("closed");
    let line = line.trim_end_matches(',');
    let (name, inner) = if let Some(field) = line.strip_prefix("pub ") {
        let (name, ty) = field.split_once(": ").expect("a field");
        (name.trim_start_matches("r#").to_owned(), ty.to_owned())
    } else {
        let (name, ty) = line.split_once('(').expect("a variant");
        (snake(name), ty.trim_end_matches(')').to_owned())
    };
    let message = inner
        .trim_start_matches("Vec<")
        .trim_start_matches("Option<")
        .trim_start_matches("Box<")
        .trim_end_matches('>')
        .replace("Secret", "StringValue");
    let kind = attribute
        .trim_start_matches("#[prost(")
        .split(',')
        .next()
        .expect("a type");
    let ty = match kind {
        "message" if attribute.contains("repeated") => format!("repeated {message}"),
        "message" => message,
        "enumeration = \"ErrorCode\"" => "ErrorCode".to_owned(),
        "bytes = \"vec\"" => "bytes".to_owned(),
        kind if kind.starts_with("btree_map") => "map<string, string>".to_owned(),
        kind if attribute.contains("repeated") => format!("repeated {kind}"),
        kind if attribute.contains("optional") => format!("optional {kind}"),
        kind => kind.to_owned(),
    };
    (name, tag.parse().expect("a number"), ty)
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

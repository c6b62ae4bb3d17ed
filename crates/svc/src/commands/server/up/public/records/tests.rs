use super::*;

const HOST: &str = "engine.example.com";
const OWN: &str = "203.0.113.7";
const OWN_V6: &str = "2001:db8::7";
const OTHER: &str = "198.51.100.1";

fn wanted() -> WantedRecords {
    WantedRecords {
        host: HOST.to_owned(),
        addresses: vec![ip(OWN)],
        challenges: ChallengeRecords::Delegation,
        authority: Some("letsencrypt.org"),
        accounts: Vec::new(),
        validations: OrderValidations::PUBLIC,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Answers with which everything is right.
fn right(wanted: &WantedRecords) -> RecordAnswers {
    let addresses = wanted.address_names().into_iter();
    let delegations = wanted.delegated_names().into_iter();
    RecordAnswers {
        addresses: addresses
            .map(|name| (name, Ok(wanted.addresses.clone())))
            .collect(),
        delegations: delegations
            .map(|name| {
                let record = wanted.delegation_record(&name);
                let value = record.value.trim_end_matches('.').to_owned();
                let found = if record.kind == RecordKind::Cname {
                    Delegation {
                        servers: Vec::new(),
                        alias: Some(value),
                    }
                } else {
                    Delegation {
                        servers: vec![value],
                        alias: None,
                    }
                };
                (name, Ok(found))
            })
            .collect(),
        caa: None,
    }
}

/// The changes as an operator reads them, with single spaces.
fn lines(wanted: &WantedRecords, answers: &RecordAnswers) -> Vec<String> {
    let changes = wanted.changes(answers);
    let words = |change: &RecordChange| -> Vec<String> {
        let text = change.to_string();
        text.split_whitespace().map(str::to_owned).collect()
    };
    changes
        .iter()
        .map(|change| words(change).join(" "))
        .collect()
}

#[test]
fn a_new_host_needs_every_record_once() {
    let mut wanted = wanted();
    wanted.addresses.push(ip(OWN_V6));
    assert_eq!(
        lines(&wanted, &RecordAnswers::default()),
        [
            "add engine.example.com. A 203.0.113.7",
            "add engine.example.com. AAAA 2001:db8::7",
            "add *.engine.example.com. A 203.0.113.7",
            "add *.engine.example.com. AAAA 2001:db8::7",
            "add *.t.engine.example.com. A 203.0.113.7",
            "add *.t.engine.example.com. AAAA 2001:db8::7",
            "add _acme-challenge.engine.example.com. NS engine.example.com.",
            "add _acme-challenge.t.engine.example.com. NS engine.example.com.",
        ]
    );
}

#[test]
fn an_alias_needs_one_delegation() {
    let wanted = WantedRecords {
        challenges: ChallengeRecords::Alias("acme.example.net".to_owned()),
        ..wanted()
    };
    let mut answers = right(&wanted);
    answers.delegations.clear();
    assert_eq!(
        lines(&wanted, &answers),
        [
            "add acme.example.net. NS engine.example.com.",
            "add _acme-challenge.engine.example.com. CNAME engine.example.com.acme.example.net.",
            "add _acme-challenge.t.engine.example.com. CNAME t.engine.example.com.acme.example.net.",
        ]
    );
}

#[test]
fn right_records_need_no_change() {
    for challenges in [
        ChallengeRecords::Delegation,
        ChallengeRecords::Alias("acme.example.net".to_owned()),
        ChallengeRecords::Elsewhere,
    ] {
        let wanted = WantedRecords {
            challenges,
            ..wanted()
        };
        assert!(wanted.changes(&right(&wanted)).is_empty());
    }
}

#[test]
fn wrong_addresses_are_reported_with_their_position() {
    let wanted = wanted();
    for (name, found, expected) in [
        (
            HOST,
            vec![OTHER],
            vec![
                "add engine.example.com. A 203.0.113.7",
                "remove engine.example.com. A 198.51.100.1",
            ],
        ),
        // Clients with IPv6 would not reach this server.
        (
            HOST,
            vec![OWN, OWN_V6],
            vec!["remove engine.example.com. AAAA 2001:db8::7"],
        ),
        // A record of its own hides the wildcard.
        (
            "platform.engine.example.com",
            vec![OTHER],
            vec![
                "add *.engine.example.com. A 203.0.113.7",
                "remove platform.engine.example.com. A 198.51.100.1",
            ],
        ),
        (
            "00000000.t.engine.example.com",
            vec![],
            vec!["add *.t.engine.example.com. A 203.0.113.7"],
        ),
    ] {
        let mut answers = right(&wanted);
        let found = found.into_iter().map(ip).collect();
        answers.addresses.insert(name.to_owned(), Ok(found));
        assert_eq!(lines(&wanted, &answers), expected, "{name}");
    }
}

/// The names of probes are not records that an operator could find.
#[test]
fn a_wrong_address_of_a_wildcard_is_named_once() {
    let wanted = wanted();
    let mut answers = right(&wanted);
    for name in [
        "platform.engine.example.com",
        "turn.engine.example.com",
        "00000000.engine.example.com",
        "00000000.t.engine.example.com",
    ] {
        answers
            .addresses
            .insert(name.to_owned(), Ok(vec![ip(OWN), ip(OTHER)]));
    }
    assert_eq!(
        lines(&wanted, &answers),
        [
            "remove *.engine.example.com. A 198.51.100.1",
            "remove *.t.engine.example.com. A 198.51.100.1",
        ]
    );
    let changes = wanted.changes(&answers);
    assert!(changes.iter().all(RecordChange::is_foreign_address));
    let missing = wanted.changes(&RecordAnswers::default());
    assert!(!missing.iter().any(RecordChange::is_foreign_address));
}

#[test]
fn wrong_delegations_are_named() {
    let wanted = wanted();
    let name = "_acme-challenge.t.engine.example.com";
    let add = "add _acme-challenge.t.engine.example.com. NS engine.example.com.";
    for (servers, alias, expected) in [
        (
            vec!["ns.example.net"],
            None,
            vec![
                "remove _acme-challenge.t.engine.example.com. NS ns.example.net.",
                add,
            ],
        ),
        (
            vec![],
            Some("x.example.net"),
            vec![
                "remove _acme-challenge.t.engine.example.com. CNAME x.example.net.",
                add,
            ],
        ),
    ] {
        let found = Delegation {
            servers: servers.into_iter().map(str::to_owned).collect(),
            alias: alias.map(str::to_owned),
        };
        let mut answers = right(&wanted);
        answers.delegations.insert(name.to_owned(), Ok(found));
        assert_eq!(lines(&wanted, &answers), expected);
    }
}

#[test]
fn name_servers_without_an_answer_are_no_missing_records() {
    let wanted = wanted();
    let mut answers = right(&wanted);
    let failed = "no response in time".to_owned();
    answers.addresses.insert(HOST.to_owned(), Err(failed));
    assert_eq!(
        lines(&wanted, &answers),
        ["check engine.example.com.: no response in time"]
    );
}

#[test]
fn caa_records_must_allow_the_authority() {
    let account = "https://acme.example/acct/1";
    let own = format!("letsencrypt.org; accounturi={account}");
    let foreign = "letsencrypt.org; accounturi=https://acme.example/acct/2";
    let forbidden = "check example.com.: its CAA records allow only the account \
                     https://acme.example/acct/2 of letsencrypt.org; allow every account \
                     of this server, or remove accounturi";
    for (properties, expected) in [
        (vec![("issue", "letsencrypt.org")], vec![]),
        (vec![("iodef", "mailto:a@example.com")], vec![]),
        (vec![("issue", own.as_str())], vec![]),
        (
            vec![("issue", "other.example")],
            vec!["add example.com. CAA 0 issue \"letsencrypt.org\""],
        ),
        (
            vec![("issue", ";")],
            vec!["add example.com. CAA 0 issue \"letsencrypt.org\""],
        ),
        (
            vec![("issue", "letsencrypt.org"), ("issuewild", ";")],
            vec!["add example.com. CAA 0 issuewild \"letsencrypt.org\""],
        ),
        (vec![("issue", foreign)], vec![forbidden]),
        (
            vec![("issue", foreign), ("issue", "letsencrypt.org")],
            vec![],
        ),
    ] {
        let wanted = WantedRecords {
            accounts: vec![account.to_owned()],
            ..wanted()
        };
        let mut answers = right(&wanted);
        let caa = properties.iter().map(|(tag, value)| CaaProperty {
            tag: (*tag).to_owned(),
            value: (*value).to_owned(),
        });
        answers.caa = Some(("example.com".to_owned(), caa.collect()));
        assert_eq!(lines(&wanted, &answers), expected, "{properties:?}");
        let elsewhere = WantedRecords {
            authority: None,
            ..wanted
        };
        assert!(elsewhere.changes(&answers).is_empty(), "another authority");
    }
}

/// RFC 8657: an authority must not use a validation that no record lists.
#[test]
fn caa_records_must_allow_the_validations() {
    let missing = |tag: &str, methods: &str| {
        format!(
            "check engine.example.com.: its CAA records ({tag}) of letsencrypt.org do not allow the \
             validations of this server; add {methods} to validationmethods, or remove it"
        )
    };
    for (properties, expected) in [
        (
            vec![(
                "issue",
                "letsencrypt.org; validationmethods=dns-01,tls-alpn-01",
            )],
            None,
        ),
        (
            vec![(
                "issue",
                "letsencrypt.org ; ValidationMethods = tls-alpn-01 , dns-01",
            )],
            None,
        ),
        (
            vec![("issue", "letsencrypt.org; validationmethods=dns-01")],
            Some(missing("issue", "tls-alpn-01,dns-01")),
        ),
        (
            vec![
                ("issue", "letsencrypt.org; validationmethods=tls-alpn-01"),
                ("issuewild", "letsencrypt.org; validationmethods=dns-01"),
            ],
            None,
        ),
        (
            vec![
                ("issue", "letsencrypt.org"),
                ("issuewild", "letsencrypt.org; validationmethods=http-01"),
            ],
            Some(missing("issuewild", "dns-01")),
        ),
        (
            vec![
                ("issue", "letsencrypt.org; validationmethods=http-01"),
                ("issue", "letsencrypt.org"),
            ],
            None,
        ),
    ] {
        let wanted = wanted();
        let caa = properties.iter().map(|(tag, value)| CaaProperty {
            tag: (*tag).to_owned(),
            value: (*value).to_owned(),
        });
        let answers = RecordAnswers {
            caa: Some((HOST.to_owned(), caa.collect())),
            ..right(&wanted)
        };
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(lines(&wanted, &answers), expected, "{properties:?}");
    }
}

/// An engine that a user has configured, with a name only or with another validation.
#[test]
fn caa_records_must_allow_the_validations_of_the_server() {
    let only_http = [("issue", "letsencrypt.org; validationmethods=http-01")];
    let no_wildcard = [("issue", "letsencrypt.org"), ("issuewild", ";")];
    let only_dns = [("issue", "letsencrypt.org; validationmethods=dns-01")];
    for (host, has_wildcards, properties, is_allowed) in [
        ("http-01", false, &only_http[..], true),
        ("http-01", true, &only_http, false),
        ("tls-alpn-01", false, &only_http, false),
        ("tls-alpn-01", false, &no_wildcard, true),
        ("tls-alpn-01", true, &no_wildcard, false),
        ("dns-01", true, &only_dns, true),
        ("dns-01", false, &only_dns, true),
    ] {
        let wanted = WantedRecords {
            validations: OrderValidations {
                host,
                has_wildcards,
            },
            ..wanted()
        };
        let properties = properties.iter().map(|(tag, value)| CaaProperty {
            tag: (*tag).to_owned(),
            value: (*value).to_owned(),
        });
        let properties: Vec<_> = properties.collect();
        let changes = wanted.caa_changes(HOST, &properties);
        assert_eq!(changes.is_empty(), is_allowed, "{host}: {changes:?}");
    }
}

#[test]
fn a_record_for_the_own_account_is_suggested_once_it_exists() {
    let mut wanted = wanted();
    assert!(wanted.suggestions().is_empty());
    wanted.accounts = vec!["https://acme.example/acct/1".to_owned()];
    let text = wanted.suggestions()[0].to_string();
    assert!(
        text.ends_with("CAA   0 issue \"letsencrypt.org; accounturi=https://acme.example/acct/1\""),
        "{text}"
    );
}

/// Engine, platform and relay order with accounts of their own.
#[test]
fn a_record_must_allow_every_account() {
    let accounts = ["https://acme.example/acct/1", "https://acme.example/acct/2"];
    let wanted = WantedRecords {
        accounts: accounts.map(str::to_owned).to_vec(),
        ..wanted()
    };
    let mut answers = right(&wanted);
    let property = |account: &str| CaaProperty {
        tag: "issue".to_owned(),
        value: format!("letsencrypt.org; accounturi={account}"),
    };
    let both = accounts.map(property).to_vec();
    answers.caa = Some((HOST.to_owned(), both[..1].to_vec()));
    assert_eq!(wanted.changes(&answers).len(), 1);
    assert!(WantedRecords::is_restricted(&both));
    answers.caa = Some((HOST.to_owned(), both));
    assert!(wanted.changes(&answers).is_empty());
    assert!(!WantedRecords::is_restricted(&[]));
}

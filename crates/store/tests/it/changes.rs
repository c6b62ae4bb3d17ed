//! The log of changes for engines contains every change in commit order.

mod lists;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use store::changes::{self, Change, Kind};
use store::credentials::{self, Credential};
use store::sessions::{self, Session};
use store::signing_keys::{self, SigningKey};
use store::webtty_servers::{self, WebttyServer};
use store::{
    PasswordHash, SealedBytes, addresses, domains, members, projects, revoked_tokens, takedowns,
    users, workspaces,
};
use types::id::{CredentialId, ProjectId, WebttyServerId};

use self::lists::{REPLICATED_FUNCTIONS, REPLICATED_TABLES, SILENT, SILENT_FILES};
use crate::database::{Database, both, commit};
use crate::world::{Person, at, hash, id, new_project};

/// The texts of all source files by the names of their modules.
fn sources() -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let text = std::fs::read_to_string(&path).unwrap();
                let namesake = texts.insert(name, text);
                assert!(namesake.is_none(), "{} has a namesake", path.display());
            }
        }
    }
    texts
}

/// Replicated data is written only in files whose functions are all listed here.
#[test]
fn no_other_file_writes_replicated_data() {
    let sources = sources();
    for file in SILENT_FILES {
        let text = &sources[*file];
        for table in REPLICATED_TABLES {
            for verb in ["INSERT INTO", "UPDATE", "DELETE FROM"] {
                let is_written =
                    text.match_indices(&format!("{verb} {table}"))
                        .any(|(at, found)| {
                            let next = text[at + found.len()..].chars().next();
                            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
                        });
                assert!(!is_written, "{file}.rs has {verb} {table}");
            }
        }
    }
}

/// Each new function that writes must be added to one of the lists.
#[test]
fn every_writing_function_is_listed_as_replicated_or_silent() {
    let mut found = BTreeSet::new();
    for (file, text) in sources() {
        if SILENT_FILES.contains(&file.as_str()) {
            continue;
        }
        for function in text.split("\npub async fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            // The transaction may be any of the arguments.
            let (arguments, _) = rest.split_once("\n}").unwrap_or((rest, ""));
            let (arguments, _) = arguments.split_once('{').unwrap();
            if arguments.contains("&mut Tx") {
                found.insert(format!("{file}::{name}"));
            }
        }
    }
    let known: BTreeSet<String> = REPLICATED_FUNCTIONS
        .iter()
        .chain(SILENT)
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(found, known);
}

both! {
    every_change_that_engines_know_moves_the_version,
}

/// The version and its changes.
async fn read_changes(database: &Database) -> (i64, Vec<Change>) {
    let mut read = database.store.read().await.unwrap();
    let head = changes::head(&mut read).await.unwrap();
    let mut news = changes::since(&mut read, head.version - 1, 100)
        .await
        .unwrap();
    news.sort();
    (head.version, news)
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn every_change_that_engines_know_moves_the_version(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let bob = Person::new(&database, "bob").await;
    let mut covered = BTreeSet::new();
    macro_rules! tells {
        ($name:literal, $call:expr, $($kind:ident $key:expr),+) => {{
            let (before, _) = read_changes(&database).await;
            let mut transaction = database.begin().await;
            let run: for<'t> fn(&'t mut store::Tx, ChangeTargets) -> WriteFuture<'t> = $call;
            run(&mut transaction, ChangeTargets { ann, bob }).await;
            transaction.commit().await.unwrap();
            let (after, news) = read_changes(&database).await;
            assert_eq!(after, before + 1, $name);
            let mut wanted = vec![$(Change { kind: Kind::$kind, key: $key.to_string() }),+];
            wanted.sort();
            assert_eq!(news, wanted, $name);
            covered.insert($name);
        }};
    }
    tells!("users::set_password", |tx, g| Box::pin(async move {
        let password = PasswordHash("x".to_owned());
        assert!(users::set_password(tx, g.ann.user, Some(&password), at(3)).await.unwrap());
    }), Person ann.user);
    tells!("users::set_status", |tx, g| Box::pin(async move {
        assert!(users::set_status(tx, g.ann.user, users::Status::Suspended, at(3)).await.unwrap());
    }), Person ann.user);
    tells!("users::change_status", |tx, g| Box::pin(async move {
        let (from, to) = (users::Status::Suspended, users::Status::Active);
        assert!(users::change_status(tx, g.ann.user, from, to, at(3)).await.unwrap());
    }), Person ann.user);
    tells!("members::insert", |tx, g| Box::pin(async move {
        members::insert(tx, g.ann.workspace, g.bob.user, members::Role::Viewer, None, at(3)).await.unwrap();
    }), Person bob.user);
    tells!("members::set_role", |tx, g| Box::pin(async move {
        assert!(members::set_role(tx, g.ann.workspace, g.bob.user, members::Role::Admin, at(3)).await.unwrap());
    }), Person bob.user);
    tells!("members::set_status", |tx, g| Box::pin(async move {
        assert!(members::set_status(tx, g.ann.workspace, g.bob.user, members::Status::Suspended, at(3)).await.unwrap());
    }), Person bob.user);
    tells!("members::delete", |tx, g| Box::pin(async move {
        assert!(members::delete(tx, g.ann.workspace, g.bob.user, at(3)).await.unwrap());
    }), Person bob.user);
    tells!("members::insert_by_group", |tx, g| Box::pin(async move {
        members::insert_by_group(tx, g.ann.workspace, g.bob.user, members::Role::Viewer, at(3)).await.unwrap();
    }), Person bob.user);
    tells!("members::set_role_by_group", |tx, g| Box::pin(async move {
        assert!(members::set_role_by_group(tx, g.ann.workspace, g.bob.user, members::Role::Admin, at(3)).await.unwrap());
    }), Person bob.user);
    tells!("members::delete_by_group", |tx, g| Box::pin(async move {
        assert!(members::delete_by_group(tx, g.ann.workspace, g.bob.user, at(3)).await.unwrap());
    }), Person bob.user);
    tells!("workspaces::set_status", |tx, g| Box::pin(async move {
        assert!(workspaces::set_status(tx, g.ann.workspace, workspaces::Status::Suspended, at(3)).await.unwrap());
    }), Workspace ann.workspace);
    tells!("workspaces::change_status", |tx, g| Box::pin(async move {
        let (from, to) = (workspaces::Status::Suspended, workspaces::Status::Active);
        assert!(workspaces::change_status(tx, g.ann.workspace, from, to, at(3)).await.unwrap());
    }), Workspace ann.workspace);
    tells!("projects::suspend", |tx, g| Box::pin(async move {
        assert!(projects::suspend(tx, g.ann.project, at(3)).await.unwrap());
    }), Project ann.project);
    tells!("projects::resume", |tx, g| Box::pin(async move {
        assert!(projects::resume(tx, g.ann.project, at(3)).await.unwrap());
    }), Project ann.project);
    tells!("projects::set_plan", |tx, g| Box::pin(async move {
        assert!(projects::set_plan(tx, g.ann.project, "basic", "pro", at(3)).await.unwrap());
    }), Project ann.project);
    tells!("projects::set_status", |tx, g| Box::pin(async move {
        assert!(projects::set_status(tx, g.ann.project, projects::Status::Error, at(3)).await.unwrap());
    }), Project ann.project);
    tells!("projects::set_settings", |tx, g| Box::pin(async move {
        let (old, new) = (serde_json::json!({}), serde_json::json!({"a": 1}));
        assert!(projects::set_settings(tx, g.ann.project, &old, &new, at(3)).await.unwrap());
    }), Project ann.project);
    tells!("projects::transfer", |tx, g| Box::pin(async move {
        assert!(projects::transfer(tx, g.ann.project, g.ann.workspace, g.bob.workspace, at(3)).await.unwrap());
    }), Project ann.project, Members ann.workspace, Members bob.workspace);
    tells!("addresses::insert", |tx, g| Box::pin(async move {
        for port in [10, 11, 12] {
            addresses::insert(tx, &address(g.bob, port)).await.unwrap();
        }
    }), Project bob.project);
    tells!("addresses::release", |tx, g| Box::pin(async move {
        let own = addresses::of_project(tx, g.bob.project).await.unwrap();
        let port = addresses::release(tx, g.bob.project, own[0].id, at(3)).await.unwrap();
        assert_eq!(port, Some(10));
    }), Project bob.project);
    tells!("addresses::release_all", |tx, g| Box::pin(async move {
        assert_eq!(addresses::release_all(tx, g.bob.project, at(3)).await.unwrap(), 2);
    }), Project bob.project);
    tells!("domains::save", |tx, g| Box::pin(async move {
        let pending = domain(g.bob, "a.example.com", domains::State::Pending);
        domains::insert(tx, &pending).await.unwrap();
        let verified = domains::Domain { state: domains::State::Verified, ..pending };
        assert!(domains::save(tx, &verified, domains::State::Pending, at(3)).await.unwrap());
    }), Project bob.project);
    tells!("domains::set_certificate", |tx, g| Box::pin(async move {
        let own = domains::of_project(tx, g.bob.project).await.unwrap();
        let certificate = domains::UploadedCertificate {
            chain: "chain".to_owned(),
            sealed_key: SealedBytes(vec![1]),
            expires_at: at(9),
        };
        assert!(domains::set_certificate(tx, g.bob.project, own[0].id, &certificate, at(3)).await.unwrap());
    }), Project bob.project);
    tells!("domains::remove_certificate", |tx, g| Box::pin(async move {
        let own = domains::of_project(tx, g.bob.project).await.unwrap();
        assert!(domains::remove_certificate(tx, g.bob.project, own[0].id, at(3)).await.unwrap());
    }), Project bob.project);
    // Another project has the name now.
    tells!("takedowns::insert", |tx, g| Box::pin(async move {
        let takedown = takedowns::Takedown {
            hostname: "a.example.com".to_owned(),
            project_id: g.ann.project,
            reason: "phishing".to_owned(),
            created_by: g.ann.user,
            created_at: at(3),
        };
        assert!(takedowns::insert(tx, &takedown).await.unwrap());
    }), Project ann.project, Project bob.project);
    tells!("takedowns::delete", |tx, _g| Box::pin(async move {
        assert!(takedowns::delete(tx, "a.example.com", at(3)).await.unwrap().is_some());
    }), Project ann.project, Project bob.project);
    tells!("domains::delete", |tx, g| Box::pin(async move {
        let own = domains::of_project(tx, g.bob.project).await.unwrap();
        assert!(domains::delete(tx, g.bob.project, own[0].id, at(3)).await.unwrap());
    }), Project bob.project);
    tells!("domains::delete_all", |tx, g| Box::pin(async move {
        let verified = domain(g.bob, "b.example.com", domains::State::Verified);
        domains::insert(tx, &verified).await.unwrap();
        assert_eq!(domains::delete_all(tx, g.bob.project, at(3)).await.unwrap(), 1);
    }), Project bob.project);
    tells!("domains::release_quarantined", |tx, g| Box::pin(async move {
        let rested = domains::Domain {
            quarantine_until: Some(at(2)),
            ..domain(g.bob, "c.example.com", domains::State::Quarantined)
        };
        domains::insert(tx, &rested).await.unwrap();
        assert!(domains::release_quarantined(tx, "c.example.com", at(3)).await.unwrap());
    }), Project bob.project);
    tells!("projects::delete", |tx, g| Box::pin(async move {
        assert!(projects::delete(tx, g.bob.project, at(3)).await.unwrap());
    }), Project bob.project, Members bob.workspace);
    let tokens: [CredentialId; 3] = [id!(CredentialId), id!(CredentialId), id!(CredentialId)];
    for (index, token) in tokens.into_iter().enumerate() {
        commit!(database, |tx| credentials::insert(
            tx,
            &credential(ann, token)
        ))
        .unwrap();
        let (_, news) = read_changes(&database).await;
        assert_eq!(
            (news[0].kind, news[0].key.as_str()),
            (Kind::Credential, token.as_str()),
            "{index}"
        );
    }
    covered.insert("credentials::insert");
    let one = commit!(database, |tx| credentials::rotate(
        tx,
        ann.user,
        tokens[0],
        tokens[1],
        at(5),
        at(3)
    ));
    assert!(one.unwrap());
    assert_eq!(
        read_changes(&database).await.1[0].key,
        tokens[0].to_string()
    );
    covered.insert("credentials::rotate");
    assert!(
        commit!(database, |tx| credentials::revoke(
            tx,
            ann.user,
            tokens[0],
            at(4)
        ))
        .unwrap()
    );
    assert_eq!(
        read_changes(&database).await.1[0].key,
        tokens[0].to_string()
    );
    covered.insert("credentials::revoke");
    let purged = commit!(database, |tx| credentials::purge(tx, at(4), 10, at(5))).unwrap();
    assert_eq!(purged, 1);
    assert_eq!(
        read_changes(&database).await.1[0].key,
        tokens[0].to_string()
    );
    covered.insert("credentials::purge");
    let chain = [id!(CredentialId), id!(CredentialId)];
    for (token, issuer) in chain.into_iter().zip([None, Some(chain[0])]) {
        let issued = credentials::Credential {
            issued_by: issuer,
            ..credential(ann, token)
        };
        commit!(database, |tx| credentials::insert(tx, &issued)).unwrap();
    }
    let mut revoked = commit!(database, |tx| credentials::revoke_chain(
        tx,
        ann.user,
        chain[0],
        at(4)
    ))
    .unwrap();
    revoked.sort_by_key(|id| *id != chain[0]);
    assert_eq!(revoked, chain);
    let (_, news) = read_changes(&database).await;
    assert!(
        chain
            .iter()
            .all(|id| news.iter().any(|one| one.key == id.as_str()))
    );
    covered.insert("credentials::revoke_chain");
    let all = commit!(database, |tx| credentials::revoke_all(tx, ann.user, at(4))).unwrap();
    let told_keys: Vec<_> = read_changes(&database)
        .await
        .1
        .into_iter()
        .map(|change| change.key)
        .collect();
    assert_eq!(
        (all, told_keys),
        (2, vec![tokens[1].to_string(), tokens[2].to_string()])
    );
    covered.insert("credentials::revoke_all");
    tells!("revoked_tokens::revoke", |tx, _| Box::pin(async move {
        assert!(revoked_tokens::revoke(tx, "tok_1", at(9), at(3)).await.unwrap());
    }), Ended "tok_1");
    let open: Vec<Session> = (1..=4).map(|n| session(ann, n)).collect();
    for one in &open {
        commit!(database, |tx| sessions::insert(tx, one)).unwrap();
    }
    let before = read_changes(&database).await.0;
    assert!(commit!(database, |tx| sessions::end(tx, hash(1), at(3))).unwrap());
    assert!(
        commit!(database, |tx| sessions::end_one(
            tx,
            ann.user,
            open[1].id,
            at(3)
        ))
        .unwrap()
    );
    // The browser of that session may have tunnel sessions as well.
    let (version, news) = read_changes(&database).await;
    let news: Vec<_> = news
        .iter()
        .map(|one| (one.kind, one.key.as_str()))
        .collect();
    let told_of = [
        (Kind::Person, ann.user.as_str()),
        (Kind::Ended, open[1].id.as_str()),
    ];
    assert_eq!((version, &news[..]), (before + 2, &told_of[..]));
    let keep = Some(open[2].id);
    assert_eq!(
        commit!(database, |tx| sessions::end_all(tx, ann.user, keep, at(3))).unwrap(),
        1
    );
    let news: Vec<_> = read_changes(&database)
        .await
        .1
        .into_iter()
        .map(|change| change.kind)
        .collect();
    assert_eq!(news, [Kind::Person, Kind::Ended]);
    commit!(database, |tx| sessions::insert(tx, &open[0])).unwrap();
    let trimmed = commit!(database, |tx| sessions::trim(tx, ann.user, (1, 9), at(3)));
    assert_eq!(trimmed.unwrap(), 1);
    let news = read_changes(&database).await.1;
    let kinds: Vec<_> = news.into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [Kind::Ended]);
    let other = session(ann, 5);
    commit!(database, |tx| sessions::insert(tx, &other)).unwrap();
    let is_ended = commit!(database, |tx| sessions::end_by_id(tx, other.id, at(3)));
    assert!(is_ended.unwrap());
    let news = read_changes(&database).await.1;
    let news: Vec<_> = news.into_iter().map(|one| (one.kind, one.key)).collect();
    assert_eq!(news, [(Kind::Ended, other.id.to_string())]);
    covered.extend(["sessions::end", "sessions::end_one", "sessions::end_all"]);
    covered.insert("sessions::end_by_id");
    covered.insert("sessions::trim");
    tells!("projects::insert", |tx, g| Box::pin(async move {
        projects::insert(tx, &new_project(latest(), g.ann, "new")).await.unwrap();
    }), Project latest(), Members ann.workspace);
    tells!("signing_keys::insert", |tx, _| Box::pin(async move {
        assert!(signing_keys::insert(tx, &key("a", signing_keys::Status::Active)).await.unwrap());
        assert!(signing_keys::insert(tx, &key("b", signing_keys::Status::Next)).await.unwrap());
    }), Keys "");
    tells!("signing_keys::rotate", |tx, _| Box::pin(async move {
        assert!(signing_keys::rotate(tx, "a", "b", at(4)).await.unwrap());
    }), Keys "");
    tells!("signing_keys::purge", |tx, _| Box::pin(async move {
        assert_eq!(signing_keys::purge(tx, at(5), at(5)).await.unwrap(), 1);
    }), Keys "");
    let id = WebttyServerId::new(7, [7; 10]);
    tells!("webtty_servers::insert", |tx, g| Box::pin(async move {
        webtty_servers::insert(tx, &server(g.ann)).await.unwrap();
    }), WebttyServer id);
    tells!("webtty_servers::enrol", |tx, g| Box::pin(async move {
        let keys = serde_json::json!({});
        let id = server(g.ann).id;
        assert!(webtty_servers::enrol(tx, g.ann.project, id, &keys, at(3)).await.unwrap());
    }), WebttyServer id);
    tells!("webtty_servers::update", |tx, g| Box::pin(async move {
        assert!(webtty_servers::update(tx, &server(g.ann)).await.unwrap());
    }), WebttyServer id);
    tells!("webtty_servers::delete", |tx, g| Box::pin(async move {
        let id = server(g.ann).id;
        assert!(webtty_servers::delete(tx, g.ann.project, id, at(3)).await.unwrap());
    }), WebttyServer id);
    assert_eq!(covered, REPLICATED_FUNCTIONS.iter().copied().collect());

    // Silent functions do not advance the log, and neither do uncommitted changes.
    let before = read_changes(&database).await.0;
    commit!(database, |tx| users::set_name(tx, ann.user, "Ann", at(5))).unwrap();
    let mut tx = database.begin().await;
    assert!(
        users::set_password(&mut tx, ann.user, None, at(5))
            .await
            .unwrap()
    );
    drop(tx);
    assert_eq!(read_changes(&database).await.0, before);
}

/// Objects that the changes apply to.
#[derive(Clone, Copy)]
struct ChangeTargets {
    ann: Person,
    bob: Person,
}

type WriteFuture<'t> = std::pin::Pin<Box<dyn Future<Output = ()> + Send + 't>>;

/// Later than all ids of this test.
fn latest() -> ProjectId {
    ProjectId::new(1 << 40, [7; 10])
}

fn address(person: Person, port: i64) -> addresses::Address {
    addresses::Address {
        id: id!(AddressId),
        project_id: person.project,
        cluster_domain: "c".to_owned(),
        port,
        created_at: at(3),
    }
}

fn domain(person: Person, hostname: &str, state: domains::State) -> domains::Domain {
    domains::Domain {
        created_at: at(3),
        next_check_at: at(3),
        ..crate::entities::domains::domain(person, hostname, state)
    }
}

fn server(person: Person) -> WebttyServer {
    WebttyServer {
        id: WebttyServerId::new(7, [7; 10]),
        project_id: person.project,
        name: "box".to_owned(),
        description: None,
        status: "active".to_owned(),
        recording_policy: "recorded".to_owned(),
        encryption_policy: "disabled".to_owned(),
        access_policy: "project_members".to_owned(),
        labels: serde_json::json!({}),
        enrolment: None,
        enrolled_at: None,
        created_by: person.user,
        created_at: at(3),
        updated_at: at(3),
    }
}

fn credential(person: Person, id: CredentialId) -> Credential {
    Credential {
        id,
        user_id: person.user,
        workspace_id: None,
        kind: credentials::Kind::App,
        name: "x".to_owned(),
        token_hash: None,
        token_endpoint: None,
        public_key: Some("pem".to_owned()),
        certificate_fingerprint: None,
        certificate: None,
        issuer_fingerprint: None,
        permissions: None,
        resources: None,
        created_at: at(1),
        updated_at: at(1),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
        last_used_ip: None,
        signing_key: None,
        rotated_to: None,
        oauth_client: None,
        issued_by: None,
        root_id: None,
    }
}

fn session(person: Person, number: u8) -> Session {
    Session {
        id: id!(SessionId),
        hash: hash(number),
        user_id: person.user,
        user_agent: None,
        ip: None,
        second_factor_at: None,
        proved_at: at(1),
        created_at: at(1),
        rotated_at: at(1),
        last_seen_at: at(1),
        expires_at: at(1000),
        permissions: None,
        resources: None,
    }
}

fn key(kid: &str, status: signing_keys::Status) -> SigningKey {
    SigningKey {
        kid: kid.to_owned(),
        algorithm: "EdDSA".to_owned(),
        sealed_private_key: SealedBytes(vec![1]),
        public_jwk: serde_json::json!({}),
        status,
        created_at: at(2),
        activated_at: None,
        retired_at: None,
    }
}

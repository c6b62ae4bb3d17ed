use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn folder() -> (tempfile::TempDir, Folder) {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::in_home(home.path());
    (home, folder)
}

fn key(byte: u8) -> PublicKey {
    PublicKey::new([byte; KEY_LEN])
}

fn entry(byte: u8, name: &str) -> Entry {
    Entry {
        key: key(byte),
        name: name.to_owned(),
    }
}

#[test]
fn an_identity_is_read_back_and_never_overwritten() {
    let (_home, folder) = folder();
    assert_eq!(folder.identities().unwrap(), [""; 0]);
    let path = folder.identity("laptop").unwrap();
    let made = create_identity(&path).unwrap();
    let read = read_identity(&path).unwrap();
    assert_eq!(read.public(), made.public());
    assert_eq!(read.expose_private(), made.expose_private());
    assert_eq!(folder.identities().unwrap(), ["laptop"]);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(
        create_identity(&path),
        Err(KeyError::Exists { .. })
    ));
}

#[test]
fn a_file_that_other_users_can_read_is_refused() {
    let (_home, folder) = folder();
    let path = folder.identity("a").unwrap();
    create_identity(&path).unwrap();
    for mode in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(read_identity(&path), Err(KeyError::Shared { .. })));
    }
}

#[test]
fn a_private_key_must_match_its_public_key() {
    let (_home, folder) = folder();
    let [one, two] = ["one", "two"].map(|name| folder.identity(name).unwrap());
    create_identity(&one).unwrap();
    create_identity(&two).unwrap();
    let texts = [&one, &two].map(|path| std::fs::read_to_string(path).unwrap());
    let mixed = [
        texts[0].lines().next().unwrap(),
        texts[1].lines().nth(1).unwrap(),
    ]
    .join("\n");
    std::fs::write(&one, &mixed).unwrap();
    assert!(matches!(
        read_identity(&one),
        Err(KeyError::Mismatch { .. })
    ));
    for text in ["", "public x", "private", &texts[1].repeat(2), "secret abc"] {
        std::fs::write(&one, text).unwrap();
        assert!(
            matches!(read_identity(&one), Err(KeyError::Line { .. })),
            "{text}"
        );
    }
}

#[test]
fn keys_are_read_added_and_removed() {
    let (_home, folder) = folder();
    let path = folder.known_servers();
    assert_eq!(KeyList::read(&path).unwrap().entries(), []);
    KeyList::add(&path, entry(1, "build")).unwrap();
    KeyList::add(&path, entry(2, "box.example:8443")).unwrap();
    KeyList::add(&path, entry(1, "build")).unwrap();
    let list = KeyList::read(&path).unwrap();
    assert_eq!(
        list.entries(),
        [entry(1, "build"), entry(2, "box.example:8443")]
    );
    assert!(list.contains(&key(1)) && !list.contains(&key(3)));
    assert_eq!(list.of_name("build").collect::<Vec<_>>(), [&key(1)]);
    assert!(matches!(
        KeyList::add(&path, entry(3, "build")),
        Err(KeyError::Taken { .. })
    ));
    assert_eq!(
        KeyList::remove(&path, &key_text(&key(1))).unwrap(),
        [entry(1, "build")]
    );
    assert!(matches!(
        KeyList::remove(&path, "build"),
        Err(KeyError::Unknown { .. })
    ));
    assert_eq!(KeyList::remove(&path, "box.example:8443").unwrap().len(), 1);
    assert_eq!(KeyList::read(&path).unwrap().entries(), []);
}

/// An incomplete list would admit or reject the wrong clients.
#[test]
fn one_invalid_line_invalidates_the_list() {
    let (_home, folder) = folder();
    let path = folder.authorized_clients();
    KeyList::add(&path, entry(1, "a")).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("# people\n\n{good}")).unwrap();
    assert_eq!(KeyList::read(&path).unwrap().entries(), [entry(1, "a")]);
    for line in ["abc b", "AQEB", &format!("{} a b", key_text(&key(1)))] {
        std::fs::write(&path, format!("# people\n{good}{line}\n")).unwrap();
        let error = KeyList::read(&path).unwrap_err();
        assert!(matches!(error, KeyError::Line { line: 3, .. }), "{error}");
    }
}

#[test]
fn concurrent_additions_both_succeed() {
    let (_home, folder) = folder();
    let path = folder.authorized_clients();
    std::thread::scope(|scope| {
        for byte in 0..16 {
            let path = &path;
            scope.spawn(move || KeyList::add(path, entry(byte, &format!("c{byte}"))).unwrap());
        }
    });
    assert_eq!(KeyList::read(&path).unwrap().entries().len(), 16);
}

#[test]
fn keys_and_names_are_validated() {
    assert_eq!(parse_key(&key_text(&key(7))).unwrap(), key(7));
    for text in [
        "",
        "abc",
        &format!("{}=", key_text(&key(7))),
        &"A".repeat(44),
    ] {
        assert!(parse_key(text).is_err(), "{text}");
    }
    let folder = Folder::new("/x");
    for name in ["", "..", ".hidden", "a/b", "a:b", "a b", &"a".repeat(254)] {
        assert!(folder.identity(name).is_err(), "{name}");
    }
    assert_eq!(key_id_text(&key(7)).len(), 22);
    assert_eq!(seal_context(Some("srv_1")), b"srv_1");
    assert_eq!(seal_context(None), b"");
}

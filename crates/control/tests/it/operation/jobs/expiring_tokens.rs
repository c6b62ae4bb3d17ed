//! Mails about tokens that expire soon.

use super::*;

both! {
    an_owner_is_notified_once_of_an_expiring_token,
    a_mail_that_could_not_be_sent_is_sent_later,
}

/// A new token that is valid for some days. Returns its id.
async fn token(control: &TestControl, owner: &Person, name: &str, days: i64) -> String {
    let end = control.now() + SignedDuration::from_hours(24 * days);
    let body = json!({"type": "pat", "name": name, "expiresAt": end.to_string()});
    let made = control.post("/api/credentials", &owner.token, &body).await;
    let made = made.expect(201);
    made["credential"]["id"].as_str().unwrap().to_owned()
}

/// The mails about expiring tokens so far.
async fn notices(control: &TestControl) -> Vec<String> {
    let mut mails = control.mails().await;
    mails.retain(|mail| mail.contains("Subject: Tokens of your account expire soon"));
    mails
}

async fn one_pass(control: &TestControl) {
    pass(&control.app, &CancellationToken::new()).await;
}

/// Seven days before the end, with all tokens of the owner in one mail.
async fn an_owner_is_notified_once_of_an_expiring_token(control: TestControl) {
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let laptop = token(&control, &ada, "laptop", 30).await;
    let build = token(&control, &ada, "build", 30).await;
    for (owner, name, days) in [(&ada, "later", 31), (&ada, "brief", 7), (&eve, "hers", 30)] {
        token(&control, owner, name, days).await;
    }
    let revoked = token(&control, &ada, "revoked", 30).await;
    let path = format!("/api/credentials/{revoked}");
    assert_eq!(control.delete(&path, &ada.token).await.status, 204);
    let rotated = token(&control, &ada, "rotated", 30).await;
    let path = format!("/api/credentials/{rotated}/rotate");
    let overlap = json!({"overlapSeconds": 604_800});
    let answer = control.post(&path, &ada.token, &overlap).await;
    assert!(answer.status < 300, "{answer:?}");
    let mut tx = control.app.store.begin().await.unwrap();
    let status = store::users::Status::Suspended;
    store::users::set_status(&mut tx, eve.user, status, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();

    control.clock.advance(23 * DAY - 1);
    one_pass(&control).await;
    assert_eq!(notices(&control).await, [""; 0]);

    control.clock.advance(1);
    one_pass(&control).await;
    let [mail] = &notices(&control).await[..] else {
        panic!("one mail")
    };
    assert!(mail.contains("To: ada@example.com"), "{mail}");
    for id in [&laptop, &build] {
        assert!(mail.contains(id.as_str()), "{mail}");
    }
    assert!(mail.contains("2026-01-31 00:00 UTC"), "{mail}");
    // The rotation of such a token is refused.
    let advice = "To replace the token of an application, link it again.";
    assert!(mail.contains(advice), "{mail}");
    // The successor of a rotated token has its name.
    for other in ["later", "brief", "revoked", rotated.as_str()] {
        assert!(!mail.contains(other), "{other}: {mail}");
    }
    one_pass(&control).await;
    assert_eq!(notices(&control).await.len(), 1, "once");

    control.clock.advance(DAY);
    one_pass(&control).await;
    let all = notices(&control).await;
    assert_eq!(all.len(), 2);
    assert!(
        all[1].contains("later") && !all[1].contains("laptop"),
        "{}",
        all[1]
    );
}

async fn a_mail_that_could_not_be_sent_is_sent_later(control: TestControl) {
    let ada = control.person("ada").await;
    token(&control, &ada, "laptop", 30).await;
    control.mails().await;
    let folder = control.directory().join("data/mail");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "not a folder").unwrap();
    control.clock.advance(23 * DAY);
    one_pass(&control).await;
    control.app.people.finish().await;
    std::fs::remove_file(&folder).unwrap();
    one_pass(&control).await;
    assert_eq!(notices(&control).await.len(), 1);
}

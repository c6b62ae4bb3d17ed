//! The ledger.

use store::billing::{self, Change, Invoice, Subscription};
use store::{Conflict, Paging};

use crate::database::{Database, both, commit};
use crate::world::{Person, at, id};

fn subscription(person: Person) -> Subscription {
    Subscription {
        id: id!(SubscriptionId),
        workspace_id: person.workspace,
        status: "active".to_owned(),
        currency: "EUR".to_owned(),
        monthly_amount: 900,
        items: serde_json::json!([{"plan": "pro"}]),
        started_at: at(0),
        updated_at: at(0),
        ended_at: None,
        renews_at: None,
    }
}

both! {
    a_workspace_has_one_open_subscription,
    a_period_is_renewed_once,
    changes_and_invoices_are_read_by_their_workspace,
}

async fn a_workspace_has_one_open_subscription(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let first = subscription(ann);
    commit!(database, |tx| billing::subscribe(tx, &first)).unwrap();
    let mut tx = database.begin().await;
    let refused = billing::subscribe(&mut tx, &subscription(ann))
        .await
        .unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::AlreadySubscribed));
    drop(tx);
    let mut tx = database.begin().await;
    let dearer = Subscription {
        monthly_amount: 1800,
        updated_at: at(1),
        ..first.clone()
    };
    assert!(billing::update(&mut tx, 900, &dearer).await.unwrap());
    assert!(
        !billing::update(&mut tx, 900, &dearer).await.unwrap(),
        "based on an old amount"
    );
    assert_eq!(
        billing::open(&mut tx, ann.workspace).await.unwrap(),
        Some(dearer)
    );
    assert!(
        billing::end(&mut tx, first.id, "canceled", at(2))
            .await
            .unwrap()
    );
    assert!(
        !billing::end(&mut tx, first.id, "canceled", at(2))
            .await
            .unwrap()
    );
    assert_eq!(billing::open(&mut tx, ann.workspace).await.unwrap(), None);
    billing::subscribe(&mut tx, &subscription(ann))
        .await
        .unwrap();
}

async fn changes_and_invoices_are_read_by_their_workspace(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let paid = subscription(ann);
    let change = Change {
        id: id!(SubscriptionChangeId),
        subscription_id: paid.id,
        workspace_id: ann.workspace,
        project_id: Some(ann.project),
        kind: "project_added".to_owned(),
        amount: -5,
        details: serde_json::json!({}),
        created_at: at(1),
    };
    let invoice = Invoice {
        id: id!(InvoiceId),
        workspace_id: ann.workspace,
        subscription_id: paid.id,
        status: "open".to_owned(),
        currency: "EUR".to_owned(),
        amount: i64::MAX,
        lines: serde_json::json!([]),
        period_start: at(0),
        period_end: at(10),
        created_at: at(1),
    };
    let mut tx = database.begin().await;
    billing::subscribe(&mut tx, &paid).await.unwrap();
    billing::add_change(&mut tx, &change).await.unwrap();
    billing::add_invoice(&mut tx, &invoice).await.unwrap();
    let paging = Paging::DEFAULT;
    assert_eq!(
        billing::changes(&mut tx, ann.workspace, paging)
            .await
            .unwrap()
            .items,
        [change]
    );
    assert_eq!(
        billing::invoices(&mut tx, ann.workspace, paging)
            .await
            .unwrap()
            .items,
        std::slice::from_ref(&invoice)
    );
    assert_eq!(
        billing::changes(&mut tx, bob.workspace, paging)
            .await
            .unwrap()
            .total,
        0
    );
    assert_eq!(
        billing::invoices(&mut tx, bob.workspace, paging)
            .await
            .unwrap()
            .total,
        0
    );
    assert!(
        billing::set_invoice_status(&mut tx, invoice.id, "open", "paid")
            .await
            .unwrap()
    );
    assert!(
        !billing::set_invoice_status(&mut tx, invoice.id, "open", "paid")
            .await
            .unwrap()
    );
}

async fn a_period_is_renewed_once(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (new, old) = (
        Subscription {
            renews_at: Some(at(10)),
            ..subscription(ann)
        },
        subscription(bob),
    );
    commit!(database, |tx| billing::subscribe(tx, &new)).unwrap();
    commit!(database, |tx| billing::subscribe(tx, &old)).unwrap();
    let mut tx = database.begin().await;
    let due = async |tx: &mut store::Tx, now| {
        let due = billing::due(tx, at(now), 10).await.unwrap();
        due.into_iter()
            .map(|due| due.workspace_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(due(&mut tx, 9).await, [bob.workspace], "unknown is due");
    let renewed = billing::renew(&mut tx, old.id, None, at(20), at(9)).await;
    assert!(renewed.unwrap());
    assert_eq!(due(&mut tx, 10).await, [ann.workspace]);
    for expected in [true, false] {
        let renewed = billing::renew(&mut tx, new.id, Some(at(10)), at(20), at(10)).await;
        assert_eq!(renewed.unwrap(), expected);
    }
    assert!(due(&mut tx, 19).await.is_empty());
    let now = billing::open(&mut tx, ann.workspace)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(now.renews_at, Some(at(20)));
}

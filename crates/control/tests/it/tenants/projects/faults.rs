//! Creations that are cancelled.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use serde_json::json;

use super::{names, order, place, preview};
use crate::support::{TestControl, both, next};

both! {
    cp_4a_a_creation_cancelled_anywhere_is_all_or_nothing,
}

/// CP-4a: a creation is cancelled at any point, before or after its commit, and then repeated. The
/// result is one project, one used slot and one charge.
async fn cp_4a_a_creation_cancelled_anywhere_is_all_or_nothing(control: TestControl) {
    let catalog =
        json!({"regions": [{"provider": "aws", "region": "eu", "capacity": {"pro": 1000}}]});
    let control = control.configured(json!({"catalog": catalog})).await;
    let person = control.person("ada").await;
    control.subscribe(person.workspace).await;
    let (mut made, mut cut_off) = (0, 0);
    // The request can be cancelled at each of its awaits. Their number varies, because an answer
    // may be ready before it is awaited.
    for polls in (1..=12).cycle().take(36) {
        // Each project changes the paid amount, which makes earlier previews stale.
        let mut order = order(&preview(&control, &person, "pro").await);
        order["idempotencyKey"] = json!(format!("cut-{}", next()));
        cut_off += usize::from(!poll_and_drop(place(&control, &person, &order), polls).await);
        let project = place(&control, &person, &order).await.expect(201);
        assert_eq!(place(&control, &person, &order).await.expect(201), project);
        made += 1;
        assert_eq!(names(&control, &person).await.len(), made);
    }
    assert!(cut_off > 0, "no creation was cancelled");
    let mut conn = control.app.store.read().await.unwrap();
    let places = store::capacity::all(&mut conn).await.unwrap();
    let place = places.iter().find(|place| place.plan == "pro").unwrap();
    assert_eq!(place.used, i64::try_from(made).unwrap());
    let paging = store::Paging::new(1, 1).unwrap();
    let invoices = store::billing::invoices(&mut conn, person.workspace, paging)
        .await
        .unwrap();
    assert_eq!(invoices.total, u64::try_from(made).unwrap());
}

/// Polls the future this many times and drops it. Returns true if it was finished by then.
async fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending => {
            left -= 1;
            if left == 0 {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

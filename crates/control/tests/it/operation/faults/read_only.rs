//! A PostgreSQL that accepts reads and no writes, such as a standby.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::*;
use crate::postgres;

/// Runs a statement on the database, and ends all sessions that started before it.
async fn set(url: &str, setting: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let name = sqlx::query_scalar::<_, String>("SELECT current_database()::text")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let text = format!("ALTER DATABASE {name} {setting}");
    sqlx::query("SET default_transaction_read_only = off")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query(AssertSqlSafe(text))
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn end_sessions(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc' AND datname = current_database()")
        .execute(&mut connection)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_postgres_is_read_and_written_again_when_it_can_be() {
    let url = postgres::new_database().await;
    let control = TestControl::start_on(SHOP, Some(&url)).await;
    let person = customer(&control).await;
    let order = order(&control, &person).await;
    set(&url, "SET default_transaction_read_only = on").await;
    end_sessions(&url).await;
    // The first request after a session's end may fail, if the connection was just in use.
    let mut first = in_time(who(&control, &person)).await;
    for _ in 0..16 {
        if first.status != 200 {
            assert_unavailable(&first);
            first = in_time(who(&control, &person)).await;
        }
    }
    for _ in 0..3 {
        assert_eq!(in_time(who(&control, &person)).await.status, 200);
        assert_eq!(in_time(list(&control, &person)).await.status, 200);
        assert_unavailable(&in_time(create(&control, &person, &order)).await);
    }
    // A token that was not used for a while is also accepted, though its use cannot be recorded.
    control.clock.advance(3600);
    assert_eq!(in_time(who(&control, &person)).await.status, 200);

    set(&url, "RESET default_transaction_read_only").await;
    // Sessions that started read-only are not reused for writes.
    let mut answer = in_time(create(&control, &person, &order)).await;
    for _ in 0..20 {
        if answer.status == 201 {
            break;
        }
        assert_unavailable(&answer);
        answer = in_time(create(&control, &person, &order)).await;
    }
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_books(&control, &person, 1).await;
}

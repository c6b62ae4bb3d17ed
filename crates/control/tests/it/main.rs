//! The control plane through its real router and a real database for each test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test ends where it fails"
)]

mod browser;
mod callers;
mod contracts;
mod credentials;
mod pages;
#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
mod projects;
mod records;
mod reset;
mod second_factor;
mod settings;
mod sign_in;
mod support;
mod tokens;
mod turn;
mod walk;
mod whoami;
mod workspaces;
mod world;

/// Runs each test on the embedded database and on PostgreSQL.
macro_rules! both {
    ($($(#[doc = $doc:literal])* async fn $name:ident($url:ident) $body:block)+) => {
        $($(#[doc = $doc])* async fn $name($url: Option<String>) $body)+

        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(None).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(Some(crate::postgres::new_database().await)).await;
                }
            )+
        }
    };
}
pub(crate) use both;

//! The control plane through its router, on both databases.

#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
mod projects;
mod records;
mod settings;
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

//! How many projects of a plan a region has room for.

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::row::record;
use crate::sql::{sql, statements};

record! {
    /// Room of one plan in one region.
    pub struct Capacity from "capacity" {
        /// Provider.
        pub provider: String,
        /// Region; empty for a plan that is not bound to one.
        pub region: String,
        /// Plan.
        pub plan: String,
        /// How many there may be; none: any number.
        pub total: Option<i64>,
        /// How many there are.
        pub used: i64,
    }
}

impl Capacity {
    /// Whether one more fits.
    pub fn has_room(&self) -> bool {
        self.total.is_none_or(|total| self.used < total)
    }
}

statements! {
    ALL = "SELECT provider, region, plan, total, used FROM capacity ORDER BY provider, region, plan";
    SET = "INSERT INTO capacity (provider, region, plan, total, used) VALUES ($1, $2, $3, $4, 0) \
        ON CONFLICT (provider, region, plan) DO UPDATE SET total = excluded.total";
    TAKE = "UPDATE capacity SET used = used + 1 WHERE provider = $1 AND region = $2 AND plan = $3 \
        AND (total IS NULL OR used < total)";
    GIVE_BACK = "UPDATE capacity SET used = used - 1 WHERE provider = $1 AND region = $2 AND plan = $3 AND used > 0";
}

/// All that is configured.
pub async fn all(conn: &mut Conn) -> Result<Vec<Capacity>, Error> {
    sql(ALL).all(conn).await
}

/// Sets the limit, at start, from the configuration; what is used stays. A limit below what is
/// used takes nothing from anybody.
pub async fn set(
    tx: &mut Tx,
    provider: &str,
    region: &str,
    plan: &str,
    total: Option<i64>,
) -> Result<(), Error> {
    sql(SET)
        .bind(provider)
        .bind(region)
        .bind(plan)
        .bind(total)
        .execute(tx)
        .await?;
    Ok(())
}

/// Takes one. False when there is none left, or the place is not configured.
pub async fn take(tx: &mut Tx, provider: &str, region: &str, plan: &str) -> Result<bool, Error> {
    sql(TAKE)
        .bind(provider)
        .bind(region)
        .bind(plan)
        .changed(tx)
        .await
}

/// Gives one back.
pub async fn give_back(
    tx: &mut Tx,
    provider: &str,
    region: &str,
    plan: &str,
) -> Result<bool, Error> {
    sql(GIVE_BACK)
        .bind(provider)
        .bind(region)
        .bind(plan)
        .changed(tx)
        .await
}

//! Capacity of the regions for projects of each plan.

use crate::database::connection::{Conn, Tx};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// Capacity for one plan in one region.
    pub struct Capacity from "capacity" {
        /// Provider.
        pub provider: String,
        /// Region; empty for a plan that is not bound to one.
        pub region: String,
        /// Plan.
        pub plan: String,
        /// Maximum number of projects; none: unlimited.
        pub total: Option<i64>,
        /// Current number of projects.
        pub used: i64,
    }
}

impl Capacity {
    /// True if there is capacity for one more.
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

/// All configured capacities.
pub async fn all(conn: &mut Conn) -> Result<Vec<Capacity>, Error> {
    sql(ALL).all(conn).await
}

/// Sets the limit from the configuration at start; the current number stays. A limit below the
/// current number does not remove any project.
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

/// Reserves capacity for one project. False if there is none left, or if the region is not
/// configured.
pub async fn take(tx: &mut Tx, provider: &str, region: &str, plan: &str) -> Result<bool, Error> {
    sql(TAKE)
        .bind(provider)
        .bind(region)
        .bind(plan)
        .changed(tx)
        .await
}

/// Releases the capacity of one project.
pub async fn release(tx: &mut Tx, provider: &str, region: &str, plan: &str) -> Result<bool, Error> {
    sql(GIVE_BACK)
        .bind(provider)
        .bind(region)
        .bind(plan)
        .changed(tx)
        .await
}

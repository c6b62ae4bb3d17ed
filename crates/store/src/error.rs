//! Errors, grouped by possible reactions of a caller.

use std::fmt;
use std::io::ErrorKind;

/// A failed operation. Its transaction is rolled back once the `Tx` is dropped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used now; the same call may work later.
    #[error("the database is not available: {reason}")]
    Unavailable {
        /// The reason, for the operator and for the response status.
        reason: Reason,
        /// The error of the driver.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The stored data does not allow the operation; the caller has to change the request.
    #[error(transparent)]
    Conflict(Conflict),
    /// A defect of the program or of the stored data. The text is only for the operator.
    #[error(transparent)]
    Bug(#[from] Bug),
}

/// Reason why the database cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No connection, or it broke.
    Connection,
    /// It does not respond.
    Silent,
    /// Another writer locks it for longer than the time limit, or there was a deadlock.
    Busy,
    /// The disk is full, or the database has reached its size limit.
    Full,
    /// The database is read-only.
    ReadOnly,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "no connection",
            Self::Silent => "no answer",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
        })
    }
}

/// A program or data error.
#[derive(Debug, thiserror::Error)]
pub enum Bug {
    /// A row that this version cannot read.
    #[error("{table}.{column} of row {row}: {message}")]
    Row {
        /// Table, or the name of the query if it joins several.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Key of the row, if it has a readable one.
        row: String,
        /// Description of the error. It never repeats the value, because columns contain secrets.
        message: String,
    },
    /// A statement that the database refuses.
    #[error("the database rejected a statement")]
    Statement(#[source] sqlx::Error),
    /// A statement was attempted in a transaction after an earlier one had failed.
    #[error("the transaction has ended before")]
    Aborted,
    /// This version does not support the schema.
    #[error("schema: {0}")]
    Schema(String),
    /// The address of the database is invalid.
    #[error("database address: {0}")]
    Address(String),
    /// A file of the embedded database is in use, damaged, or of another kind.
    #[error("{0}")]
    File(String),
}

/// Constraints of the database, by name.
macro_rules! conflicts {
    ($($(#[doc = $doc:literal])* $name:ident $postgres:literal $sqlite:literal $says:literal)+) => {
        /// A constraint that the operation would have violated.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        pub enum Conflict {
            $($(#[doc = $doc])* #[error($says)] $name,)+
            /// A row that is referred to does not exist, or is still referred to.
            #[error("a referenced row is missing, or a row is still referenced")]
            Reference,
        }

        impl Conflict {
            /// Every unique constraint: its name on PostgreSQL, its columns as SQLite lists them,
            /// and the variant.
            pub(crate) const UNIQUE: &[(&str, &str, Self)] = &[$(($postgres, $sqlite, Self::$name)),+];
        }
    };
}

conflicts! {
    /// Another user has this email address, ignoring case.
    EmailTaken "users_email_key_unique" "users.email_key" "the email address is already in use"
    /// The external identity belongs to another user.
    IdentityTaken "identities_pkey" "identities.issuer, identities.subject" "the identity is linked already"
    /// The passkey is registered already.
    PasskeyTaken "passkeys_credential_unique" "passkeys.credential_id" "the passkey is registered already"
    /// The user is a member of the workspace already.
    AlreadyMember "members_pkey" "members.workspace_id, members.user_id" "the user is a member already"
    /// Another project has, or had, this endpoint; the caller generates a new one.
    EndpointTaken "projects_endpoint_unique" "projects.endpoint" "the project endpoint is taken"
    /// The workspace has a subscription already.
    AlreadySubscribed "subscriptions_one_open" "subscriptions.workspace_id" "the workspace has a subscription already"
    /// Another credential of the same person has this certificate.
    CertificateTaken "credentials_certificate_of_user" "credentials.certificate_sha256, credentials.user_id" "the certificate is registered already"
    /// Another credential has this token endpoint; the caller generates a new one.
    TokenEndpointTaken "credentials_endpoint_unique" "credentials.token_endpoint" "the token endpoint is taken"
    /// The port is reserved already.
    PortTaken "addresses_port_unique" "addresses.cluster_domain, addresses.port" "the port is reserved already"
    /// The project has a domain of this name.
    DomainExists "domains_project_hostname_unique" "domains.project_id, domains.hostname" "the project has this domain already"
    /// Another project holds the domain.
    DomainTaken "domains_held_unique" "domains.hostname" "the domain is not available"
    /// Another device waits with this code; the caller generates a new one.
    UserCodeTaken "oauth_device_grants_user_code_unique" "oauth_device_grants.user_code_hash" "the code is taken"
    /// The project has a `WebTTY` server of this name.
    ServerNameTaken "webtty_servers_name_unique" "webtty_servers.project_id, webtty_servers.name" "a server of this name exists already"
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match classify(&error) {
            Class::Unavailable(reason) => Self::Unavailable {
                reason,
                source: Some(error),
            },
            Class::Conflict(conflict) => Self::Conflict(conflict),
            Class::Bug => Self::Bug(Bug::Statement(error)),
        }
    }
}

impl Error {
    /// True if the same call may work later without any other change.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The violated constraint, if any.
    pub fn conflict(&self) -> Option<Conflict> {
        match self {
            Self::Conflict(conflict) => Some(*conflict),
            Self::Unavailable { .. } | Self::Bug(_) => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Class {
    Unavailable(Reason),
    Conflict(Conflict),
    Bug,
}

fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Io(error) => Class::Unavailable(match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Reason::Full,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Reason::ReadOnly,
            _ => Reason::Connection,
        }),
        // `Protocol`: the bytes on the connection were invalid, so the connection cannot be used
        // any more.
        sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::BeginFailed
        | sqlx::Error::WorkerCrashed => Class::Unavailable(Reason::Connection),
        sqlx::Error::PoolTimedOut => Class::Unavailable(Reason::Busy),
        sqlx::Error::PoolClosed => Class::Unavailable(Reason::Connection),
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            // SQLite's codes are numbers, PostgreSQL's have five characters.
            if code.len() == 5 {
                postgres(&code, error.constraint())
            } else {
                sqlite(code.parse().unwrap_or_default(), error.message())
            }
        }
        _ => Class::Bug,
    }
}

/// PostgreSQL, Appendix A: error codes.
fn postgres(code: &str, constraint: Option<&str>) -> Class {
    match code {
        "23503" => Class::Conflict(Conflict::Reference),
        "23505" => Conflict::UNIQUE
            .iter()
            .find(|(name, ..)| Some(*name) == constraint)
            .map_or(Class::Bug, |(.., conflict)| Class::Conflict(*conflict)),
        // Aborted because of a concurrent transaction, a lock or a time limit. 25P03: this process
        // kept the server waiting within a transaction, because it was short of CPU time.
        "40001" | "40P01" | "55P03" | "57014" | "25P03" => Class::Unavailable(Reason::Busy),
        "25006" => Class::Unavailable(Reason::ReadOnly),
        "53100" => Class::Unavailable(Reason::Full),
        // Out of memory, out of connections.
        "53200" | "53300" => Class::Unavailable(Reason::Busy),
        // The database accepts no connections for now (`ALLOW_CONNECTIONS false`). No other
        // statement of this crate causes this code.
        "55000" => Class::Unavailable(Reason::Connection),
        // 08: the connection. 57P: an operator or a crash ended it. 58: its machine failed. 28, 3D:
        // access was revoked, which an operator can change.
        _ if ["08", "57P", "58", "28", "3D"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            Class::Unavailable(Reason::Connection)
        }
        _ => Class::Bug,
    }
}

/// <https://www.sqlite.org/rescode.html>; the low byte is the primary code.
fn sqlite(code: i32, message: &str) -> Class {
    const CONSTRAINT_FOREIGNKEY: i32 = 787;
    const CONSTRAINT_TRIGGER: i32 = 1811;
    const CONSTRAINT_PRIMARYKEY: i32 = 1555;
    const CONSTRAINT_UNIQUE: i32 = 2067;
    match code {
        CONSTRAINT_FOREIGNKEY => Class::Conflict(Conflict::Reference),
        CONSTRAINT_TRIGGER => Class::Bug,
        CONSTRAINT_PRIMARYKEY | CONSTRAINT_UNIQUE => {
            let columns = message.rsplit(": ").next().unwrap_or_default();
            Conflict::UNIQUE
                .iter()
                .find(|(_, listed, _)| *listed == columns)
                .map_or(Class::Bug, |(.., conflict)| Class::Conflict(*conflict))
        }
        _ => match code & 0xff {
            // BUSY, LOCKED, NOMEM, PROTOCOL (the race for the write-ahead log was lost too often)
            5 | 6 | 7 | 15 => Class::Unavailable(Reason::Busy),
            // READONLY, PERM
            8 | 3 => Class::Unavailable(Reason::ReadOnly),
            // FULL
            13 => Class::Unavailable(Reason::Full),
            // IOERR, CANTOPEN. Running out of space in the shared memory of the WAL is also an
            // IOERR.
            10 | 14 => Class::Unavailable(Reason::Connection),
            _ => Class::Bug,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(class: Class) -> Option<Reason> {
        match class {
            Class::Unavailable(reason) => Some(reason),
            Class::Conflict(_) | Class::Bug => None,
        }
    }

    #[test]
    fn operational_errors_are_not_defects() {
        for (code, wanted) in [
            ("08006", Reason::Connection),
            ("57P01", Reason::Connection),
            ("57P03", Reason::Connection),
            ("58030", Reason::Connection),
            ("28P01", Reason::Connection),
            ("3D000", Reason::Connection),
            ("55000", Reason::Connection),
            ("25P03", Reason::Busy),
            ("40001", Reason::Busy),
            ("57014", Reason::Busy),
            ("53300", Reason::Busy),
            ("25006", Reason::ReadOnly),
            ("53100", Reason::Full),
        ] {
            assert_eq!(reason(postgres(code, None)), Some(wanted), "{code}");
        }
        for (code, wanted) in [
            (5, Reason::Busy),
            (517, Reason::Busy),
            (7, Reason::Busy),
            (15, Reason::Busy),
            (8, Reason::ReadOnly),
            (1032, Reason::ReadOnly),
            (13, Reason::Full),
            (10, Reason::Connection),
            (778, Reason::Connection),
            (14, Reason::Connection),
        ] {
            assert_eq!(reason(sqlite(code, "")), Some(wanted), "{code}");
        }
        for code in ["42P01", "42601", "22P02", "23514", "XX001"] {
            assert_eq!(reason(postgres(code, None)), None, "{code}");
        }
        // A damaged file, or one that is not a database.
        for code in [1, 11, 26] {
            assert_eq!(reason(sqlite(code, "")), None, "{code}");
        }
    }
}

//! The permission of an operation, as a type.

use types::permission::Permission;

/// Permission that an operation requires of its caller.
pub trait RequiredPermission: Send + Sync + 'static {
    /// `None`: any valid credential.
    const PERMISSION: Option<Permission>;
}

/// Any valid credential.
#[derive(Debug)]
pub struct AnyCaller;

impl RequiredPermission for AnyCaller {
    const PERMISSION: Option<Permission> = None;
}

macro_rules! needs {
    ($($name:ident $permission:ident)+) => {$(
        #[doc = concat!("[`Permission::", stringify!($permission), "`].")]
        #[derive(Debug)]
        pub struct $name;

        impl RequiredPermission for $name {
            const PERMISSION: Option<Permission> = Some(Permission::$permission);
        }
    )+};
}

needs! {
    ProjectsRead AccountProjectsReadOnly
    ProjectsWrite AccountProjectsReadWrite
    PlanRead AccountPlanReadOnly
    WorkspacesRead AccountWorkspacesReadOnly
    WorkspacesProtect AccountWorkspaceProtectionReadWrite
    TokensCreate AccountTokensCreate
    CredentialsRead AccountCredentialsReadOnly
    CredentialsWrite AccountCredentialsReadWrite
    LogsRead NetworkStreamsReadOnly
    EventsRead NetworkEventsReadOnly
    WebhooksRead NetworkWebhooksReadOnly
    WebhooksWrite NetworkWebhooksReadWrite
    WebttyServersRead NetworkWebttyServersReadOnly
    WebttyServersWrite NetworkWebttyServersReadWrite
    TurnCredentialsCreate TurnCredentialsCreate
}

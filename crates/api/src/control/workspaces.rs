//! Workspaces, their members, and invitations into them.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Body, Method, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, SuccessResponse, add,
    page,
};

/// The workspaces that the caller is a member of.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter::one_of(
            "type",
            "Only workspaces of this type.",
            &["personal", "team"],
        ),
        Parameter::one_of(
            "membershipStatus",
            "By the state of the caller's membership; default `active`.",
            &["active", "suspended"],
        ),
    ],
    ..Operation::get(
        "list_workspaces",
        "/api/workspaces",
        "List workspaces",
        READ,
        "WorkspaceList",
    )
};

/// Creates a team workspace; the caller becomes its owner.
pub const CREATE: &Operation = &Operation {
    body: Some(NAME),
    refusals: &[409],
    answer: SuccessResponse::json(201, "Workspace"),
    ..write(
        "create_workspace",
        Method::Post,
        "/api/workspaces",
        "Create a workspace",
    )
};

/// One workspace.
pub const GET: &Operation = &Operation::get(
    "get_workspace",
    "/api/workspaces/{workspace_id}",
    "Read a workspace",
    READ,
    "Workspace",
);

/// Changes the name.
pub const RENAME: &Operation = &Operation {
    body: Some(NAME),
    answer: SuccessResponse::json(200, "Workspace"),
    ..write(
        "rename_workspace",
        Method::Patch,
        "/api/workspaces/{workspace_id}",
        "Rename a workspace",
    )
};

/// Deletes a workspace of a team that has no projects.
pub const DELETE: &Operation = &Operation {
    refusals: &[409],
    ..write(
        "delete_workspace",
        Method::Delete,
        "/api/workspaces/{workspace_id}",
        "Delete a workspace",
    )
};

/// The members of a workspace.
pub const LIST_MEMBERS: &Operation = &Operation {
    query: &[
        Parameter::text("q", "Searches names and addresses."),
        PAGE,
        PAGE_SIZE,
        Parameter::one_of(
            "sort",
            "Sort key of the list; default `id`.",
            &["id", "name", "email", "role"],
        ),
        Parameter::one_of(
            "order",
            "Direction of the list; default `asc`.",
            &["asc", "desc"],
        ),
    ],
    ..Operation::get(
        "list_workspace_members",
        "/api/workspaces/{workspace_id}/members",
        "List the members of a workspace",
        READ,
        "MemberList",
    )
};

/// Changes the role or the status of a member.
pub const CHANGE_MEMBER: &Operation = &Operation {
    body: Some(Body::required("ChangeMember", || json!({"role": "admin"}))),
    answer: SuccessResponse::json(200, "Member"),
    refusals: &[409],
    ..write(
        "change_workspace_member",
        Method::Patch,
        "/api/workspaces/{workspace_id}/members/{user_id}",
        "Change the role or status of a member",
    )
};

/// Removes a member. Every member may leave.
pub const REMOVE_MEMBER: &Operation = &Operation {
    refusals: &[409],
    ..write(
        "remove_workspace_member",
        Method::Delete,
        "/api/workspaces/{workspace_id}/members/{user_id}",
        "Remove a member, or leave the workspace",
    )
};

/// The invitations into a workspace, newest first.
pub const LIST_INVITATIONS: &Operation = &Operation {
    query: &[PAGE, PAGE_SIZE],
    ..Operation::get(
        "list_workspace_invitations",
        "/api/workspaces/{workspace_id}/invitations",
        "List the invitations to a workspace",
        READ,
        "InvitationList",
    )
};

/// Invites a person.
pub const INVITE: &Operation = &Operation {
    body: Some(Body::required(
        "Invite",
        || json!({"email": "grace@example.com", "role": "member"}),
    )),
    answer: SuccessResponse::json(201, "SentInvitation"),
    refusals: &[409, 429],
    ..write(
        "invite_workspace_member",
        Method::Post,
        "/api/workspaces/{workspace_id}/invitations",
        "Invite a user to a workspace",
    )
};

/// Revokes an invitation.
pub const REVOKE_INVITATION: &Operation = &Operation {
    ..write(
        "revoke_workspace_invitation",
        Method::Delete,
        "/api/workspaces/{workspace_id}/invitations/{invitation_id}",
        "Revoke an invitation",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    LIST,
    CREATE,
    GET,
    RENAME,
    DELETE,
    LIST_MEMBERS,
    CHANGE_MEMBER,
    REMOVE_MEMBER,
    LIST_INVITATIONS,
    INVITE,
    REVOKE_INVITATION,
];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<WorkspaceList>(schemas);
    add::<WorkspaceName>(schemas);
    add::<MemberList>(schemas);
    add::<ChangeMember>(schemas);
    add::<InvitationList>(schemas);
    add::<Invite>(schemas);
    add::<SentInvitation>(schemas);
}

const READ: Access = Access::Permitted(
    Permission::AccountWorkspacesReadOnly,
    &[Rule {
        resource: "workspaces",
        actions: &["read"],
    }],
);

const WRITE: Access = Access::Permitted(
    Permission::AccountWorkspaceProtectionReadWrite,
    &[Rule {
        resource: "workspaces",
        actions: &["write"],
    }],
);

const NAME: Body = Body::required("WorkspaceName", || json!({"name": "Analytical Engines"}));

/// An operation that changes something and responds with 204. Set the other fields with struct
/// update syntax.
const fn write(
    id: &'static str,
    method: Method,
    path: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new(
        id,
        method,
        path,
        summary,
        WRITE,
        SuccessResponse::NO_CONTENT,
    )
}

/// The workspaces of a person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceList {
    pub workspaces: Vec<Workspace>,
}

/// A workspace as one of its members sees it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    #[schema(example = "wks_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// `personal`: created with the account; `team`: created for several members.
    #[serde(rename = "type")]
    #[schema(example = "team")]
    pub kind: String,
    pub name: String,
    /// `active`, or `suspended` by an operator.
    #[schema(example = "active")]
    pub status: String,
    /// Status of the subscription; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subscription_status: Option<String>,
    /// True if a payment method is on file.
    pub has_payment_method: bool,
    /// The caller's membership.
    pub membership: Membership,
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Membership of a user in a workspace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Membership {
    pub role: Role,
    pub status: MemberStatus,
    /// Absent for the creator of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub invited_at: Option<String>,
    #[schema(format = DateTime)]
    pub joined_at: String,
}

/// Role of a member, from most to least permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Manages the workspace itself. A workspace always has one.
    Owner,
    /// Manages projects, members and credentials.
    Admin,
    /// Works with the existing projects.
    Member,
    /// Can only read.
    Viewer,
}

/// Status of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatus {
    Active,
    Suspended,
}

/// The name of a workspace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceName {
    /// A name without line breaks.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
}

page! {
    /// A page of members.
    pub struct MemberList {
        pub members: Vec<Member>,
        pub paging: Paging,
    }
}

/// A member as the other members see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Id of the user.
    #[schema(example = "usr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    pub name: String,
    pub email: String,
    #[serde(flatten)]
    pub membership: Membership,
}

/// A change to a member. Absent members stay unchanged.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMember {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MemberStatus>,
}

page! {
    /// A page of invitations.
    pub struct InvitationList {
        pub invitations: Vec<Invitation>,
        pub paging: Paging,
    }
}

/// An invitation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    #[schema(example = "inv_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    #[schema(example = "grace@example.com")]
    pub email: String,
    pub role: Role,
    pub status: InvitationStatus,
    /// Id of the user who invited.
    pub invited_by: String,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Status of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvitationStatus {
    Pending,
    Accepted,
    Revoked,
    Expired,
}

/// Address and role of the invited person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    #[schema(max_length = 254, example = "grace@example.com")]
    pub email: String,
    pub role: Role,
}

/// An invitation that was just sent, with its link. The link is shown only here and in the mail.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SentInvitation {
    pub invitation: Invitation,
    pub url: String,
}

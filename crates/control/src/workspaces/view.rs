//! Conversion of stored rows into API responses.

use api::control::workspaces;
use jiff::Timestamp;
use store::invitations::Invitation;
use store::members::{self, Member};
use store::workspaces::Membership;

use super::role::Role;
use crate::http_api::wire::date;

pub(super) fn workspace(row: Membership) -> workspaces::Workspace {
    workspaces::Workspace {
        id: row.id.to_string(),
        kind: row.kind.as_str().to_owned(),
        name: row.name,
        status: row.status.as_str().to_owned(),
        subscription_status: row.subscription_status,
        has_payment_method: row.has_payment_method,
        membership: membership(
            row.member_role,
            row.member_status,
            row.invited_at,
            row.joined_at,
        ),
        created_at: date(row.created_at),
    }
}

pub(super) fn member(row: Member) -> workspaces::Member {
    workspaces::Member {
        id: row.id.to_string(),
        name: row.name,
        email: row.email,
        membership: membership(row.role, row.status, row.invited_at, row.joined_at),
    }
}

pub(super) fn invitation(row: Invitation, now: Timestamp) -> workspaces::Invitation {
    let status = if row.accepted_at.is_some() {
        workspaces::InvitationStatus::Accepted
    } else if row.revoked_at.is_some() {
        workspaces::InvitationStatus::Revoked
    } else if row.expires_at <= now {
        workspaces::InvitationStatus::Expired
    } else {
        workspaces::InvitationStatus::Pending
    };
    workspaces::Invitation {
        id: row.id.to_string(),
        email: row.email,
        role: Role::from(row.role).into(),
        status,
        invited_by: row.invited_by.to_string(),
        created_at: date(row.created_at),
        expires_at: date(row.expires_at),
    }
}

fn membership(
    role: members::Role,
    status: members::Status,
    invited_at: Option<Timestamp>,
    joined_at: Timestamp,
) -> workspaces::Membership {
    workspaces::Membership {
        role: Role::from(role).into(),
        status: match status {
            members::Status::Active => workspaces::MemberStatus::Active,
            members::Status::Suspended => workspaces::MemberStatus::Suspended,
        },
        invited_at: invited_at.map(date),
        joined_at: date(joined_at),
    }
}

//! Workspaces: who belongs to them and what each member may do.

pub mod role;

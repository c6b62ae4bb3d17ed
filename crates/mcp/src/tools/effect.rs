//! Effects of tools.

/// Effect of a tool call, from which the MCP hints are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    Reads,
    /// It adds an object; a repeated call adds another one.
    Adds,
    /// It adds an object; a repeated call adds nothing.
    AddsOnce,
    /// It changes an object; a repeated call changes nothing.
    Changes,
    /// It deletes an object.
    Destroys,
    /// The effect is unknown, because it runs commands of the user.
    Acts,
}

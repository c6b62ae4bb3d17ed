//! Requests that come round again, because a tunnel leads back to the edge: each of the two sends it
//! to the other, and one visitor becomes as many as there are places. `CDN-Loop` (RFC 8586) tells.
//! Every request on its way to a service has a field of it with the engine's host, behind those
//! that the visitor sent.

use http1::FieldName;

/// The name of the field.
pub(super) const CDN_LOOP: FieldName<'static> = FieldName::from_static("cdn-loop");

/// How often a request may have been here before. Services behind one engine that call each other
/// by their public names, and pass on what they were sent, do so a few times.
pub(super) const MAX_PASSES: usize = 8;

/// How often a request was at the engine of this host, as the values of its fields tell.
pub(super) fn passes<'a>(values: impl Iterator<Item = &'a [u8]>, host: &str) -> usize {
    let members = values.flat_map(|value| value.split(|byte| *byte == b','));
    members
        .filter(|member| is_node(member, host.as_bytes()))
        .count()
}

/// Whether a member of the list names this node; parameters may follow (RFC 8586, section 2).
fn is_node(member: &[u8], host: &[u8]) -> bool {
    let id = member.split(|byte| *byte == b';').next();
    id.is_some_and(|id| id.trim_ascii().eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn members_that_name_the_node_are_counted() {
        let host = "svc.example";
        for (values, count) in [
            (&[][..], 0),
            (&[""][..], 0),
            (&["other.example"][..], 0),
            (&["svc.example.org, a.svc.example"][..], 0),
            (&["svc.example"][..], 1),
            (&["SVC.Example ; v=1,other"][..], 1),
            (&["other,svc.example", "\tsvc.example\t"][..], 2),
            (&["svc.example, ,svc.example,;svc.example"][..], 2),
        ] {
            let fields = values.iter().map(|value| value.as_bytes());
            assert_eq!(passes(fields, host), count, "{values:?}");
        }
    }
}

//! Detects requests that return to the edge because a tunnel's service forwards to the engine
//! itself. Each forwarded request has a `CDN-Loop` field (RFC 8586) with the engine's host, after
//! those of the visitor.

use http1::FieldName;

/// Name of the header field.
pub(in crate::edge) const CDN_LOOP: FieldName<'static> = FieldName::from_static("cdn-loop");

/// Limit of passes through this engine for one request. It is above one because services behind one
/// engine may call each other by their public names and forward the field.
pub(in crate::edge) const MAX_PASSES: usize = 8;

/// Counts the passes through the engine of this host, from the values of the request's `CDN-Loop`
/// fields.
pub(in crate::edge) fn count_passes<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    host: &str,
) -> usize {
    let members = values.flat_map(|value| value.split(|byte| *byte == b','));
    members
        .filter(|member| is_node(member, host.as_bytes()))
        .count()
}

/// True if the list member names this engine. Parameters may follow (RFC 8586, section 2).
fn is_node(member: &[u8], host: &[u8]) -> bool {
    let id = member.split(|byte| *byte == b';').next();
    id.is_some_and(|id| id.trim_ascii().eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::count_passes;

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
            assert_eq!(count_passes(fields, host), count, "{values:?}");
        }
    }
}

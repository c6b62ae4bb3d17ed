//! The meaning of a field for an intermediary, determined once during parsing.

/// Fields that the edge treats specially; everything else is [`FieldKind::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FieldKind {
    /// Any other field; the edge gives it no meaning of its own.
    #[default]
    Other,
    /// `Accept`
    Accept,
    /// `Authorization`
    Authorization,
    /// `CDN-Loop` (RFC 8586)
    CdnLoop,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Cookie`
    Cookie,
    /// `Expect`
    Expect,
    /// `Forwarded` (RFC 7239)
    Forwarded,
    /// `Host`
    Host,
    /// `Keep-Alive`
    KeepAlive,
    /// A name that applications trust as information of a proxy about the request:
    /// `X-Original-URL`, `X-Rewrite-URL`, `X-Forwarded-Port`, `X-Forwarded-Prefix`,
    /// `X-Client-Cert`, `True-Client-IP`, `CF-Connecting-IP`.
    ProxyInfo,
    /// `Proxy-Authenticate`
    ProxyAuthenticate,
    /// `Proxy-Authorization`
    ProxyAuthorization,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `Referer`
    Referer,
    /// `Sec-WebSocket-Accept`
    SecWebSocketAccept,
    /// `Sec-WebSocket-Key`
    SecWebSocketKey,
    /// `Set-Cookie`
    SetCookie,
    /// Any name that starts with `svc-` or `x-svc-`: only the edge may send it.
    SvcReserved,
    /// `TE`
    Te,
    /// `Trailer`
    Trailer,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Upgrade`
    Upgrade,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `X-Forwarded-Host`
    XForwardedHost,
    /// `X-Forwarded-Proto`
    XForwardedProto,
    /// `X-Real-IP`
    XRealIp,
}

impl FieldKind {
    /// Classifies a field name.
    ///
    /// Names that only the edge may send (`svc-*`, `X-Forwarded-*`, `Forwarded`, `X-Real-IP`) and
    /// those of [`Self::ProxyInfo`] are recognised in every spelling that [`is_same_for_gateways`]
    /// matches. Otherwise a visitor could send `svc_user_id`, and an application behind a gateway
    /// would read it as the edge's `svc-user-id`.
    pub fn of(name: &[u8]) -> Self {
        let first = name.first().map_or(0, u8::to_ascii_lowercase);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let like = |known: &[u8]| is_same_for_gateways(name, known);
        match (name.len(), first) {
            (2, b't') if is(b"te") => Self::Te,
            (4, b'h') if is(b"host") => Self::Host,
            (6, b'a') if is(b"accept") => Self::Accept,
            (6, b'c') if is(b"cookie") => Self::Cookie,
            (6, b'e') if is(b"expect") => Self::Expect,
            (7, b'r') if is(b"referer") => Self::Referer,
            (7, b't') if is(b"trailer") => Self::Trailer,
            (7, b'u') if is(b"upgrade") => Self::Upgrade,
            (8, b'c') if is(b"cdn-loop") => Self::CdnLoop,
            (9, b'f') if is(b"forwarded") => Self::Forwarded,
            (9, b'x') if like(b"x-real-ip") => Self::XRealIp,
            (10, b'c') if is(b"connection") => Self::Connection,
            (10, b'k') if is(b"keep-alive") => Self::KeepAlive,
            (10, b's') if is(b"set-cookie") => Self::SetCookie,
            (13, b'x') if like(b"x-rewrite-url") || like(b"x-client-cert") => Self::ProxyInfo,
            (14, b'x') if like(b"x-original-url") => Self::ProxyInfo,
            (14, b't') if like(b"true-client-ip") => Self::ProxyInfo,
            (16, b'c') if like(b"cf-connecting-ip") => Self::ProxyInfo,
            (16, b'x') if like(b"x-forwarded-port") => Self::ProxyInfo,
            (18, b'x') if like(b"x-forwarded-prefix") => Self::ProxyInfo,
            (13, b'a') if is(b"authorization") => Self::Authorization,
            (14, b'c') if is(b"content-length") => Self::ContentLength,
            (15, b'x') if like(b"x-forwarded-for") => Self::XForwardedFor,
            (16, b'p') if is(b"proxy-connection") => Self::ProxyConnection,
            (16, b'x') if like(b"x-forwarded-host") => Self::XForwardedHost,
            (17, b's') if is(b"sec-websocket-key") => Self::SecWebSocketKey,
            (17, b't') if is(b"transfer-encoding") => Self::TransferEncoding,
            (17, b'x') if like(b"x-forwarded-proto") => Self::XForwardedProto,
            (18, b'p') if is(b"proxy-authenticate") => Self::ProxyAuthenticate,
            (19, b'p') if is(b"proxy-authorization") => Self::ProxyAuthorization,
            (20, b's') if is(b"sec-websocket-accept") => Self::SecWebSocketAccept,
            (_, b's') if has_prefix_for_gateways(name, b"svc-") => Self::SvcReserved,
            (_, b'x') if has_prefix_for_gateways(name, b"x-svc-") => Self::SvcReserved,
            _ => Self::Other,
        }
    }

    /// Returns true if the field belongs to one connection and must not be forwarded (RFC 9110
    /// §7.6.1).
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Te
                | Self::Trailer
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Returns true if only the edge may send the field to an upstream: a visitor's field with this
    /// name is removed, even if the edge does not write its own.
    pub fn is_set_by_edge(self) -> bool {
        matches!(
            self,
            Self::Forwarded
                | Self::SvcReserved
                | Self::XForwardedFor
                | Self::XForwardedHost
                | Self::XForwardedProto
                | Self::XRealIp
        )
    }
}

/// Returns true if the start of `name` is the same as `prefix` for gateways.
fn has_prefix_for_gateways(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| is_same_for_gateways(start, prefix))
}

/// Returns true if an application behind a gateway of the CGI family cannot distinguish the field
/// `name` from `known`, which is in lower case.
///
/// These gateways convert the name of a field to a variable of letters, digits and underscores.
/// CGI and WSGI replace dashes with underscores, PHP also dots, and older servers every other
/// character.
pub fn is_same_for_gateways(name: &[u8], known: &[u8]) -> bool {
    let folded = |byte: &u8| {
        if byte.is_ascii_alphanumeric() {
            byte.to_ascii_lowercase()
        } else {
            b'-'
        }
    };
    name.len() == known.len() && name.iter().map(folded).eq(known.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::FieldKind;

    #[test]
    fn names_are_recognised_in_any_case() {
        for (name, kind) in [
            ("Host", FieldKind::Host),
            ("hOST", FieldKind::Host),
            ("te", FieldKind::Te),
            ("Accept", FieldKind::Accept),
            ("Accept-Encoding", FieldKind::Other),
            ("CDN-Loop", FieldKind::CdnLoop),
            ("Connection", FieldKind::Connection),
            ("KEEP-ALIVE", FieldKind::KeepAlive),
            ("Proxy-Connection", FieldKind::ProxyConnection),
            ("Transfer-Encoding", FieldKind::TransferEncoding),
            ("transfer_encoding", FieldKind::Other),
            ("content-length", FieldKind::ContentLength),
            ("Sec-WebSocket-Key", FieldKind::SecWebSocketKey),
            ("Set-Cookie", FieldKind::SetCookie),
            ("svc", FieldKind::Other),
            ("service-worker", FieldKind::Other),
            ("", FieldKind::Other),
        ] {
            assert_eq!(FieldKind::of(name.as_bytes()), kind, "{name}");
        }
    }

    #[test]
    fn names_of_the_edge_are_recognised_in_every_spelling_of_gateways() {
        for name in [
            "svc-user-id",
            "SVC_USER_ID",
            "svc-",
            "X-Svc-Anything",
            "x_svc_a",
            "X-Forwarded-For",
            "x_forwarded_host",
            "X-Forwarded_Proto",
            "x-real_ip",
            "Forwarded",
            "svc.user.id",
            "svc-user~id",
            "X.Forwarded+For",
        ] {
            assert!(FieldKind::of(name.as_bytes()).is_set_by_edge(), "{name}");
        }
    }
}

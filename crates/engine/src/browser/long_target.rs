//! Redirect targets that do not fit into an address.
//!
//! A sign-in and a challenge return the browser to the page that it requested. A short target is
//! sealed into the address of the redirect. A long one would exceed the lengths that platforms and
//! proxies accept, so the browser keeps it in cookies. Each set of cookies has a path of its own.
//! They are sent only with the request that continues to the target, so a browser with many tabs
//! never sends a head that is too large.

use super::cookies;
use super::redirect_target::RedirectTarget;
use super::seals::Seals;
use crate::random::random_bytes;

/// Path of the route to which the platform returns a browser. The route that continues to a long
/// target is this path, a slash and an id.
pub(crate) const CALLBACK: &str = "/.well-known/svc/callback";

/// A long target that a browser keeps.
#[derive(Debug)]
pub(super) struct LongTarget {
    /// Names the cookies' path.
    pub(super) id: String,
    /// Values of the `Set-Cookie` fields.
    pub(super) set_cookies: Vec<String>,
}

impl LongTarget {
    /// Divides a target into cookies. `None` if it is longer than any browser may keep, or if the
    /// cookies take more than half of a request's head, which has at most `head_bytes`.
    pub(super) fn store(
        seals: &Seals,
        host: &str,
        target: &str,
        head_bytes: usize,
    ) -> Option<Self> {
        let chunks = target.as_bytes().chunks(CHUNK_BYTES);
        let count = chunks.len();
        if count > cookies::MAX_TARGET_COOKIES {
            return None;
        }
        let id = u64::from_be_bytes(random_bytes::<8>());
        let id = format!("{id:016x}");
        let path = format!("{CALLBACK}/{id}");
        let set_cookies = chunks.enumerate().map(|(index, chunk)| {
            let mut text = label(&id, index, count).into_bytes();
            text.extend_from_slice(chunk);
            let value = seals.seal(host, &text)?;
            Some(cookies::set_target(index, &value, &path, TARGET_SECONDS))
        });
        let set_cookies = set_cookies.collect::<Option<Vec<_>>>()?;
        let pairs = set_cookies
            .iter()
            .map(|cookie| cookie.find(';').unwrap_or(cookie.len()));
        let sent: usize = pairs.map(|bytes| bytes + FIELD_BYTES).sum();
        (sent <= head_bytes / 2).then_some(Self { id, set_cookies })
    }

    /// Path and query of the route that continues to the target. `fallback` is the target if the
    /// browser did not keep all cookies.
    pub(super) fn route(seals: &Seals, host: &str, id: &str, fallback: &str) -> Option<String> {
        let to = RedirectTarget::seal(seals, host, id, fallback, MAX_FALLBACK)?;
        Some(format!("{CALLBACK}/{id}?to={to}"))
    }
}

/// The end of a redirect to a long target.
#[derive(Debug)]
pub(crate) struct LongTargetRedirect {
    /// Path and query. It starts with a slash.
    pub(crate) target: String,
    /// Values of the `Set-Cookie` fields that delete the cookies.
    pub(crate) clear_cookies: Vec<String>,
}

impl LongTargetRedirect {
    /// Reads the target from the cookies of a request to the route that [`LongTarget::route`]
    /// returned. `None` if this edge did not make the address.
    pub(crate) fn read<'a>(
        seals: &Seals,
        host: &str,
        (id, to): (&str, &str),
        cookie_fields: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let (word, fallback) = RedirectTarget::open(seals, host, to)?;
        if word != id {
            return None;
        }
        let values = cookies::target_values(cookie_fields);
        let path = format!("{CALLBACK}/{id}");
        let present = values.iter().enumerate();
        let clear_cookies = present
            .filter(|(_, value)| value.is_present())
            .map(|(index, _)| cookies::set_target(index, "", &path, 0))
            .collect();
        let target = joined(seals, host, id, &values).unwrap_or(fallback);
        Some(Self {
            target,
            clear_cookies,
        })
    }
}

/// The target, if every part of it is there.
fn joined(seals: &Seals, host: &str, id: &str, values: &[cookies::Cookie<'_>]) -> Option<String> {
    let opened = values
        .iter()
        .map_while(|value| seals.open(host, value.value()?));
    let opened: Vec<_> = opened.collect();
    let count = opened.len();
    let mut target = Vec::new();
    for (index, text) in opened.iter().enumerate() {
        target.extend_from_slice(text.strip_prefix(label(id, index, count).as_bytes())?);
    }
    let target = String::from_utf8(target).ok()?;
    target.starts_with('/').then_some(target)
}

/// The start of a part. With the number of all parts in it, a target that lacks its last part is
/// not mistaken for a complete one.
fn label(id: &str, index: usize, count: usize) -> String {
    format!("{id}.{index}.{count} ")
}

/// Bytes of a target in one cookie. Sealed and encoded, with its name, it has less than the 4096
/// bytes that browsers accept (RFC 6265 section 6.1).
const CHUNK_BYTES: usize = 2800;
/// Bytes that a cookie adds to a head besides its name and value, if it is a field of its own in
/// HTTP/2 (RFC 9113 sections 6.5.2 and 8.2.3).
const FIELD_BYTES: usize = 38;
/// Lifetime of the cookies in seconds: that of a sign-in.
const TARGET_SECONDS: i64 = 30 * 60;
/// Limit of the path that replaces an incomplete target, in bytes.
const MAX_FALLBACK: usize = 1400;

#[cfg(test)]
mod tests {
    use credentials::Secret;

    use super::*;

    const HOST: &str = "a.example";
    /// The largest limit of a head.
    const HEAD_BYTES: usize = 1024 * 1024;

    fn seals() -> Seals {
        Seals::derive(&Secret::new("of the cluster")).unwrap()
    }

    /// The pairs that a browser sends back.
    fn pairs(set_cookies: &[String]) -> Vec<String> {
        let pairs = set_cookies.iter();
        pairs
            .map(|cookie| cookie.split(';').next().unwrap().to_owned())
            .collect()
    }

    fn read(seals: &Seals, host: &str, id: &str, to: &str, pairs: &[String]) -> Option<String> {
        let field = pairs.join("; ");
        let fields = std::iter::once(field.as_bytes());
        LongTargetRedirect::read(seals, host, (id, to), fields).map(|read| read.target)
    }

    #[test]
    fn a_long_target_is_read_back_byte_for_byte() {
        let seals = seals();
        for length in [1401, 2800, 2801, 8192, 44_800] {
            let target = format!("/deep?{}", "q".repeat(length - 6));
            let stored = LongTarget::store(&seals, HOST, &target, HEAD_BYTES).unwrap();
            for cookie in &stored.set_cookies {
                assert!(cookie.split(';').next().unwrap().len() <= 4096);
                let path = format!("; Path={CALLBACK}/{}; ", stored.id);
                assert!(cookie.contains(&path), "{cookie}");
            }
            let route = LongTarget::route(&seals, HOST, &stored.id, "/deep").unwrap();
            let (_, to) = route.split_once("?to=").unwrap();
            let pairs = pairs(&stored.set_cookies);
            let read = read(&seals, HOST, &stored.id, to, &pairs);
            assert_eq!(read.as_deref(), Some(target.as_str()), "{length}");
        }
        let longest = "/".repeat(44_801);
        assert!(LongTarget::store(&seals, HOST, &longest, HEAD_BYTES).is_none());
    }

    #[test]
    fn the_cookies_fit_into_half_of_a_head() {
        let seals = seals();
        let stored = |length: usize, head_bytes| {
            let target = "/".repeat(length);
            LongTarget::store(&seals, HOST, &target, head_bytes)
        };
        for (head_bytes, kept, lost) in [
            (4096, 1401, 1500),
            (32 * 1024, 11_000, 12_300),
            (HEAD_BYTES, 44_800, 44_801),
        ] {
            let cookies = pairs(&stored(kept, head_bytes).unwrap().set_cookies);
            let field: usize = cookies.iter().map(|pair| pair.len() + 2).sum();
            assert!(field <= head_bytes / 2, "{head_bytes}");
            assert!(stored(lost, head_bytes).is_none(), "{head_bytes}");
        }
    }

    /// A stranger, a service or a neighbour of the same site can add, remove and mix cookies. The
    /// result is the path that is sealed in the address, or nothing.
    #[test]
    fn parts_of_other_targets_are_not_used() {
        let seals = seals();
        let target = |letter: &str| format!("/{}", letter.repeat(6000));
        let store = |host: &str, letter: &str| {
            LongTarget::store(&seals, host, &target(letter), HEAD_BYTES).unwrap()
        };
        let (ours, theirs) = (store(HOST, "a"), store(HOST, "b"));
        let elsewhere = store("b.example", "c");
        let route = LongTarget::route(&seals, HOST, &ours.id, "/path").unwrap();
        let (_, to) = route.split_once("?to=").unwrap();
        let good = pairs(&ours.set_cookies);
        let [a, b, c] = good.as_slice() else {
            panic!("{good:?}");
        };
        let other = pairs(&theirs.set_cookies);
        let foreign = pairs(&elsewhere.set_cookies);
        let swapped = |pair: &str, index: usize| {
            let (_, value) = pair.split_once('=').unwrap();
            format!("__Secure-svc_target_{index}={value}")
        };
        for pairs in [
            vec![],
            vec![a.clone()],
            vec![a.clone(), b.clone()],
            vec![b.clone(), c.clone()],
            vec![a.clone(), b.clone(), other[2].clone()],
            vec![other[0].clone(), other[1].clone(), other[2].clone()],
            vec![foreign[0].clone(), foreign[1].clone(), foreign[2].clone()],
            vec![swapped(b, 0), swapped(a, 1), c.clone()],
            vec![a.clone(), a.clone(), b.clone(), c.clone()],
            vec![swapped(&format!("x={to}"), 0)],
            vec!["__Secure-svc_target_0=x".to_owned()],
        ] {
            let read = read(&seals, HOST, &ours.id, to, &pairs);
            assert_eq!(read.as_deref(), Some("/path"), "{pairs:?}");
        }
        let id = "0000000000000000";
        assert_eq!(read(&seals, HOST, id, to, &good), None);
        assert_eq!(read(&seals, "b.example", &ours.id, to, &good), None);
        assert_eq!(read(&seals, HOST, &ours.id, "x", &good), None);
    }
}

//! Names of published tunnels: `<label>.t.<base host>`, requested or random.

use types::tunnel::Hostname;

use crate::random::random_bytes;

/// The namespace below which an engine publishes: `*.t.<base host>` (EN-10). On a managed engine,
/// whose base is the cluster domain, each label ends with the endpoint of its project:
/// `<slug>-<endpoint>.t.<cluster domain>`.
#[derive(Debug, Clone)]
pub struct Namespace {
    base: Hostname,
    tunnels: Hostname,
}

/// Reasons why a requested host name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    /// A name outside the namespace. Custom domains are not part of the community build (EN-11).
    #[error("a custom domain (`hostname`) is not available on this engine")]
    CustomDomain,
    /// A name of this engine that ends with another project's endpoint.
    #[error(
        "`hostname` belongs to another project: names must end with the project's own endpoint"
    )]
    OtherProject,
    /// A label that makes the full name longer than a name may be.
    #[error("`hostname` is too long below this engine's own name")]
    TooLong,
}

impl Namespace {
    /// Takes the engine's base host (`engine.host`).
    ///
    /// # Errors
    /// A base host that leaves no space for `r` and 8 digits in front of `.t.`.
    pub fn new(base: Hostname) -> Result<Self, HostnameError> {
        let tunnels = Hostname::below("t", &base).map_err(|_| HostnameError::TooLong)?;
        Hostname::below("r00000000", &tunnels).map_err(|_| HostnameError::TooLong)?;
        Ok(Self { base, tunnels })
    }

    /// The engine's own host.
    pub fn base(&self) -> &Hostname {
        &self.base
    }

    /// The label of `host`, in lower case, if it is directly below the base; a managed engine has
    /// the addresses of its projects there.
    pub fn label_of<'h>(&self, host: &'h str) -> Option<&'h str> {
        let label = host.strip_suffix(self.base.as_str())?.strip_suffix('.')?;
        (!label.is_empty() && !label.contains('.')).then_some(label)
    }

    /// The endpoint of the project that would have this name on a managed engine. `host` is in
    /// lower case.
    pub fn endpoint_of<'h>(&self, host: &'h str) -> Option<&'h str> {
        let label = host
            .strip_suffix(self.tunnels.as_str())?
            .strip_suffix('.')?;
        let (slug, endpoint) = label.rsplit_once('-')?;
        (!slug.is_empty() && !label.contains('.')).then_some(endpoint)
    }

    /// Returns true if `hostname` could be published here.
    pub fn contains(&self, hostname: &Hostname) -> bool {
        hostname.label_below(&self.tunnels).is_some()
    }

    /// Returns true if a tunnel could have the name `host`, which is in lower case.
    pub fn contains_host(&self, host: &str) -> bool {
        let label = host.strip_suffix(self.tunnels.as_str());
        label
            .and_then(|label| label.strip_suffix('.'))
            .is_some_and(|label| !label.is_empty() && !label.contains('.'))
    }

    /// Resolves the requested name: a label `L`, or the full name `L.t.<base host>`. In a project
    /// with an `endpoint`, a label is a slug to which the endpoint is appended; a full name has it
    /// already.
    pub fn resolve(
        &self,
        requested: &Hostname,
        endpoint: Option<&str>,
    ) -> Result<Hostname, HostnameError> {
        let below =
            |label: &str| Hostname::below(label, &self.tunnels).map_err(|_| HostnameError::TooLong);
        let label = if requested.is_label() {
            Some(requested.as_str())
        } else {
            requested.label_below(&self.tunnels)
        };
        let label = label.ok_or(HostnameError::CustomDomain)?;
        match endpoint {
            None => below(label),
            Some(endpoint) if is_of(label, endpoint) => below(label),
            Some(endpoint) if requested.is_label() => below(&format!("{label}-{endpoint}")),
            Some(_) => Err(HostnameError::OtherProject),
        }
    }

    /// Draws a random name: `r` and 8 hexadecimal digits, and the project's endpoint if it has one.
    /// `taken` returns true for names in use. `None` if no free one was found, which the caller
    /// treats as exhausted capacity.
    pub fn draw(
        &self,
        endpoint: Option<&str>,
        taken: impl Fn(&Hostname) -> bool,
    ) -> Option<Hostname> {
        self.draw_with(|| u32::from_be_bytes(random_bytes()), endpoint, taken)
    }

    fn draw_with(
        &self,
        mut random: impl FnMut() -> u32,
        endpoint: Option<&str>,
        taken: impl Fn(&Hostname) -> bool,
    ) -> Option<Hostname> {
        let mut label = || match (random(), endpoint) {
            (number, Some(endpoint)) => format!("r{number:08x}-{endpoint}"),
            (number, None) => format!("r{number:08x}"),
        };
        (0..DRAWS)
            .filter_map(|_| Hostname::below(&label(), &self.tunnels).ok())
            .find(|hostname| !taken(hostname))
    }
}

/// Returns true if a label is `<slug>-<endpoint>`.
fn is_of(label: &str, endpoint: &str) -> bool {
    let slug = label.strip_suffix(endpoint);
    slug.and_then(|slug| slug.strip_suffix('-'))
        .is_some_and(|slug| !slug.is_empty())
}

/// With 10,000 names in use, one draw of 32 bits collides once in 400,000, so 8 draws suffice.
const DRAWS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Hostname {
        name.parse().unwrap()
    }

    fn names() -> Namespace {
        Namespace::new(host("engine.example")).unwrap()
    }

    #[test]
    fn a_label_and_its_full_name_are_the_same_request() {
        let full = host("web.t.engine.example");
        assert_eq!(names().resolve(&host("web"), None), Ok(full.clone()));
        assert_eq!(names().resolve(&full, None), Ok(full));
    }

    /// EN-11.
    #[test]
    fn en_11_anything_else_is_a_custom_domain() {
        for custom in [
            "shop.example",
            "engine.example",
            "web.engine.example",
            "a.b.t.engine.example",
        ] {
            assert_eq!(
                names().resolve(&host(custom), None),
                Err(HostnameError::CustomDomain),
                "{custom}"
            );
        }
        assert!(
            HostnameError::CustomDomain
                .to_string()
                .contains("available")
        );
    }

    #[test]
    fn a_base_host_that_is_too_long_for_names_is_refused() {
        let long = format!(
            "{}.{}.{}.{}",
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(50)
        );
        assert_eq!(
            Namespace::new(host(&long)).unwrap_err(),
            HostnameError::TooLong
        );
    }

    #[test]
    fn names_of_a_project_end_with_its_endpoint() {
        let names = names();
        let resolve = |name: &str| names.resolve(&host(name), Some("e7e8a732"));
        let full = host("web-e7e8a732.t.engine.example");
        for asked in ["web", "web-e7e8a732", "web-e7e8a732.t.engine.example"] {
            assert_eq!(resolve(asked), Ok(full.clone()), "{asked}");
        }
        for other in [
            "web-f587ee53.t.engine.example",
            "web.t.engine.example",
            "-e7e8a732x.t.engine.example",
        ] {
            let Ok(other) = other.parse::<Hostname>() else {
                continue;
            };
            assert_eq!(
                names.resolve(&other, Some("e7e8a732")),
                Err(HostnameError::OtherProject),
                "{other}"
            );
        }
        let drawn = names.draw_with(|| 7, Some("e7e8a732"), |_| false);
        assert_eq!(drawn, Some(host("r00000007-e7e8a732.t.engine.example")));
        assert_eq!(names.label_of("e7e8a732.engine.example"), Some("e7e8a732"));
        for none in ["engine.example", "a.t.engine.example", "xengine.example"] {
            assert_eq!(names.label_of(none), None, "{none}");
        }
    }

    #[test]
    fn drawing_avoids_names_in_use_and_is_bounded() {
        let mut next = 0;
        let drawn = names().draw_with(
            || {
                next += 1;
                next
            },
            None,
            |host| host.first_label() == "r00000001",
        );
        assert_eq!(drawn, Some(host("r00000002.t.engine.example")));
        assert_eq!(names().draw_with(|| 7, None, |_| true), None);
    }
}

//! Names of published tunnels: `<label>.t.<base host>`, asked for or drawn.

use types::tunnel::Hostname;

use super::random::random_bytes;

/// The namespace below which a community engine publishes: `*.t.<base host>` (EN-10).
#[derive(Debug, Clone)]
pub struct Namespace {
    base: Hostname,
    tunnels: Hostname,
}

/// Why a hostname that an agent asked for is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostnameRefused {
    /// A name outside the namespace. Custom domains are not part of the community build (EN-11).
    #[error("a custom domain (`hostname`) is not available on this engine")]
    CustomDomain,
    /// A label that makes the full name longer than a name may be.
    #[error("`hostname` is too long below this engine's own name")]
    TooLong,
}

impl Namespace {
    /// Takes the engine's base host (`engine.host`).
    ///
    /// # Errors
    /// A base host that leaves no room for `r` and 8 digits in front of `.t.`.
    pub fn new(base: Hostname) -> Result<Self, HostnameRefused> {
        let tunnels = Hostname::below("t", &base).map_err(|_| HostnameRefused::TooLong)?;
        Hostname::below("r00000000", &tunnels).map_err(|_| HostnameRefused::TooLong)?;
        Ok(Self { base, tunnels })
    }

    /// The engine's own host.
    pub fn base(&self) -> &Hostname {
        &self.base
    }

    /// Whether `hostname` could be published here.
    pub fn contains(&self, hostname: &Hostname) -> bool {
        hostname.label_below(&self.tunnels).is_some()
    }

    /// Resolves what an agent asked for: a label `L`, or `L.t.<base host>` in full.
    pub fn resolve(&self, requested: &Hostname) -> Result<Hostname, HostnameRefused> {
        if requested.is_label() {
            Hostname::below(requested.as_str(), &self.tunnels).map_err(|_| HostnameRefused::TooLong)
        } else if self.contains(requested) {
            Ok(requested.clone())
        } else {
            Err(HostnameRefused::CustomDomain)
        }
    }

    /// Draws a name: `r` and 8 hexadecimal digits. `taken` says which names are spoken for;
    /// `None` when chance found no free one, which the caller treats as exhausted capacity.
    pub fn draw(&self, taken: impl Fn(&Hostname) -> bool) -> Option<Hostname> {
        self.draw_with(|| u32::from_be_bytes(random_bytes()), taken)
    }

    fn draw_with(
        &self,
        mut random: impl FnMut() -> u32,
        taken: impl Fn(&Hostname) -> bool,
    ) -> Option<Hostname> {
        (0..DRAWS)
            .filter_map(|_| Hostname::below(&format!("r{:08x}", random()), &self.tunnels).ok())
            .find(|hostname| !taken(hostname))
    }
}

/// With 10,000 names held, one draw of 32 bits collides once in 400,000: 8 are ample.
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
        assert_eq!(names().resolve(&host("web")), Ok(full.clone()));
        assert_eq!(names().resolve(&full), Ok(full));
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
                names().resolve(&host(custom)),
                Err(HostnameRefused::CustomDomain),
                "{custom}"
            );
        }
        assert!(
            HostnameRefused::CustomDomain
                .to_string()
                .contains("available")
        );
    }

    #[test]
    fn a_base_host_without_room_for_names_is_refused() {
        let long = format!(
            "{}.{}.{}.{}",
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(50)
        );
        assert_eq!(
            Namespace::new(host(&long)).unwrap_err(),
            HostnameRefused::TooLong
        );
    }

    #[test]
    fn drawing_avoids_what_is_taken_and_gives_up_in_time() {
        let mut next = 0;
        let drawn = names().draw_with(
            || {
                next += 1;
                next
            },
            |host| host.first_label() == "r00000001",
        );
        assert_eq!(drawn, Some(host("r00000002.t.engine.example")));
        assert_eq!(names().draw_with(|| 7, |_| true), None);
    }
}

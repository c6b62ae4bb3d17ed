//! The challenge (ED-6): a browser solves a proof of work before it reaches a tunnel.
//!
//! A puzzle is stateless. It contains its creation time and its difficulty, and is signed for a
//! host and an address prefix. Solved puzzles are stored until the puzzle expires.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;

use super::cookies;
use super::long_target::LongTarget;
use super::one_time_ids::{OneTimeError, OneTimeIds};
use super::redirect_target::RedirectTarget;
use super::seals::{Purpose, Seals};
use crate::random::random_bytes;

/// Solved puzzles, and the rate of puzzles for each host.
#[derive(Debug)]
pub(crate) struct Challenges {
    solved: OneTimeIds,
    load: PuzzleRates,
}

/// Redirect of a browser to the challenge page.
#[derive(Debug)]
pub(crate) struct ChallengeRedirect {
    /// Path and query.
    pub(crate) location: String,
    /// The parts of a long target.
    pub(crate) set_cookies: Vec<String>,
}

/// A puzzle for one browser: find a number for which SHA-256 of `<text>.<number>` starts with
/// `bits` zero bits.
#[derive(Debug)]
pub(crate) struct Puzzle {
    pub(crate) text: String,
    pub(crate) bits: u8,
}

/// A solution from a browser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Solution<'a> {
    pub(crate) puzzle: &'a str,
    pub(crate) number: &'a str,
}

/// Reason why a solution was rejected, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SolutionError {
    #[error("the puzzle was not given to this address for this host, or too long ago")]
    Foreign,
    #[error("the number does not solve the puzzle")]
    Wrong,
    #[error("the puzzle was solved before")]
    Used,
    #[error("too many challenges at once")]
    Busy,
}

impl Default for Challenges {
    fn default() -> Self {
        Self {
            solved: OneTimeIds::new(PUZZLE_SECONDS + LEEWAY_SECONDS, SOLVED),
            load: PuzzleRates::default(),
        }
    }
}

impl Challenges {
    /// Creates a puzzle. Its difficulty grows with the number of puzzles for the host.
    pub(crate) fn puzzle(&self, host: &str, peer: IpAddr, seals: &Seals, now: i64) -> Puzzle {
        let bits = difficulty(self.load.count(host, now));
        let mut payload = now.to_be_bytes().to_vec();
        payload.push(bits);
        payload.extend_from_slice(&random_bytes::<12>());
        let text = seals.sign(Purpose::Puzzle, &[host.as_bytes(), &prefix(peer)], &payload);
        Puzzle { text, bits }
    }

    /// Checks a solution. Returns the value of the `Set-Cookie` which proves that the challenge was
    /// passed.
    pub(crate) fn solve(
        &self,
        solution: Solution<'_>,
        (host, peer): (&str, IpAddr),
        project: &Arc<str>,
        seals: &Seals,
        now: i64,
    ) -> Result<String, SolutionError> {
        let bound: [&[u8]; 2] = [host.as_bytes(), &prefix(peer)];
        let payload = seals.verify(Purpose::Puzzle, &bound, solution.puzzle);
        let payload = payload.ok_or(SolutionError::Foreign)?;
        let made = made_at(&payload).ok_or(SolutionError::Foreign)?;
        let bits = *payload.get(8).ok_or(SolutionError::Foreign)?;
        if !(-LEEWAY_SECONDS..PUZZLE_SECONDS).contains(&now.saturating_sub(made)) {
            return Err(SolutionError::Foreign);
        }
        let is_number = |text: &str| {
            (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(solution.number) || zero_bits(solution) < u32::from(bits) {
            return Err(SolutionError::Wrong);
        }
        self.solved
            .use_once(&payload, project, now)
            .map_err(|refused| match refused {
                OneTimeError::Used => SolutionError::Used,
                OneTimeError::Full => SolutionError::Busy,
            })?;
        let value = seals.sign(Purpose::Passed, &bound, &now.to_be_bytes());
        Ok(cookies::set(cookies::CHALLENGE, &value, PASSED_SECONDS))
    }

    /// True if the cookie proves that the challenge was passed from this network recently.
    pub(crate) fn is_passed(
        cookie: &str,
        (host, peer): (&str, IpAddr),
        seals: &Seals,
        now: i64,
    ) -> bool {
        let bound: [&[u8]; 2] = [host.as_bytes(), &prefix(peer)];
        let payload = seals.verify(Purpose::Passed, &bound, cookie);
        let age = payload
            .and_then(|made| made_at(&made))
            .map(|made| now.saturating_sub(made));
        age.is_some_and(|age| (-LEEWAY_SECONDS..PASSED_SECONDS).contains(&age))
    }

    /// Redirects to the challenge page, which continues to `target` (path and query) after the
    /// puzzle is solved. `route` is the path of the page. A request's head has at most
    /// `head_bytes`.
    pub(crate) fn page(
        route: &str,
        host: &str,
        target: &str,
        head_bytes: usize,
        seals: &Seals,
    ) -> Option<ChallengeRedirect> {
        let stored = if target.len() > MAX_TARGET {
            LongTarget::store(seals, host, target, head_bytes)
        } else {
            None
        };
        let (target, set_cookies) = match stored {
            Some(stored) => {
                let path = target.split('?').next().unwrap_or_default();
                let route = LongTarget::route(seals, host, &stored.id, path)?;
                (route, stored.set_cookies)
            }
            None => (target.to_owned(), Vec::new()),
        };
        let to = RedirectTarget::seal(seals, host, TARGET_KIND, &target, MAX_TARGET)?;
        Some(ChallengeRedirect {
            location: format!("{route}?to={to}"),
            set_cookies,
        })
    }

    /// Opens the target that [`Self::page`] sealed.
    pub(crate) fn target(host: &str, sealed: &str, seals: &Seals) -> Option<String> {
        let (word, target) = RedirectTarget::open(seals, host, sealed)?;
        (word == TARGET_KIND).then_some(target)
    }
}

/// Word in the sealed target, which distinguishes it from the target of a sign-in.
const TARGET_KIND: &str = "challenge";

/// Creation time of a payload, in Unix seconds.
fn made_at(payload: &[u8]) -> Option<i64> {
    let made: [u8; 8] = payload.get(..8)?.try_into().ok()?;
    Some(i64::from_be_bytes(made))
}

/// Number of zero bits at the start of the hash.
fn zero_bits(solution: Solution<'_>) -> u32 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(solution.puzzle.as_bytes());
    context.update(b".");
    context.update(solution.number.as_bytes());
    let mut zeros = 0;
    for byte in context.finish().as_ref() {
        zeros += byte.leading_zeros();
        if *byte != 0 {
            break;
        }
    }
    zeros
}

/// The network of a visitor (/24 or /56), which changes less often than the address.
fn prefix(peer: IpAddr) -> Vec<u8> {
    match peer.to_canonical() {
        IpAddr::V4(v4) => v4.octets().into_iter().take(3).collect(),
        IpAddr::V6(v6) => v6.octets().into_iter().take(7).collect(),
    }
}

/// Difficulty in bits for a host with this rate of puzzles. Each doubling adds one bit.
fn difficulty(per_second: u32) -> u8 {
    let doublings = (per_second / EASY_PER_SECOND)
        .checked_ilog2()
        .map_or(0, |log| log + 1);
    let bits = u32::from(EASIEST_BITS) + doublings;
    u8::try_from(bits).unwrap_or(HARDEST_BITS).min(HARDEST_BITS)
}

/// Counters of the puzzles for hosts in the current second. Hosts that share a counter make the
/// puzzles slightly harder for each other. The table cannot overflow.
#[derive(Debug)]
struct PuzzleRates {
    /// The upper half of a counter is the second, the lower half is the count.
    counters: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for PuzzleRates {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl PuzzleRates {
    /// Counts a puzzle for the host. Returns the count of the current second.
    fn count(&self, host: &str, now: i64) -> u32 {
        let second = u64::from(low_half(now.unsigned_abs()));
        let at = usize::try_from(self.hasher.hash_one(host) % COUNTERS as u64).unwrap_or_default();
        let Some(counter) = self.counters.get(at) else {
            return 0;
        };
        let next = |seen: u64| {
            if seen >> 32 == second {
                (second << 32) | u64::from(low_half(seen).saturating_add(1))
            } else {
                (second << 32) | 1
            }
        };
        // The closure always returns a value, so this never fails.
        let before = counter
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| {
                Some(next(seen))
            })
            .unwrap_or_default();
        low_half(next(before))
    }
}

fn low_half(counter: u64) -> u32 {
    u32::try_from(counter & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// Lifetime of a puzzle in seconds. A slow phone solves the hardest one in a tenth of it.
const PUZZLE_SECONDS: i64 = 120;
/// Seconds until a browser has to pass the challenge again.
const PASSED_SECONDS: i64 = 3600;
/// Tolerated clock difference of two engines, in seconds.
const LEEWAY_SECONDS: i64 = 5;
/// Limit of stored solved puzzles: a thousand a second, for the lifetime of a puzzle.
const SOLVED: usize = 262_144;
/// Eight thousand hashes on average, which users do not notice on any machine.
const EASIEST_BITS: u8 = 13;
/// A million hashes on average, which take seconds on a phone.
const HARDEST_BITS: u8 = 20;
/// Puzzles of a host per second before they get harder.
const EASY_PER_SECOND: u32 = 8;
/// Limit of a target in the address of a challenge, in bytes. It includes the address of the route
/// to a longer one.
const MAX_TARGET: usize = 2048;
/// Number of counters, which take 8 KiB.
const COUNTERS: usize = 1024;

#[cfg(test)]
mod tests {
    use credentials::Secret;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn seals() -> Seals {
        Seals::derive(&Secret::new("of the cluster")).unwrap()
    }

    fn solved(puzzle: &Puzzle) -> String {
        let solves = |number: &u64| {
            let number = number.to_string();
            zero_bits(Solution {
                puzzle: &puzzle.text,
                number: &number,
            }) >= u32::from(puzzle.bits)
        };
        (0..1 << 30).find(solves).unwrap().to_string()
    }

    /// The browser keeps a target that is too long for the address.
    #[test]
    fn a_long_target_is_not_in_the_address() {
        let seals = seals();
        let round_trip = |target: &str| {
            let head_bytes = 1024 * 1024;
            let page = Challenges::page("/challenge", "a.example", target, head_bytes, &seals);
            let page = page.unwrap();
            assert!(page.location.len() < 3072, "{}", page.location.len());
            let sealed = page.location.strip_prefix("/challenge?to=").unwrap();
            let target = Challenges::target("a.example", sealed, &seals).unwrap();
            (target, page.set_cookies.len())
        };
        let query = |length: usize| format!("/path?{}", "q".repeat(length - 6));
        assert_eq!(round_trip(&query(2048)), (query(2048), 0));
        let (route, cookies) = round_trip(&query(2049));
        let wanted = "/.well-known/svc/callback/";
        assert!(route.starts_with(wanted) && cookies == 1, "{route}");
        assert_eq!(round_trip(&query(50_000)), ("/path".to_owned(), 0));
    }

    /// ED-6: a puzzle can be solved once, from its network, for its host, within its lifetime.
    #[test]
    fn ed_6_a_puzzle_is_solved_once_from_its_network_and_in_time() {
        let (challenges, seals) = (Challenges::default(), seals());
        let here: IpAddr = "192.0.2.7".parse().unwrap();
        let puzzle = challenges.puzzle("a.example", here, &seals, NOW);
        let number = solved(&puzzle);
        let solve = |number: &str, host: &str, peer: &str, now| {
            let solution = Solution {
                puzzle: &puzzle.text,
                number,
            };
            challenges.solve(
                solution,
                (host, peer.parse().unwrap()),
                &"prj_1".into(),
                &seals,
                now,
            )
        };
        for (host, peer, now) in [
            ("b.example", "192.0.2.7", NOW),
            ("a.example", "192.0.3.7", NOW),
            ("a.example", "2001:db8::1", NOW),
            ("a.example", "192.0.2.7", NOW + PUZZLE_SECONDS),
            ("a.example", "192.0.2.7", NOW - 60),
        ] {
            assert_eq!(
                solve(&number, host, peer, now),
                Err(SolutionError::Foreign),
                "{host} {peer}"
            );
        }
        for wrong in ["", "-1", "x", "12345678901234567"] {
            assert_eq!(
                solve(wrong, "a.example", "192.0.2.7", NOW),
                Err(SolutionError::Wrong)
            );
        }
        let cookie = solve(&number, "a.example", "192.0.2.250", NOW + 1).unwrap();
        let used = solve(&number, "a.example", "192.0.2.7", NOW + 2);
        assert_eq!(used, Err(SolutionError::Used));

        let value = cookie.strip_prefix("__Host-svc_challenge=").unwrap();
        let value = value.split(';').next().unwrap();
        for (host, peer, now, passes) in [
            ("a.example", "192.0.2.9", NOW + 3600, true),
            ("a.example", "192.0.2.9", NOW + 3601, false),
            ("a.example", "192.0.9.9", NOW + 1, false),
            ("b.example", "192.0.2.9", NOW + 1, false),
        ] {
            let from = (host, peer.parse().unwrap());
            assert_eq!(
                Challenges::is_passed(value, from, &seals, now),
                passes,
                "{host} {peer}"
            );
        }
        let other = Seals::derive(&Secret::new("of another")).unwrap();
        assert!(!Challenges::is_passed(
            value,
            ("a.example", here),
            &other,
            NOW + 1
        ));
        assert!(!Challenges::is_passed(
            &puzzle.text,
            ("a.example", here),
            &seals,
            NOW + 1
        ));
    }

    /// ED-6: difficulty grows with the number of puzzles for the host, up to a limit.
    #[test]
    fn ed_6_difficulty_grows_with_the_load_of_the_host_up_to_a_limit() {
        for (per_second, bits) in [
            (0, 13),
            (7, 13),
            (8, 14),
            (16, 15),
            (1000, 20),
            (u32::MAX, 20),
        ] {
            assert_eq!(difficulty(per_second), bits, "{per_second}");
        }
        let load = PuzzleRates::default();
        let counts: Vec<u32> = (0..3).map(|_| load.count("a.example", NOW)).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert_eq!(load.count("a.example", NOW + 1), 1);
    }

    #[test]
    fn addresses_of_one_network_have_the_same_prefix() {
        let of = |text: &str| prefix(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.9"));
        assert_eq!(of("2001:db8:1:200::1"), of("2001:db8:1:2ff::2"));
        assert_ne!(of("2001:db8:1:200::1"), of("2001:db8:1:300::1"));
    }
}

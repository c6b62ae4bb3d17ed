//! The challenge (ED-6): a browser does some work before it comes near a tunnel.
//!
//! A puzzle is stateless: it says when it was made and how hard it is, and is signed for a host and
//! an address prefix. What has been solved is remembered for as long as a puzzle is good.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;

use super::cookies;
use super::once::{NotNow, Once};
use super::seals::{Purpose, Seals};
use super::sign_in::Targets;
use crate::agents::random_bytes;

/// Puzzles that were solved, and how many are asked for.
#[derive(Debug)]
pub(crate) struct Challenges {
    solved: Once,
    load: Load,
}

/// A puzzle for one browser: find a number for which SHA-256 of `<text>.<number>` begins with
/// so many zero bits.
#[derive(Debug)]
pub(crate) struct Puzzle {
    pub(crate) text: String,
    pub(crate) bits: u8,
}

/// What a browser found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Solution<'a> {
    pub(crate) puzzle: &'a str,
    pub(crate) number: &'a str,
}

/// Why a solution is none. For the log.
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
            solved: Once::new(PUZZLE_SECONDS + LEEWAY_SECONDS, SOLVED),
            load: Load::default(),
        }
    }
}

impl Challenges {
    /// A puzzle for a browser, harder the more of them the host has to give.
    pub(crate) fn puzzle(&self, host: &str, peer: IpAddr, seals: &Seals, now: i64) -> Puzzle {
        let bits = difficulty(self.load.count(host, now));
        let mut payload = now.to_be_bytes().to_vec();
        payload.push(bits);
        payload.extend_from_slice(&random_bytes::<12>());
        let text = seals.sign(Purpose::Puzzle, &[host.as_bytes(), &prefix(peer)], &payload);
        Puzzle { text, bits }
    }

    /// Judges a solution; the value of the `Set-Cookie` that says that the challenge was passed.
    pub(crate) fn solve(
        &self,
        solution: Solution<'_>,
        (host, peer): (&str, IpAddr),
        project: &Arc<str>,
        seals: &Seals,
        now: i64,
    ) -> Result<String, SolutionError> {
        let bound: [&[u8]; 2] = [host.as_bytes(), &prefix(peer)];
        let payload = seals.check(Purpose::Puzzle, &bound, solution.puzzle);
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
            .take(&payload, project, now)
            .map_err(|refused| match refused {
                NotNow::Used => SolutionError::Used,
                NotNow::Full => SolutionError::Busy,
            })?;
        let value = seals.sign(Purpose::Passed, &bound, &now.to_be_bytes());
        Ok(cookies::set(cookies::CHALLENGE, &value, PASSED_SECONDS))
    }

    /// Whether a cookie says that the challenge was passed from here, not too long ago.
    pub(crate) fn is_passed(
        cookie: &str,
        (host, peer): (&str, IpAddr),
        seals: &Seals,
        now: i64,
    ) -> bool {
        let bound: [&[u8]; 2] = [host.as_bytes(), &prefix(peer)];
        let payload = seals.check(Purpose::Passed, &bound, cookie);
        let age = payload
            .and_then(|made| made_at(&made))
            .map(|made| now.saturating_sub(made));
        age.is_some_and(|age| (-LEEWAY_SECONDS..PASSED_SECONDS).contains(&age))
    }

    /// The path and query of the page that gives a browser a puzzle and sends it on to `target`
    /// (path and query) when it is solved. `route` is where the page is.
    pub(crate) fn page(route: &str, host: &str, target: &str, seals: &Seals) -> Option<String> {
        let to = Targets::seal(seals, host, WORD, target, MAX_TARGET)?;
        Some(format!("{route}?to={to}"))
    }

    /// The target that was sealed for [`Self::page`].
    pub(crate) fn target(host: &str, sealed: &str, seals: &Seals) -> Option<String> {
        let (word, target) = Targets::open(seals, host, sealed)?;
        (word == WORD).then_some(target)
    }
}

/// A target of a challenge is none of a sign-in.
const WORD: &str = "challenge";

/// When a payload was made, in Unix seconds.
fn made_at(payload: &[u8]) -> Option<i64> {
    let made: [u8; 8] = payload.get(..8)?.try_into().ok()?;
    Some(i64::from_be_bytes(made))
}

/// Zero bits at the start of the hash.
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

/// The network of a visitor, which changes its address more often than its network: /24, /56.
fn prefix(peer: IpAddr) -> Vec<u8> {
    match peer.to_canonical() {
        IpAddr::V4(v4) => v4.octets().into_iter().take(3).collect(),
        IpAddr::V6(v6) => v6.octets().into_iter().take(7).collect(),
    }
}

/// Bits for a host that gives so many puzzles in a second: one more for each doubling.
fn difficulty(per_second: u32) -> u8 {
    let doublings = (per_second / CALM_PER_SECOND)
        .checked_ilog2()
        .map_or(0, |log| log + 1);
    let bits = u32::from(EASIEST_BITS) + doublings;
    u8::try_from(bits).unwrap_or(HARDEST_BITS).min(HARDEST_BITS)
}

/// How many puzzles hosts give in this second. Hosts that meet in one place make it a little harder
/// for each other; there is nothing to fill up.
#[derive(Debug)]
struct Load {
    /// In each: the second in the upper half, the count in the lower.
    places: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Load {
    /// Counts one more for the host, and says how many it has been in this second.
    fn count(&self, host: &str, now: i64) -> u32 {
        let second = u64::from(low(now.unsigned_abs()));
        let at = usize::try_from(self.hasher.hash_one(host) % PLACES as u64).unwrap_or_default();
        let Some(place) = self.places.get(at) else {
            return 0;
        };
        let next = |seen: u64| {
            if seen >> 32 == second {
                (second << 32) | u64::from(low(seen).saturating_add(1))
            } else {
                (second << 32) | 1
            }
        };
        // The closure always gives a value, so this never fails.
        let before = place
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| {
                Some(next(seen))
            })
            .unwrap_or_default();
        low(next(before))
    }
}

fn low(place: u64) -> u32 {
    u32::try_from(place & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// Seconds for which a puzzle is good: a slow phone solves the hardest one in a tenth of it.
const PUZZLE_SECONDS: i64 = 120;
/// Seconds for which a browser that passed is let through.
const PASSED_SECONDS: i64 = 3600;
/// What the clocks of two engines may differ by.
const LEEWAY_SECONDS: i64 = 5;
/// Solved puzzles that are remembered: a thousand a second, for as long as they are good.
const SOLVED: usize = 262_144;
/// Eight thousand hashes on average: not noticed by a person, on any machine.
const EASIEST_BITS: u8 = 13;
/// A million hashes on average: seconds on a phone.
const HARDEST_BITS: u8 = 20;
/// Puzzles that a host gives in a second before they get harder.
const CALM_PER_SECOND: u32 = 8;
/// Longest target behind a challenge, in bytes.
const MAX_TARGET: usize = 2048;
/// Places of the count: 8 KiB.
const PLACES: usize = 1024;

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

    #[test]
    fn a_target_that_is_too_long_loses_its_query() {
        let seals = seals();
        let comes_back = |target: &str| {
            let page = Challenges::page("/challenge", "a.example", target, &seals).unwrap();
            let sealed = page.strip_prefix("/challenge?to=").unwrap();
            Challenges::target("a.example", sealed, &seals).unwrap()
        };
        let query = |length: usize| format!("/path?{}", "q".repeat(length - 6));
        assert_eq!(comes_back(&query(2048)), query(2048));
        assert_eq!(comes_back(&query(2049)), "/path");
    }

    /// ED-6.
    #[test]
    fn ed_6_a_puzzle_is_solved_once_where_it_was_given_and_in_time() {
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

    /// ED-6.
    #[test]
    fn ed_6_work_grows_with_the_load_of_the_host_and_has_a_bound() {
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
        let load = Load::default();
        let counts: Vec<u32> = (0..3).map(|_| load.count("a.example", NOW)).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert_eq!(load.count("a.example", NOW + 1), 1);
    }

    #[test]
    fn an_address_is_known_by_its_network() {
        let of = |text: &str| prefix(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.9"));
        assert_eq!(of("2001:db8:1:200::1"), of("2001:db8:1:2ff::2"));
        assert_ne!(of("2001:db8:1:200::1"), of("2001:db8:1:300::1"));
    }
}

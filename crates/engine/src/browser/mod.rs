//! Browser state at a tunnel's host: sessions (ED-2), pending sign-ins, and passed challenges
//! (ED-6).
//!
//! The engine does not store this state. It is in cookies, sealed with keys that every engine of
//! the cluster derives from the enrolment secret, and is checked with each request. The engine
//! stores only the ids of things that can be used once, in bounded sets. A community engine has no
//! enrolment secret, so it has no sessions and no challenges.

mod challenge;
mod cookies;
mod long_target;
mod one_time_ids;
mod page;
mod page_footer;
mod redirect_target;
mod refusal;
mod seals;
mod session;
mod sign_in;
mod signed_in;

use credentials::AssertionKey;

pub(crate) use self::challenge::{Challenges, Solution};
pub use self::cookies::{CHALLENGE, Cookie, EdgeCookies, SESSION, SIGN_IN};
pub(crate) use self::cookies::{is_edge_pair, pairs, sets_edge_cookie};
pub(crate) use self::long_target::{CALLBACK, LongTargetRedirect};
pub(crate) use self::page::Page;
pub(crate) use self::page_footer::PageFooter;
pub(crate) use self::refusal::in_text;
pub use self::seals::Seals;
pub use self::session::{Session, SessionError};
pub(crate) use self::sign_in::{SignInCallback, SignInRequest, SignIns};
pub use self::signed_in::{SESSION_SECONDS, SignInHosts};

/// Keys and used ids for browser sessions and challenges.
#[derive(Debug)]
pub(crate) struct Browsers {
    pub(crate) seals: Seals,
    pub(crate) sign_ins: SignIns,
    pub(crate) challenges: Challenges,
    /// Signs the identity of visitors for services.
    pub(crate) assertions: AssertionKey,
}

impl Browsers {
    pub(crate) fn new(seals: Seals, assertions: AssertionKey) -> Self {
        Self {
            seals,
            sign_ins: SignIns::default(),
            challenges: Challenges::default(),
            assertions,
        }
    }
}

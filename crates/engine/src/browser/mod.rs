//! What a person's browser holds at a tunnel's host: a session (ED-2), a sign-in that is under way,
//! a challenge that it passed (ED-6).
//!
//! Nothing of it is kept here. A cookie says what it says, sealed with keys that every engine of
//! the cluster derives from the enrolment secret, and is judged with each request; what is
//! remembered is only what may be used once, in bounded sets. A community engine has no such
//! secret, and none of this.

mod challenge;
mod cookies;
mod once;
mod page;
mod refusal;
mod seals;
mod session;
mod sign_in;
mod signed_in;

pub(crate) use self::challenge::{Challenges, Solution};
pub use self::cookies::{CHALLENGE, Cookie, EdgeCookies, SESSION, SIGN_IN};
pub(crate) use self::cookies::{is_edge_pair, pairs, sets_edge_cookie};
pub(crate) use self::page::Page;
pub(crate) use self::refusal::in_text;
pub use self::seals::Seals;
pub use self::session::{NoSession, SESSION_SECONDS, Session};
pub(crate) use self::sign_in::{SignInCallback, SignInRequest, SignIns};
pub use self::signed_in::SignedIn;

/// What an engine with browser sessions and challenges needs beside its keys.
#[derive(Debug)]
pub(crate) struct Browsers {
    pub(crate) seals: Seals,
    pub(crate) sign_ins: SignIns,
    pub(crate) challenges: Challenges,
}

impl Browsers {
    pub(crate) fn new(seals: Seals) -> Self {
        Self {
            seals,
            sign_ins: SignIns::default(),
            challenges: Challenges::default(),
        }
    }
}

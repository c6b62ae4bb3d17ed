//! Accounts of users: sign-in, factors, mail addresses and invitations.

mod deleted;
mod email_change;
mod invitations;
mod mail;
pub(crate) mod openid;
mod passkeys;
mod passkeys_chromium;
mod races;
mod reset;
pub(crate) mod second_factor;
mod sign_in;

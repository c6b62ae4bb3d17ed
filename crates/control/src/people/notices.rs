//! Mails that notify users of changes to their account.
//!
//! An attacker with a stolen session or token can issue further credentials. The owner is notified
//! by mail. The mail names the client's address and explains how to undo the change. Notices are
//! not throttled, because an attacker could use the limit to suppress the important one.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use store::users::User;

use super::email::Email;
use crate::app::App;
use crate::http_api::user_text::printable;
use crate::mail::Message;

/// A change of an account that its owner is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A long-lived credential with this name was issued or replaced.
    CredentialIssued(String),
    /// The OAuth client with this name got a token.
    ClientLinked(String),
    /// A passkey with this name was registered.
    PasskeyAdded(String),
    /// A passkey was removed.
    PasskeyRemoved,
    /// An identity of the OpenID provider with this name was linked.
    IdentityLinked(String),
    /// The authenticator app is active.
    SecondFactorOn,
    /// The authenticator app was removed.
    SecondFactorOff,
    /// The password was changed by a user with the old one.
    PasswordChanged,
    /// The password was set with a link that was sent by mail.
    PasswordReset,
    /// The password was right, and the second factor was wrong many times.
    SecondFactorGuessed,
}

impl Notice {
    fn subject(&self) -> &'static str {
        match self {
            Self::CredentialIssued(_) => "A new credential for your account",
            Self::ClientLinked(_) => "An application was linked to your account",
            Self::PasskeyAdded(_) => "A passkey was added to your account",
            Self::PasskeyRemoved => "A passkey was removed from your account",
            Self::IdentityLinked(_) => "Another way to sign in to your account",
            Self::SecondFactorOn => "The second factor of your account is on",
            Self::SecondFactorOff => "The second factor of your account is off",
            Self::PasswordChanged => "Your password was changed",
            Self::PasswordReset => "Your password was reset",
            Self::SecondFactorGuessed => "Someone is trying to guess your second factor",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::CredentialIssued(name) => {
                format!("the credential \"{}\" was issued for", printable(name))
            }
            Self::ClientLinked(name) => {
                format!("the application \"{}\" was linked to", printable(name))
            }
            Self::PasskeyAdded(name) => {
                format!("the passkey \"{}\" was added to", printable(name))
            }
            Self::PasskeyRemoved => "a passkey was removed from".to_owned(),
            Self::IdentityLinked(name) => {
                format!("signing in with \"{}\" was added to", printable(name))
            }
            Self::SecondFactorOn => "an authenticator app was set up for".to_owned(),
            Self::SecondFactorOff => "the authenticator app was removed from".to_owned(),
            Self::PasswordChanged => "the password was changed of".to_owned(),
            Self::PasswordReset => "the password was set with a link from a mail for".to_owned(),
            Self::SecondFactorGuessed => {
                "someone entered the right password, and then a wrong second factor many times, for"
                    .to_owned()
            }
        }
    }

    /// Instructions for undoing the change.
    fn advice(&self) -> &'static str {
        match self {
            Self::SecondFactorGuessed => {
                "If it was not you, change your password now: another person knows it."
            }
            Self::CredentialIssued(_) | Self::ClientLinked(_) => {
                "If it was not you, revoke it, together with the credential that issued it, and \
                 change your password."
            }
            Self::PasskeyAdded(_)
            | Self::PasskeyRemoved
            | Self::IdentityLinked(_)
            | Self::SecondFactorOn
            | Self::SecondFactorOff
            | Self::PasswordChanged
            | Self::PasswordReset => {
                "If it was not you, reset your password now, and check your credentials and \
                 passkeys."
            }
        }
    }
}

/// Sends a notice to the owner of an account, after the response.
pub fn send(app: &Arc<App>, to: &User, notice: &Notice, ip: IpAddr, now: Timestamp) {
    let Ok(email) = Email::parse(&to.email) else {
        // Addresses from before addresses were validated get no mail.
        return;
    };
    let text = format!(
        "Hello {name},\n\n{what} your account at {platform}.\n\nTime: {time}\nAddress: {ip}\n\n\
         {advice}\n\nYour account: {account}\n",
        name = printable(&to.name),
        what = notice.text(),
        platform = app.config.base_url,
        time = now.strftime("%Y-%m-%d %H:%M:%S UTC"),
        advice = notice.advice(),
        account = app.config.url("/account"),
    );
    let message = Message::new(email, notice.subject(), text);
    let failure = "a notice to the owner of an account could not be sent";
    app.people.mail_after_response(message, now, failure);
}

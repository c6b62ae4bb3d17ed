//! Display of errors with their causes.

use std::error::Error;

/// Returns the error with its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The text of a wrapper may already include its cause, which is then not repeated.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct Wrapper(&'static str, io::Error);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn causes_are_not_repeated() {
        let cause = || io::Error::other("no route");
        assert_eq!(
            chain(&Wrapper("the engine", cause())),
            "the engine: no route"
        );
        assert_eq!(chain(&Wrapper("lost: no route", cause())), "lost: no route");
    }
}

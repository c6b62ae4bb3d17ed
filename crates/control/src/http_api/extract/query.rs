//! Query parameters.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use api::control::{DEFAULT_PAGE_SIZE, MAX_PAGE, MAX_PAGE_SIZE};
use axum::extract::FromRequestParts;
use http::request::Parts;
use jiff::Timestamp;
use store::{Order, Paging};
use types::form::decode;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};

/// The parameters of a query. A handler removes the parameters that it supports and calls
/// [`Query::finish`]. Unknown and repeated parameters are refused by name.
#[derive(Debug)]
pub struct Query(BTreeMap<String, String>);

/// The requested page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// From 1.
    pub page: u32,
    /// From 1 to [`MAX_PAGE_SIZE`].
    pub size: u32,
}

impl Page {
    /// The rows of the page in the database.
    pub fn rows(self) -> Paging {
        Paging::new(self.page, self.size).unwrap_or(Paging::DEFAULT)
    }

    /// The position of the page in a list of `total` items, for the response.
    pub fn position(self, total: u64) -> api::control::Paging {
        api::control::Paging::new(self.page, self.size, total)
    }
}

impl Query {
    /// Parses `a=b&c=d`, percent-encoded, with `+` for a space (WHATWG URL, section 5.1).
    pub fn parse(text: &str) -> HandlerResult<Self> {
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(malformed)?;
            let value = decode(value).ok_or_else(|| bad(&name, "is not encoded correctly"))?;
            if parameters.contains_key(&name) {
                return Err(bad(&name, "is repeated"));
            }
            parameters.insert(name, value);
        }
        Ok(Self(parameters))
    }

    /// True if a parameter has not been removed yet.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Removes and returns a text.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Removes and parses a value. `expected` ends the sentence "`name` is not …".
    pub fn parsed<T: FromStr>(&mut self, name: &str, expected: &str) -> HandlerResult<Option<T>> {
        self.text(name)
            .map(|text| {
                text.parse()
                    .map_err(|_| bad(name, &format!("is not {expected}")))
            })
            .transpose()
    }

    /// Removes and returns a time.
    pub fn time(&mut self, name: &str) -> HandlerResult<Option<Timestamp>> {
        let expected = "an RFC 3339 date and time, such as 2026-12-31T23:59:59Z";
        self.parsed(name, expected)
    }

    /// Removes and returns an integer within limits, both included.
    pub fn integer(&mut self, name: &str, least: u32, most: u32) -> HandlerResult<Option<u32>> {
        let expected = format!("an integer from {least} to {most}");
        let digits = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit());
        self.text(name)
            .map(|text| {
                Some(&text)
                    .filter(|text| digits(text))
                    .and_then(|text| text.parse().ok())
                    .filter(|number| (least..=most).contains(number))
                    .ok_or_else(|| bad(name, &format!("is not {expected}")))
            })
            .transpose()
    }

    /// Removes and returns a value from a fixed set.
    pub fn keyword<T: Copy>(
        &mut self,
        name: &str,
        words: &[(&str, T)],
    ) -> HandlerResult<Option<T>> {
        let Some(given) = self.text(name) else {
            return Ok(None);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == given) {
            return Ok(Some(*value));
        }
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        Err(bad(name, &format!("is not one of {}", known.join(", "))))
    }

    /// Removes `page` and `pageSize`.
    pub fn page(&mut self) -> HandlerResult<Page> {
        let page = self.integer("page", 1, MAX_PAGE)?.unwrap_or(1);
        let size = self
            .integer("pageSize", 1, MAX_PAGE_SIZE)?
            .unwrap_or(DEFAULT_PAGE_SIZE);
        Ok(Page { page, size })
    }

    /// Removes `order`.
    pub fn order(&mut self) -> HandlerResult<Option<Order>> {
        self.keyword("order", &[("asc", Order::Asc), ("desc", Order::Desc)])
    }

    /// Refuses the remaining parameters.
    pub fn finish(self) -> HandlerResult<()> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(bad(&name, "is not a known parameter")),
        }
    }
}

impl FromRequestParts<Arc<App>> for Query {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> HandlerResult<Self> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

fn bad(name: &str, problem: &str) -> Refusal {
    // An unknown name is untrusted text, so only a part of it is repeated.
    let name: String = name.chars().take(64).collect();
    Problem::invalid_request(format!("{name} {problem}"))
        .with_field(name)
        .into()
}

fn malformed() -> Refusal {
    Problem::invalid_request("the query is not encoded correctly").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(answer: HandlerResult<impl std::fmt::Debug>) -> String {
        let refusal = answer.unwrap_err();
        refusal.problem().field.clone().unwrap_or_default()
    }

    #[test]
    fn parameters_are_removed_when_read() {
        let mut query = Query::parse("q=a+b%2Bc&page=2&order=desc").unwrap();
        assert_eq!(query.text("q").as_deref(), Some("a b+c"));
        assert_eq!(query.page().unwrap(), Page { page: 2, size: 20 });
        assert_eq!(field(query.finish()), "order");
        assert!(Query::parse("").unwrap().finish().is_ok());
    }

    #[test]
    fn errors_name_the_malformed_parameter() {
        assert_eq!(field(Query::parse("a=1&%61=2")), "a");
        assert_eq!(field(Query::parse("a=%zz")), "a");
        assert_eq!(field(Query::parse("a=%ff")), "a");
        assert_eq!(field(Query::parse("%f=1")), "");
        for bad in ["0", "1000001", "+1", "1.0", "-1", "", "99999999999"] {
            assert_eq!(
                field(
                    Query::parse(&format!("page={}", bad.replace('+', "%2B")))
                        .unwrap()
                        .page()
                ),
                "page"
            );
        }
        assert_eq!(
            field(Query::parse("pageSize=101").unwrap().page()),
            "pageSize"
        );
        let mut query = Query::parse("at=x").unwrap();
        assert_eq!(field(query.parsed::<u8>("at", "a number")), "at");
    }
}

//! Licence expressions, and the licences that are allowed by `deny.toml`.

use anyhow::{Context as _, Result, bail};
use spdx::{Expression, Licensee, ParseMode};

use crate::repository::Repository;

/// The licence of a component, as an SPDX expression.
#[derive(Clone, Debug)]
pub(super) struct Licence {
    expression: Expression,
    text: String,
}

impl Licence {
    /// Older manifests have `/` instead of `OR`.
    pub(super) fn new(text: &str) -> Result<Self> {
        let text = text.replace('/', " OR ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expression = Expression::parse_mode(&text, ParseMode::STRICT);
        let expression = expression.map_err(|error| anyhow::anyhow!("no licence: {error}"))?;
        Ok(Self { expression, text })
    }

    /// The SPDX notation.
    pub(super) fn spdx(&self) -> &str {
        &self.text
    }

    /// Every named licence, with its exception.
    pub(super) fn alternatives(&self) -> impl Iterator<Item = String> {
        self.expression
            .requirements()
            .map(|requirement| requirement.req.to_string())
    }

    /// The smallest set of licences that satisfies the expression, from those in `allowed`.
    pub(super) fn fewest(&self, allowed: &AllowedLicences) -> Result<Vec<String>> {
        let fewest = self.expression.minimized_requirements(&allowed.0);
        let fewest = fewest.map_err(|error| anyhow::anyhow!("{}: {error}", self.text))?;
        Ok(fewest.iter().map(ToString::to_string).collect())
    }

    /// True if the expression consists only of `AND`, or only of `OR`, so that it needs no
    /// brackets.
    pub(super) fn is_flat(&self) -> bool {
        !(self.text.contains(" AND ") && self.text.contains(" OR "))
    }

    /// The SPDX texts of all named licences, with the holders filled in.
    pub(super) fn standard_texts(&self, holders: &str) -> String {
        let ids = self
            .expression
            .requirements()
            .filter_map(|requirement| requirement.req.license.id());
        ids.map(|id| standard_text(id, holders))
            .collect::<Vec<_>>()
            .join("\n\n")
    }
}

/// The SPDX text of a licence.
pub(super) fn standard_text(id: spdx::LicenseId, holders: &str) -> String {
    let text = id.text().trim();
    text.replace("<year> <copyright holders>", holders)
        .replace("<year> <owner>", holders)
}

/// The allowed licences.
pub(super) struct AllowedLicences(Vec<Licensee>);

impl AllowedLicences {
    /// The list `allow` of `deny.toml`.
    pub(super) fn read(repository: &Repository) -> Result<Self> {
        Self::parse(&repository.read("deny.toml")?)
    }

    fn parse(deny: &str) -> Result<Self> {
        let (_, list) = deny
            .split_once("\nallow = [\n")
            .context("deny.toml has no list `allow`")?;
        let (list, _) = list
            .split_once("\n]")
            .context("the list `allow` has no end")?;
        let licences = list.lines().map(|line| {
            let name = line.trim().trim_end_matches(',').trim_matches('"');
            Licensee::parse(name).with_context(|| format!("deny.toml: {name}"))
        });
        Ok(Self(licences.collect::<Result<_>>()?))
    }

    /// The licence of a component, if it is allowed.
    pub(super) fn check(&self, text: &str) -> Result<Licence> {
        let licence = Licence::new(text)?;
        let is_good = licence
            .expression
            .evaluate(|requirement| self.0.iter().any(|allowed| allowed.satisfies(requirement)));
        if !is_good {
            bail!("the licence {text} is not on the list of deny.toml");
        }
        Ok(licence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_licences_are_allowed() {
        let deny = "[licenses]\nallow = [\n    \"MIT\",\n    \"ISC\",\n]\n";
        let allowed = AllowedLicences::parse(deny).unwrap();
        for (text, is_good) in [
            ("MIT", true),
            ("GPL-3.0-only OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-3.0-only", false),
            ("", false),
        ] {
            assert_eq!(allowed.check(text).is_ok(), is_good, "{text}");
        }
        let licence = allowed.check("MIT / Apache-2.0").unwrap();
        assert_eq!(licence.spdx(), "MIT OR Apache-2.0");
        assert_eq!(licence.fewest(&allowed).unwrap(), ["MIT"]);
    }
}

//! `THIRD-PARTY-LICENSES`, for people, and Debian's `copyright`, also for its tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::inventory::{Component, Inventory};
use super::licence::{AllowedLicences, Licence};

/// Every component with its licence, then every text with its components.
pub(super) fn third_party(inventory: &Inventory) -> Result<String> {
    let mut page = String::from(
        "This program contains the work of others. First each part with its licence, then every\n\
         text of a licence or notice with the parts that it comes from.\n\n",
    );
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for component in &inventory.others {
        let name = format!("{} {}", component.name, component.version);
        let source = component.source.as_deref().unwrap_or("crates.io");
        writeln!(page, "{name}: {} ({source})", component.licence.spdx())?;
        for notice in &component.notices {
            texts.entry(&notice.0).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (text, names) in texts {
        let line = "-".repeat(78);
        write!(page, "\n{line}\n{}:\n\n{text}\n", names.join(", "))?;
    }
    Ok(page)
}

/// In the format of Debian's policy, version 1.0, with the paths of crates from `cargo vendor
/// --versioned-dirs`.
pub(super) fn debian(
    inventory: &Inventory,
    allowed: &AllowedLicences,
    package: &str,
) -> Result<String> {
    let mut file = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: svc\nComment:\n \
         Crates that the program contains are named as `cargo vendor --versioned-dirs` names their\n \
         folders. Their notices, word for word, are in\n \
         /usr/share/doc/{package}/THIRD-PARTY-LICENSES.gz.\n\n\
         Files: *\nCopyright: the authors of svc\nLicense: Apache-2.0\n"
    );
    let mut used = BTreeSet::from(["Apache-2.0".to_owned()]);
    for component in &inventory.others {
        let licence = short(&component.licence, allowed, &mut used)?;
        write!(
            file,
            "\nFiles: vendor/{}-{}/*\nCopyright: {}\nLicense: {licence}\n",
            component.name,
            component.version,
            holders(component).join("\n ")
        )?;
    }
    for licence in used {
        let name = debian_name(&licence);
        write!(file, "\nLicense: {name}\n{}", paragraph(&licence)?)?;
    }
    Ok(file)
}

/// An expression in Debian's notation, which has no brackets. If SPDX needs some, the chosen
/// licences are listed. Records the used licences.
fn short(
    licence: &Licence,
    allowed: &AllowedLicences,
    used: &mut BTreeSet<String>,
) -> Result<String> {
    let (names, between): (Vec<_>, _) = if licence.is_flat() {
        let is_all = licence.spdx().contains(" AND ");
        let between = if is_all { " and " } else { " or " };
        (licence.alternatives().collect(), between)
    } else {
        (licence.fewest(allowed)?, " and ")
    };
    let short: Vec<_> = names.iter().map(|name| debian_name(name)).collect();
    used.extend(names);
    Ok(short.join(between))
}

fn debian_name(licence: &str) -> String {
    match licence {
        "MIT" => "Expat".to_owned(),
        "BSD-2-Clause" => "BSD-2-clause".to_owned(),
        "BSD-3-Clause" => "BSD-3-clause".to_owned(),
        "blessing" => "public-domain".to_owned(),
        _ => match licence.split_once(" WITH ") {
            Some((licence, exception)) => {
                let exception = exception.trim_end_matches("-exception");
                format!("{licence} with {exception} exception")
            }
            None => licence.to_owned(),
        },
    }
}

/// The text of a licence, or its location on Debian.
fn paragraph(licence: &str) -> Result<String> {
    let (name, exception) = match licence.split_once(" WITH ") {
        Some((name, exception)) => (name, spdx::exception_id(exception)),
        None => (licence, None),
    };
    let mut text = match name {
        "Apache-2.0" | "MPL-2.0" => {
            format!("On Debian systems the text is in /usr/share/common-licenses/{name}.")
        }
        _ => spdx::license_id(name)
            .with_context(|| format!("{name} is not a licence"))?
            .text()
            .trim()
            .to_owned(),
    };
    if let Some(exception) = exception {
        text.push_str("\n\n");
        text.push_str(exception.text().trim());
    }
    let mut lines = String::new();
    for line in text.lines() {
        let line = line.trim_end();
        writeln!(lines, " {}", if line.is_empty() { "." } else { line })?;
    }
    Ok(lines)
}

/// Lines of the texts that name the copyright holders of a component, otherwise its authors.
fn holders(component: &Component) -> Vec<String> {
    let lines = component.notices.iter().flat_map(|notice| notice.0.lines());
    let lines = lines.map(|line| line.trim_matches(|letter: char| " \t*#/-".contains(letter)));
    let mut holders: Vec<String> = Vec::new();
    for holder in lines.filter_map(holder) {
        if !holders.iter().any(|known| known == holder) {
            holders.push(holder.to_owned());
        }
    }
    if holders.is_empty() {
        holders.clone_from(&component.authors);
    }
    if holders.is_empty() {
        holders.push(format!("the authors of {}", component.name));
    }
    holders.truncate(HOLDERS);
    holders
}

/// The years and the name after `Copyright (c)`.
fn holder(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("Copyright")?.trim_start();
    let marks = ["(c)", "(C)", "©"];
    let marked = marks.iter().find_map(|mark| rest.strip_prefix(mark));
    let is_told = marked.is_some() || rest.starts_with(|letter: char| letter.is_ascii_digit());
    // A template that was not filled in.
    let is_form = line.contains(['[', '<', '{']) && !line.contains('@');
    (is_told && !is_form).then(|| marked.unwrap_or(rest).trim())
}

/// aws-lc has more than a hundred; its texts name them all.
const HOLDERS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copyright_lines_are_distinguished_from_prose() {
        for (line, told) in [
            (
                "Copyright (c) 2014 Alex Crichton",
                Some("2014 Alex Crichton"),
            ),
            (
                "Copyright 2015 The Fuchsia Authors",
                Some("2015 The Fuchsia Authors"),
            ),
            (
                "Copyright © 2019 A <a@example.com>",
                Some("2019 A <a@example.com>"),
            ),
            ("Copyright [yyyy] [name of copyright owner]", None),
            ("Copyright (c) <year> <owner>", None),
            ("Copyright License. Subject to the terms", None),
        ] {
            assert_eq!(holder(line), told, "{line}");
        }
    }

    #[test]
    fn expressions_are_written_in_debians_words() {
        let deny = crate::repository::Repository::of_this_package().unwrap();
        let allowed = AllowedLicences::read(&deny).unwrap();
        for (spdx, debian) in [
            ("MIT", "Expat"),
            ("MIT/Apache-2.0", "Expat or Apache-2.0"),
            ("MIT AND BSD-3-Clause", "Expat and BSD-3-clause"),
            (
                "(Apache-2.0 OR MIT) AND BSD-3-Clause",
                "Apache-2.0 and BSD-3-clause",
            ),
            (
                "Apache-2.0 WITH LLVM-exception",
                "Apache-2.0 with LLVM exception",
            ),
        ] {
            let mut used = BTreeSet::new();
            let licence = Licence::new(spdx).unwrap();
            assert_eq!(short(&licence, &allowed, &mut used).unwrap(), debian);
            for licence in used {
                assert!(!paragraph(&licence).unwrap().is_empty());
            }
        }
    }
}

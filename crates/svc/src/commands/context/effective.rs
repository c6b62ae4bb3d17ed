//! The effective values of commands, and the source of each.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use serde::Serialize;

use super::{ShowArgs, token::StoredToken};
use crate::{
    connection::{config_directory, non_empty_path},
    context::{self, Context, ContextSource},
    failure::Failure,
};

/// Records if a flag or a variable gave a value. Only clap has this information.
#[derive(Debug)]
pub(super) struct Sources {
    given: Vec<(&'static str, ValueSource)>,
}

impl FromArgMatches for Sources {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let source = |id: &'static str| Some((id, matches.value_source(id)?));
        Ok(Self {
            given: IDS.into_iter().filter_map(source).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It has no arguments of its own.
impl Args for Sources {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Sources {
    fn of(&self, id: &'static str) -> Source {
        let given = self.given.iter().find(|(known, _)| *known == id);
        match given {
            Some((_, ValueSource::EnvVariable)) => {
                Source::Variable(format!("SVC_{}", id.to_uppercase()))
            }
            _ => Source::Flag(format!("--{}", id.replace('_', "-"))),
        }
    }
}

/// The arguments whose source is recorded.
const IDS: [&str; 6] = ["engine", "api_url", "token", "ca_file", "context", "config"];

/// All effective settings.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    settings: Vec<Setting>,
    /// Stored values that are not used, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    /// Absent if nothing sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    source: Source,
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
enum Source {
    Flag(String),
    Variable(String),
    /// The file of the context.
    Context(PathBuf),
    /// Set by `svc context use`.
    Selection,
    /// A running `svc up`.
    LocalPlatform,
    Default,
    /// Nothing sets it.
    None,
}

impl Source {
    fn text(&self) -> String {
        match self {
            Self::Flag(name) => format!("flag {name}"),
            Self::Variable(name) => format!("variable {name}"),
            Self::Context(path) => path.display().to_string(),
            Self::Selection => "svc context use".to_owned(),
            Self::LocalPlatform => "a running svc up".to_owned(),
            Self::Default => "default".to_owned(),
            Self::None => "-".to_owned(),
        }
    }
}

impl Settings {
    pub(super) fn of(args: &ShowArgs) -> Result<Self, Failure> {
        let mut all = Self {
            settings: Vec::new(),
            notes: Vec::new(),
        };
        let connection = &args.connection;
        let Some(directory) = config_directory(connection.config.as_ref()) else {
            return Err(Failure::usage("no home directory is set").hint("give --config"));
        };
        let of_directory = match non_empty_path(connection.config.as_ref()) {
            Some(_) => args.sources.of("config"),
            None => Source::Default,
        };
        all.put(
            "config",
            Some(directory.display().to_string()),
            of_directory,
        );

        let named = args.name.as_deref().or(connection.context.as_deref());
        let (name, why) = context::effective_name(&directory, named)?;
        let context = Context::read(&directory, &name)?;
        let of_context = match why {
            ContextSource::Named if args.name.is_some() => Source::Flag("NAME".to_owned()),
            ContextSource::Named => args.sources.of("context"),
            ContextSource::Selected => Source::Selection,
            ContextSource::Running => Source::LocalPlatform,
            ContextSource::Fallback => Source::Default,
        };
        let shown = match &context {
            Some(_) => name.clone(),
            None => format!("{name} (not found)"),
        };
        all.put("context", Some(shown), of_context);

        let file = Source::Context(context::file(&directory, &name)?);
        let kept = context.unwrap_or_default();
        let api_url = all.pick(
            "api_url",
            args.api_url.as_ref(),
            kept.api_url.as_ref(),
            args,
            &file,
        );
        let engine = all.pick(
            "engine",
            connection.engine.as_ref(),
            kept.engine.as_ref(),
            args,
            &file,
        );
        all.token(args, &kept, &file, [&api_url, &engine]);
        let path = |path: &PathBuf| path.display().to_string();
        let (given, of_context) = (
            connection.ca_file.as_ref().map(path),
            kept.ca_file.as_ref().map(path),
        );
        all.pick("ca_file", given.as_ref(), of_context.as_ref(), args, &file);
        let project = kept.project.map(|project| project.endpoint);
        for (name, value) in [("workspace_id", kept.workspace_id), ("project", project)] {
            let source = value.as_ref().map_or(Source::None, |_| file.clone());
            all.put(name, value, source);
        }
        Ok(all)
    }

    /// Returns the given value, or else the stored one.
    fn pick(
        &mut self,
        name: &'static str,
        given: Option<&String>,
        kept: Option<&String>,
        args: &ShowArgs,
        file: &Source,
    ) -> EffectiveAddress {
        // An empty variable counts as unset.
        let given = given.filter(|text| !text.trim().is_empty());
        let (value, source) = match (given, kept) {
            (Some(given), _) => (Some(given.clone()), args.sources.of(name)),
            (None, Some(kept)) => (Some(kept.clone()), file.clone()),
            (None, None) => (None, Source::None),
        };
        let is_elsewhere = value.is_some() && value.as_ref() != kept;
        self.put(name, value, source);
        EffectiveAddress { name, is_elsewhere }
    }

    /// A stored token is only used with the engine and platform of its context.
    fn token(
        &mut self,
        args: &ShowArgs,
        kept: &Context,
        file: &Source,
        places: [&EffectiveAddress; 2],
    ) {
        let given = args.connection.token.as_deref().map(str::trim);
        if let Some(token) = given.filter(|token| !token.is_empty()) {
            let shown = StoredToken::read(token).to_string();
            self.put("token", Some(shown), args.sources.of("token"));
            return;
        }
        let Some(shown) = StoredToken::of(&kept.token) else {
            self.put("token", None, Source::None);
            return;
        };
        for EffectiveAddress { name, .. } in places.into_iter().filter(|place| place.is_elsewhere) {
            self.notes.push(format!(
                "the {name} differs from the context's: the context's token and CA are not used \
                 for it"
            ));
        }
        self.put("token", Some(shown.to_string()), file.clone());
    }

    fn put(&mut self, name: &'static str, value: Option<String>, source: Source) {
        self.settings.push(Setting {
            name,
            value,
            source,
        });
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let setting = |setting: &Setting| {
            vec![
                setting.name.to_owned(),
                setting.value.clone().unwrap_or_else(|| "-".to_owned()),
                setting.source.text(),
            ]
        };
        let note = |note: &String| vec!["note".to_owned(), note.clone(), String::new()];
        let settings = self.settings.iter().map(setting);
        settings.chain(self.notes.iter().map(note)).collect()
    }
}

/// An address that commands connect to.
struct EffectiveAddress {
    name: &'static str,
    /// True if it differs from the address in the context.
    is_elsewhere: bool,
}

//! `svc completions`: shell completion of commands, flags and names.
//!
//! The script runs the program itself for each completion, so that the suggestions include current
//! names such as contexts.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Command, Parser};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use crate::{failure::Failure, output};

/// The flags of `svc completions`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc completions bash > ~/.local/share/bash-completion/completions/svc
  svc completions zsh > ~/.zfunc/_svc           (with ~/.zfunc in fpath)
  svc completions fish > ~/.config/fish/completions/svc.fish
  svc completions powershell >> $PROFILE
  svc completions elvish > ~/.config/elvish/lib/svc.elv   (and `use svc`)

The script asks `svc` itself what comes next. Regenerate it after each upgrade.")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let mut script = Vec::new();
    let written = match shells.completer(&name) {
        Some(shell) => {
            shell.write_registration(SHELL_VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        }
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    written.map_err(|error| {
        Failure::from_error(&format!("no script is available for {name}"), error)
    })?;
    if args.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_AUTOLOAD.as_bytes());
    }
    io::stdout()
        .lock()
        .write_all(&script)
        .map_err(output::write_failure)
}

/// Responds to a shell that requests completions. `None` for a normal start of the program.
pub(crate) fn answer(cli: fn() -> Command) -> Option<ExitCode> {
    let here = std::env::current_dir().ok();
    let requested = CompleteEnv::with_factory(cli)
        .var(SHELL_VARIABLE)
        .try_complete(std::env::args_os(), here.as_deref());
    match requested {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        // An error message would disturb the line that the user types.
        Err(_unknown) => Some(ExitCode::FAILURE),
    }
}

/// The program name that shells run.
const PROGRAM: &str = "svc";

/// The variable with which the script names its shell.
const SHELL_VARIABLE: &str = "SVC_COMPLETE";

/// zsh loads the script as the function itself on first use, from a file in `fpath`.
const ZSH_AUTOLOAD: &str = r#"
if [ "$funcstack[1]" = "_svc" ]; then
    _clap_dynamic_completer_svc "$@"
fi
"#;

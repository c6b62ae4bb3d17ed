//! `svc completions`: what makes a shell complete commands and flags.

use std::io::{self, Write};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use crate::{cli::Cli, failure::Failure, output};

/// The flags of `svc completions`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc completions bash > ~/.local/share/bash-completion/completions/svc
  svc completions zsh > ~/.zfunc/_svc           (with ~/.zfunc in fpath)
  svc completions fish > ~/.config/fish/completions/svc.fish
  svc completions powershell >> $PROFILE
  svc completions elvish > ~/.config/elvish/lib/svc.elv   (and `use svc`)")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "svc", &mut script);
    io::stdout()
        .lock()
        .write_all(&script)
        .map_err(output::closed)
}

//! heirlock on the command line.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod child;
mod default_store;
mod exit;
mod group;
mod list;
mod progress;
mod run;
mod signals;
mod terminal;
mod watch;

use args::{Cli, Verb};
use exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::refuse(&error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::own(format!("cannot start: {error}")).say(),
    };
    let exit = runtime.block_on(async {
        match cli.verb {
            Verb::Run(run) => run::run(run).await,
            Verb::Ls(ls) => list::list(ls).await,
        }
    });
    exit.say()
}

//! heirlock on the command line.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod child;
mod default_store;
mod exit;
mod list;
mod progress;
mod run;
mod signals;
mod terminal;

use args::{Cli, Verb};
use exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::refuse(&error),
    };
    // Taking the terminal back from a child would stop us otherwise. Blocked before there is any thread; a child starts with no signal blocked.
    terminal::block_ttou();
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

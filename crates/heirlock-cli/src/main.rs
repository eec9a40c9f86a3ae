//! heirlock on the command line.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod child;
mod default_store;
mod exit;
mod guardian;
mod list;
mod nested;
mod processes;
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
    // The guardian is forked before the runtime, and all that it starts.
    let recruit = match &cli.verb {
        Verb::Run(run) => match run::prepare(run) {
            Ok(recruit) => Some(recruit),
            Err(exit) => return exit.say(),
        },
        Verb::Ls(_) => None,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::own(format!("cannot start: {error}")).say(),
    };
    let exit = runtime.block_on(async {
        match (cli.verb, recruit) {
            (Verb::Run(run), Some(recruit)) => run::run(run, recruit).await,
            (Verb::Run(_), None) => Exit::own("a run without a guardian"),
            (Verb::Ls(ls), _) => list::list(ls).await,
        }
    });
    exit.say()
}

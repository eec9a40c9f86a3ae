//! heirlock on the command line.

use std::process::ExitCode;

mod args;
mod at_start;
mod busy;
mod child;
mod default_store;
mod demo;
mod doctor;
mod evict;
mod exit;
mod generate;
mod guardian;
mod list;
mod look;
mod nested;
mod output;
mod pinned;
mod processes;
mod progress;
mod run;
mod signals;
mod stderr;
mod terminal;
mod verbose;

use args::{Cli, Verb};
use exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    verbose::start(cli.verbose);
    // The guardian is forked before the runtime, and all that it starts.
    let prepared = match &cli.verb {
        Verb::Run(run) => match run::prepare(run) {
            Ok(prepared) => Some(prepared),
            Err(exit) => return exit.say(),
        },
        _ => None,
    };
    stderr::open();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::own(format!("cannot start: {error}")).say(),
    };
    let exit = runtime.block_on(async {
        match (cli.verb, prepared) {
            (Verb::Run(run), Some(prepared)) => run::run(run, prepared).await,
            (verb, _) => look(verb).await.unwrap_or_else(|exit| exit),
        }
    });
    exit.say()
}

/// All but `run`.
async fn look(verb: Verb) -> Result<Exit, Exit> {
    match verb {
        Verb::Run(_) => Err(Exit::own("a run without a guardian")),
        // It has runtimes of its own, and blocks.
        Verb::Demo(words) => tokio::task::spawn_blocking(move || demo::demo(words.what)).await.map_err(Exit::own),
        Verb::Ls(words) => list::list(words).await,
        Verb::Show(words) => list::show(words).await,
        Verb::Evict(words) => evict::evict(words).await,
        Verb::Where(words) => default_store::tell_where(&words),
        Verb::Doctor(words) => doctor::doctor(words).await,
        Verb::Completions(words) => Ok(generate::completions(&words)),
        Verb::Man(words) => Ok(generate::man(&words)),
    }
}

//! `heirlock completions` and `heirlock man`: made from the same words that are parsed.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::Exit;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Pages {
    /// Writes each page to a file of this directory, which is made if need be, instead of all to stdout
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(words: &Completions) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(words.shell, &mut Cli::command(), "heirlock", &mut script);
    output::text(&String::from_utf8_lossy(&script), 0)
}

pub(crate) fn man(words: &Pages) -> Exit {
    let made = match &words.dir {
        None => pages().map(|pages| pages.into_iter().map(|(_, page)| page).collect::<String>()),
        Some(dir) => std::fs::create_dir_all(dir).and_then(|()| {
            for (name, page) in pages()? {
                std::fs::write(dir.join(format!("{name}.1")), page)?;
            }
            Ok(String::new())
        }),
    };
    match (made, &words.dir) {
        (Ok(text), _) => output::text(&text, 0),
        (Err(error), Some(dir)) => Exit::own(format!("cannot write manual pages to {}: {error}", dir.display())),
        (Err(error), None) => Exit::own(format!("cannot make manual pages: {error}")),
    }
}

/// A page for heirlock and one for each verb, by name.
fn pages() -> io::Result<Vec<(String, String)>> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    // So that a verb's page has the options that all have.
    whole.build();
    let verbs: Vec<Command> = whole.get_subcommands().cloned().collect();
    std::iter::once(whole)
        .chain(verbs)
        .map(|command| {
            let mut page = Vec::new();
            let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
            Man::new(command).source(concat!("heirlock ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
            Ok((name, String::from_utf8_lossy(&page).into_owned()))
        })
        .collect()
}

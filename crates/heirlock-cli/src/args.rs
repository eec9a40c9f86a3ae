//! The command line's words.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use heirlock::lease::Mode;

use crate::default_store::Where;
use crate::doctor::Doctor;
use crate::evict::Evict;
use crate::exit::{self, Exit};
use crate::generate::{Completions, Pages};
use crate::guardian::OnLost;
use crate::list::{Ls, Show};

#[derive(Parser, Debug)]
#[command(
    name = "heirlock",
    version,
    about = "Runs a command under a lock that outlives no crash and no lost holder",
    max_term_width = 100,
    after_help = CODES
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Says on stderr what is decided, and twice also what is done all the time
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Where locks are kept; may stand after the verb, too
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl Cli {
    /// The words, or one line that says what is wrong with them.
    pub(crate) fn read() -> Result<Cli, ExitCode> {
        let mut cli = Cli::try_parse().map_err(|error| refuse(&error, std::env::args_os().skip(1)))?;
        if let (Some(store), Some(said)) = (cli.store.take(), cli.verb.store()) {
            // What stands after the verb is nearer.
            said.get_or_insert(store);
        }
        Ok(cli)
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Runs a command while holding a lock
    Run(Run),
    /// Lists the locks in use: who holds, who waits
    Ls(Ls),
    /// Shows one lock: who holds it, who waits, and how
    Show(Show),
    /// Takes a lock away from its holder, who is told, and keeps it until it has left or its time is over
    Evict(Evict),
    /// Says where locks are kept, and why there
    Where(Where),
    /// Looks whether the store is reached, fast enough, and safe; says what to do where it is not
    Doctor(Doctor),
    /// Shows in a second what the locks are for
    Demo(Demo),
    /// Prints what a shell needs to complete heirlock's words
    Completions(Completions),
    /// Prints the manual pages
    Man(Pages),
}

impl Verb {
    /// The store that was said after the verb, for those that use one.
    fn store(&mut self) -> Option<&mut Option<String>> {
        match self {
            Verb::Run(run) => Some(&mut run.store),
            Verb::Ls(ls) => Some(&mut ls.data.store),
            Verb::Show(show) => Some(&mut show.data.store),
            Verb::Evict(evict) => Some(&mut evict.data.store),
            Verb::Where(place) => Some(&mut place.data.store),
            Verb::Doctor(doctor) => Some(&mut doctor.data.store),
            Verb::Demo(_) | Verb::Completions(_) | Verb::Man(_) => None,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// What to show
    #[arg(value_enum)]
    pub(crate) what: Shown,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// A priority inversion, without inheritance and with it, as the Mars Pathfinder had one in 1997
    Inversion,
}

/// What all verbs that print data have.
#[derive(Args, Debug)]
pub(crate) struct Data {
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Where locks are kept, sqlite:/path/to/file; else $HEIRLOCK_STORE, else a file of this user's
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

const CODES: &str = "Exit codes: 0 done; 1 of show and evict: it is not held; of doctor: there are warnings; 125 an error, as a store that does not
answer, with one line on stderr. See heirlock run --help for those of run.

Environment: HEIRLOCK_STORE is the default of --store; HEIRLOCK_PASSWORD_FILE names a file with the password of the store's URL. NO_COLOR turns
colours off.";

/// The longest from TERM to KILL, unless said.
const GRACE: Duration = Duration::from_secs(5);

const RUN_USAGE: &str = "heirlock run [OPTIONS] NAME [--] COMMAND [ARGS]...
       heirlock run [OPTIONS] NAME -c STRING";

const RUN_CODES: &str =
    "Exit codes: the command's own, or 128 + the signal that ended it; 75 held by another (see -n, -w, -E); 79 the lock was lost;
80 the command of a run asks for the lock that this run holds; 81 an operator took it away; 125 an error of heirlock's own; 126 the command cannot be run; 127 there is no such command;
128 + n if signal n ended the wait for the lock.

Environment: HEIRLOCK_STORE is the default of --store; HEIRLOCK_PASSWORD_FILE names a file with the password of the store's URL. The command sees
HEIRLOCK_NAME, HEIRLOCK_FENCE, HEIRLOCK_SLOT (with --slots), HEIRLOCK_OWNER, HEIRLOCK_STORE and HEIRLOCK_TTL_MS, and HEIRLOCK_HELD: what is held
above it, so that a run within it does not wait for itself.";

#[derive(Args, Debug)]
#[command(override_usage = RUN_USAGE, after_help = RUN_CODES)]
pub(crate) struct Run {
    /// Does not wait: exits with 75 if the lock is held or others wait for it
    #[arg(short, long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    no_wait: bool,
    /// Waits so many seconds at most, fractions allowed; 0 is -n
    #[arg(short, long, alias = "timeout", value_name = "SECS", value_parser = seconds)]
    wait: Option<Duration>,
    /// What it does unless told otherwise: as `flock` has it
    #[arg(short = 'x', short_alias = 'e', long, hide = true, conflicts_with_all = ["shared", "slots"])]
    exclusive: bool,
    #[command(flatten)]
    flock: Flock,
    /// The exit code if the lock is held by another, instead of 75; nothing is said then
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::BUSY, value_parser = code)]
    pub(crate) busy_code: u8,
    /// Holds the lock beside other shared holders
    #[arg(short, long, conflicts_with = "slots")]
    pub(crate) shared: bool,
    /// Holds one of N slots; all who use the lock must say the same N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) slots: Option<u32>,
    /// Waits before those of lower priority; negative numbers allowed
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = priority)]
    pub(crate) priority: i32,
    /// How long the lock outlives this program if it dies, in seconds, at least 3
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// Has ended the command so many seconds after it got the lock, at least 3: another gets it then. TERM comes the grace and half a second earlier
    #[arg(long, value_name = "SECS", value_parser = ttl)]
    pub(crate) max_hold: Option<Duration>,
    /// Keeps the lock for so many seconds at least, even if the command ends earlier: nobody runs the same job again so soon
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) hold_at_least: Option<Duration>,
    /// If the lock is lost, so many seconds lie between TERM and KILL; at most a third of the ttl, and 5 unless said
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    grace: Option<Duration>,
    /// What happens to the command if the lock is lost
    #[arg(long, value_enum, value_name = "WHAT", default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// Says why, for those who look at the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Runs this string with the shell
    #[arg(short = 'c', value_name = "STRING")]
    shell: Option<OsString>,
    /// Where locks are kept, sqlite:/path/to/file; else $HEIRLOCK_STORE, else a file of this user's
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The lock's name, and the command with its arguments
    // One list: options end at the name, so nothing after it may be taken for one of ours.
    #[arg(value_name = "NAME [--] COMMAND", required = true, trailing_var_arg = true, num_args = 1..)]
    rest: Vec<OsString>,
}

/// Options of `flock` that mean nothing here; each is told what there is instead.
#[derive(Args, Debug)]
struct Flock {
    #[arg(short = 'o', long, hide = true)]
    close: bool,
    #[arg(short = 'u', long, hide = true)]
    unlock: bool,
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
}

impl Flock {
    fn refuse(&self) -> Result<(), Exit> {
        let why = match self {
            Flock { close: true, .. } => "-o is not needed: no descriptor of the command carries the lock; leave it out",
            Flock { unlock: true, .. } => "-u has nothing to unlock: a lock ends with its command; heirlock evict NAME takes one away",
            Flock { no_fork: true, .. } => "-F is not possible: heirlock stays beside its command, to renew the lock; leave it out",
            _ => return Ok(()),
        };
        Err(Exit::own(why))
    }
}

/// What to lock and what to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

impl Run {
    /// How long to wait: `None` for as long as it takes, zero for not at all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }

    /// The time from TERM to KILL if the lock is lost.
    pub(crate) fn grace(&self) -> Result<Duration, Exit> {
        // The command must be gone before the lock can be another's, whichever way its time ends.
        let third = self.max_hold.map_or(self.ttl, |most| most.min(self.ttl)) / 3;
        match self.grace {
            None => Ok(GRACE.min(third)),
            Some(grace) if grace <= third => Ok(grace),
            Some(grace) => {
                Err(Exit::own(format!("a grace of {grace:?} is too long: give at most a third of --ttl and of --max-hold, {third:?}")))
            }
        }
    }

    /// How it is held.
    pub(crate) fn mode(&self) -> Mode {
        match self.slots {
            Some(slots) => Mode::Slot(slots),
            None if self.shared => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    /// Takes the words after the options apart.
    pub(crate) fn job(&self) -> Result<Job, Exit> {
        let usage = |what: &str| Exit::own(format!("{what}: heirlock run [OPTIONS] NAME [--] COMMAND [ARGS]..."));
        self.flock.refuse()?;
        let mut rest = self.rest.iter().cloned();
        let name = rest.next().ok_or_else(|| usage("a name is missing"))?;
        let name = name.into_string().map_err(|_| Exit::own("a lock's name must be UTF-8 text: give another one"))?;
        let mut rest: Vec<OsString> = rest.collect();
        let mut shell = self.shell.clone();
        let is_parted = rest.first().is_some_and(|word| word == "--");
        if is_parted {
            rest.remove(0);
        } else if shell.is_none() && rest.first().is_some_and(|word| word == "-c") {
            rest.remove(0);
            if rest.is_empty() {
                return Err(usage("-c needs a string"));
            }
            shell = Some(rest.remove(0));
        }
        if let Some(string) = shell {
            if !rest.is_empty() {
                return Err(usage("-c takes one string and no further command"));
            }
            let program = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
            return Ok(Job { name, program, args: vec!["-c".into(), string] });
        }
        if rest.is_empty() {
            return Err(usage("a command is missing"));
        }
        if !is_parted && rest.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
            return Err(usage("options stand before the name, and a command whose name begins with - stands after --"));
        }
        let program = rest.remove(0);
        Ok(Job { name, program, args: rest })
    }
}

fn code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "give a number from 0 to 255".to_owned())
}

fn priority(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("give a whole number from {} to {}", i32::MIN, i32::MAX))
}

/// Seconds, fractions allowed.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give seconds, as in 2 or 0.5".to_owned())?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err("give seconds from 0 on".to_owned());
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|span| *span <= Duration::from_secs(100 * 365 * 86_400))
        .ok_or_else(|| "that is too long: give at most a hundred years".to_owned())
}

/// Seconds that leave time to end the command before the lock expires.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let span = seconds(text)?;
    if span < Duration::from_secs(3) {
        return Err("give at least 3 seconds: the command must be ended before the lock expires".to_owned());
    }
    Ok(span)
}

/// Help and version go to stdout with 0; anything else is one line on stderr with 125.
fn refuse(error: &clap::Error, words: impl Iterator<Item = OsString>) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => crate::output::cannot_write(&error).say(),
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Exit::own("say what to do: heirlock run NAME COMMAND, or heirlock --help").say();
    }
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("bad arguments").trim_start_matches("error: ").to_owned();
    let mut line = first;
    for more in lines {
        // "the following required arguments were not provided:" and its like go on in the next line; of several tips the first is the nearest.
        if line.ends_with(':') || more.starts_with('[') {
            line += &format!(" {more}");
        } else if more.starts_with("tip: ") && !line.contains("; tip: ") && !more.contains("as a value, use '-- ") {
            line += &format!("; {more}");
        }
    }
    let verb = verb(words).map_or(String::new(), |verb| format!("{verb} "));
    Exit::own(format!("{line}; see heirlock {verb}--help")).say()
}

/// Which verb was meant, also where not all words can be read.
fn verb(mut words: impl Iterator<Item = OsString>) -> Option<String> {
    loop {
        let word = words.next()?;
        match word.to_str() {
            Some("--store") => drop(words.next()?),
            Some(option) if option.starts_with('-') => {}
            Some(word) => return Cli::command().find_subcommand(word).map(|verb| verb.get_name().to_owned()),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job(words: &[&str]) -> Result<Job, Exit> {
        let words = ["heirlock", "run"].iter().chain(words);
        let Verb::Run(run) = Cli::try_parse_from(words).unwrap().verb else { panic!() };
        run.job()
    }

    fn parts(words: &[&str]) -> (String, Vec<String>) {
        let job = job(words).unwrap();
        let args = job.args.iter().map(|word| word.to_string_lossy().into_owned());
        (job.name, std::iter::once(job.program.to_string_lossy().into_owned()).chain(args).collect())
    }

    #[test]
    fn options_end_at_the_name() {
        assert_eq!(parts(&["-n", "a", "ls", "-n", "--ttl", "9"]), ("a".into(), vec!["ls".into(), "-n".into(), "--ttl".into(), "9".into()]));
        assert_eq!(parts(&["a", "--", "sh", "-c", "exit 7"]).1, ["sh", "-c", "exit 7"]);
        assert_eq!(parts(&["a", "sh", "--", "x"]).1, ["sh", "--", "x"]);
        assert_eq!(parts(&["--", "a", "true"]), ("a".into(), vec!["true".into()]));
        assert_eq!(parts(&["a", "--", "-n"]).1, ["-n"]);
        assert!(job(&["a", "-n", "true"]).unwrap_err().why().contains("options stand before the name"));
    }

    #[test]
    fn a_string_for_the_shell_may_stand_before_or_after_the_name() {
        for words in [["-c", "exit 3", "a"], ["a", "-c", "exit 3"]] {
            let (name, command) = parts(&words);
            assert_eq!((name.as_str(), &command[1..]), ("a", &["-c".to_owned(), "exit 3".to_owned()][..]));
        }
        assert!(job(&["a", "-c"]).is_err());
        assert!(job(&["a", "-c", "x", "y"]).is_err());
        assert!(job(&["a"]).is_err());
    }

    #[test]
    fn seconds_may_be_fractional_and_nothing_else() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["NaN", "-1", "inf", "1e300", "", "5s", "-0.1"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(ttl("2.9").is_err() && ttl("3").is_ok());
    }

    proptest! {
        #[test]
        fn random_words_never_panic(words in proptest::collection::vec(any::<String>(), 0..6)) {
            let words = ["heirlock".to_owned(), "run".to_owned()].into_iter().chain(words);
            if let Ok(Cli { verb: Verb::Run(run), .. }) = Cli::try_parse_from(words) {
                drop(run.job());
            }
        }
    }
}

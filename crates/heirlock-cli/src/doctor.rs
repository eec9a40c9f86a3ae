//! `heirlock doctor`: whether the store is reached, fast enough, and safe; each finding with what to do about it.

pub(crate) mod clocks;
mod files;
mod leftovers;

use std::fmt;
use std::time::{Duration, Instant};

use clap::Args;
use heirlock::lease::Key;
use heirlock::observe::align;
use serde::Serialize;

use crate::args::{Data, ttl};
use crate::default_store::{self, Place};
use crate::exit::{Exit, OWN};
use crate::look::Look;
use crate::output::{self, Ink, Style};

/// How often the store is asked.
const PROBES: usize = 20;
/// Looking at a key that nobody uses leaves nothing behind.
const PROBE: &str = "heirlock doctor";
/// A renewal is sent each third of the ttl; ten in that time must have room, so that one which is lost can be sent again and again.
const ROOM: u32 = 30;
/// The exit code if there are warnings.
const WARNINGS: u8 = 1;

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 all is well; 1 there are warnings; 125 the store cannot be reached, or an error.

It changes nothing, and makes nothing where there is no store yet.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) data: Data,
    /// The ttl that the store must be fast enough for, in seconds
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = ttl)]
    ttl: Duration,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    /// Good to know, and nothing needs to be done.
    Note,
    Warning,
    Error,
}

/// One line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    level: Level,
    topic: &'static str,
    /// What was found and, of a warning, what to do.
    text: String,
}

impl Finding {
    pub(crate) fn new(level: Level, topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level, topic, text: text.into() }
    }

    pub(crate) fn ok(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(Level::Ok, topic, text)
    }

    pub(crate) fn note(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(Level::Note, topic, text)
    }

    pub(crate) fn warning(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(Level::Warning, topic, text)
    }
}

/// What `heirlock doctor --json` prints.
#[derive(Serialize)]
struct Report {
    store: String,
    /// Milliseconds since 1970.
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    findings: Vec<Finding>,
}

/// Of so many looks at the store.
#[derive(Clone, Copy, Serialize)]
struct Latency {
    probes: usize,
    median_ms: f64,
    worst_ms: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "median {:.2} ms, worst {:.2} ms of {} looks", self.median_ms, self.worst_ms, self.probes)
    }
}

pub(crate) async fn doctor(words: Doctor) -> Result<Exit, Exit> {
    let place = default_store::url(words.data.store.clone())?;
    let store = heirlock::redact(&place.url);
    let mut findings = vec![Finding::ok("chosen", place.source.reason())];
    findings.extend(password());
    let path = place.path();
    if let Some(path) = &path {
        findings.extend(files::examine(path, mode_in(&place.url)));
    }
    let is_missing =
        path.as_ref().is_some_and(|path| std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    findings.extend(clocks::examine());
    let examined = if is_missing {
        findings.push(Finding::note("store", "nothing is there yet: the first heirlock run makes it"));
        Ok(None)
    } else {
        reach(place, words.ttl, path.as_deref(), &mut findings).await.map(Some)
    };
    let (latency, failure) = match examined {
        Ok(latency) => (latency, None),
        Err(exit) => {
            findings.push(Finding::new(Level::Error, "store", exit.why()));
            (None, Some(exit))
        }
    };
    let warned = findings.iter().any(|finding| finding.level == Level::Warning);
    let code = if failure.is_some() {
        OWN
    } else if warned {
        WARNINGS
    } else {
        0
    };
    let printed = if words.data.json {
        output::json(&Report { store, at: clocks::wall_ms(), latency, findings }, code)
    } else {
        output::text(&report(&store, &findings, Style::of_stdout()), code)
    };
    // The line on stderr is that of every verb which cannot reach its store.
    Ok(failure.unwrap_or(printed))
}

/// Asks the store.
async fn reach(place: Place, ttl: Duration, path: Option<&std::path::Path>, findings: &mut Vec<Finding>) -> Result<Latency, Exit> {
    let began = Instant::now();
    let look = Look::into(place).await?;
    findings.push(Finding::ok("store", format!("reached within {:.1} ms", ms(began.elapsed()))));
    let probe = crate::list::key(PROBE)?;
    let latency = probes(&look, &probe).await?;
    findings.push(judge(latency, ttl, path.is_some()));
    let warnings = look.warnings().await?;
    if warnings.is_empty() && path.is_none() {
        findings.push(Finding::ok("settings", "nothing that it tells of its set-up can lose locks"));
    }
    findings.extend(warnings.into_iter().map(|warning| Finding::warning("settings", warning)));
    let keys = look.list("").await?;
    // A key that nobody has used has the fence that all new ones must exceed.
    let floor = look.inspect(&probe).await?.last_fence;
    let last = keys.iter().map(|key| key.last_fence).chain([floor]).max().unwrap_or(0);
    findings.push(clocks::judge_fences(last, path.is_some()));
    findings.extend(leftovers::holders(&keys));
    if let Some(path) = path {
        findings.extend(leftovers::files(path));
    }
    look.close().await;
    Ok(latency)
}

async fn probes(look: &Look, key: &Key) -> Result<Latency, Exit> {
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let start = Instant::now();
        look.inspect(key).await?;
        times.push(ms(start.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    Ok(Latency { probes: PROBES, median_ms: times[PROBES / 2], worst_ms: times[PROBES - 1] })
}

fn judge(latency: Latency, ttl: Duration, is_file: bool) -> Finding {
    let room = ms(ttl / ROOM);
    if latency.worst_ms <= room {
        return Finding::ok("latency", format!("{latency}; a ttl of {ttl:?} allows {room:.0} ms"));
    }
    let better = (latency.worst_ms / 1000.0 * f64::from(ROOM)).ceil();
    let busy = if is_file { "the disk or its users" } else { "the server or the network" };
    Finding::warning(
        "latency",
        format!("{latency}, and a ttl of {ttl:?} allows {room:.0} ms: give --ttl {better:.0} or more, or find what keeps {busy} busy"),
    )
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

/// Who else may read the password.
fn password() -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let file = default_store::password_file()?;
    let name = default_store::PASSWORD_FILE;
    match std::fs::metadata(&file) {
        Ok(metadata) if metadata.permissions().mode() & 0o044 == 0 => None,
        Ok(metadata) => {
            let mode = metadata.permissions().mode() & 0o777;
            Some(Finding::warning(
                "password",
                format!("{name} names {0}, which others may read (mode {mode:04o}): chmod 0600 {0}", file.display()),
            ))
        }
        Err(error) => Some(Finding::warning("password", format!("{name} names {}, which is not there: {error}", file.display()))),
    }
}

/// The mode that the URL asks a new file to have.
fn mode_in(url: &str) -> Option<u32> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| u32::from_str_radix(pair.strip_prefix("mode=")?, 8).ok())
}

fn report(store: &str, findings: &[Finding], style: Style) -> String {
    let rows: Vec<[String; 3]> = findings
        .iter()
        .map(|finding| {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Note => "note",
                Level::Warning => "warning",
                Level::Error => "error",
            };
            [level.to_owned(), finding.topic.to_owned(), finding.text.clone()]
        })
        .collect();
    let mut text = format!("{}\n", style.paint(Ink::Bold, store));
    for (finding, line) in findings.iter().zip(align(&rows)) {
        let (level, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let level = match finding.level {
            Level::Ok => style.paint(Ink::Green, level),
            Level::Note => level.to_owned(),
            Level::Warning => style.paint(Ink::Yellow, level),
            Level::Error => style.paint(Ink::Red, level),
        };
        text += &format!("{level} {rest}\n");
    }
    text
}

//! Figures beside their baselines: printed as a table, and written as JSON and Markdown under `target/bench`.
#![allow(dead_code, unreachable_pub)] // Each bench uses its part.

pub mod peer;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// What is measured together, by name.
pub type Group = (&'static str, fn(&mut Report));

/// Runs those whose names contain one of the words, all without a word; files are written only of all. Cargo adds an option of its own.
pub fn run_groups(mut report: Report, groups: &[Group], args: &[String]) {
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, group) in groups {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            group(&mut report);
        }
    }
    if words.is_empty() {
        report.finish();
    }
}

/// One figure and its aim.
pub struct Figure {
    pub what: String,
    pub ours: String,
    pub peer: String,
    /// What is compared with the aim: a ratio, or ours alone.
    pub measured: f64,
    /// None if the figure only tells.
    pub aim: Option<f64>,
    pub unit: &'static str,
}

/// On which side of its aim a figure should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    AtMost,
    AtLeast,
}

impl Figure {
    fn is_met(&self, side: Side) -> Option<bool> {
        self.aim.map(|aim| if side == Side::AtMost { self.measured <= aim } else { self.measured >= aim })
    }

    /// The aim as it is shown, if there is one.
    fn aimed(&self, side: Side) -> Option<String> {
        let least = if side == Side::AtLeast { "at least " } else { "" };
        self.aim.map(|aim| format!("{least}{aim}{}", self.unit))
    }
}

/// The figures of one bench.
pub struct Report {
    name: &'static str,
    figures: Vec<(Figure, Side)>,
}

impl Report {
    pub fn new(name: &'static str) -> Report {
        println!("{name}: ours beside its baseline, one run on this machine");
        Report { name, figures: Vec::new() }
    }

    /// What should be no more than its aim.
    pub fn add(&mut self, figure: Figure) {
        self.put(figure, Side::AtMost);
    }

    /// What should be no less than its aim.
    pub fn add_at_least(&mut self, figure: Figure) {
        self.put(figure, Side::AtLeast);
    }

    fn put(&mut self, figure: Figure, side: Side) {
        let verdict = match (figure.aimed(side), figure.is_met(side)) {
            (Some(aim), Some(met)) => format!("(aim {aim}) {}", if met { "MET" } else { "MISSED" }),
            _ => "(no aim)".into(),
        };
        println!("  {:<58} {:>14} | {:>20} | {:>8.2}{} {verdict}", figure.what, figure.ours, figure.peer, figure.measured, figure.unit);
        self.figures.push((figure, side));
    }

    /// Writes the files.
    pub fn finish(self) {
        let mut json = String::from("[");
        let mut rows = String::from("| what | ours | baseline | measured | aim | |\n|---|---|---|---|---|---|\n");
        for (at, (figure, side)) in self.figures.iter().enumerate() {
            let Figure { what, ours, peer, measured, aim, unit } = figure;
            // Neither is there without an aim.
            let (aimed, met) = match (aim, figure.is_met(*side)) {
                (Some(aim), Some(met)) => (format!(", \"aim\": {aim}, \"met\": {met}"), if met { "met" } else { "missed" }),
                _ => (String::new(), ""),
            };
            let least = if *side == Side::AtLeast { ", \"at_least\": true" } else { "" };
            let aim = figure.aimed(*side).unwrap_or_else(|| "-".into());
            let comma = if at == 0 { "" } else { "," };
            // What was not run has no number.
            let (number, shown) =
                if measured.is_finite() { (format!("{measured:.4}"), format!("{measured:.2}{unit}")) } else { ("null".into(), "-".into()) };
            let _ = write!(
                json,
                "{comma}\n  {{\"what\": {what:?}, \"ours\": {ours:?}, \"baseline\": {peer:?}, \"measured\": {number}, \"unit\": {unit:?}{aimed}{least}}}"
            );
            let _ = writeln!(rows, "| {what} | {ours} | {peer} | {shown} | {aim} | {met} |");
        }
        json.push_str("\n]\n");
        let folder = target().join("bench");
        std::fs::create_dir_all(&folder).expect("target/bench can be made");
        std::fs::write(folder.join(format!("{}.json", self.name)), json).expect("the figures can be written");
        std::fs::write(folder.join(format!("{}.md", self.name)), format!("## {}\n\n{rows}\n", self.name))
            .expect("the figures can be written");
    }
}

/// The build's target folder: a bench runs from somewhere below it.
pub fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("a bench knows its path");
    exe.ancestors().nth(3).expect("target/release/deps/bench").to_owned()
}

pub fn median(times: &mut [f64]) -> f64 {
    quantile(times, 0.5)
}

pub fn quantile(times: &mut [f64], q: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = ((times.len() - 1) as f64 * q).round() as usize;
    times[at]
}

/// Microseconds that one of so many repetitions takes.
pub fn micros_each(repetitions: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..repetitions {
        work();
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(repetitions)
}

/// Processor time of a process, of all its threads. Exact, where the times in `stat` count whole ticks and miss what is shorter.
pub fn cpu_seconds(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    tasks.map(nanos).sum::<f64>() / 1e9
}

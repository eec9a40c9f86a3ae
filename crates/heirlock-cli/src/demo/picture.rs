//! The scene as lines of text: a row for each, a column for each step.

use std::fmt;
use std::time::Duration;

use super::scene::{ACTORS, HIGH, Happened, What};

/// The signs that the terminal knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    runs: char,
    holds: char,
    waits: char,
}

const BLOCKS: Signs = Signs { runs: '█', holds: '▓', waits: '·' };
const PLAIN: Signs = Signs { runs: '#', holds: '@', waits: '.' };
const READY: char = '-';
const AWAY: char = ' ';

impl Signs {
    /// Those of the locale, which is what the first of these variables says.
    pub(super) fn of_locale(variable: impl Fn(&str) -> Option<String>) -> Signs {
        let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let letters = said.unwrap_or_default().to_ascii_lowercase().replace('-', "");
        if letters.contains("utf8") { BLOCKS } else { PLAIN }
    }
}

impl fmt::Display for Signs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs   {} runs and holds the lock   {} waits for the lock   {READY} is ready", self.runs, self.holds, self.waits)
    }
}

/// What happened, drawn.
pub(super) struct Picture {
    rows: Vec<String>,
    /// How long the most urgent one waited for the lock, and for how many steps of others.
    pub(super) waited: Duration,
    steps: usize,
}

impl Picture {
    pub(super) fn of(happened: &[Happened], signs: Signs) -> Picture {
        let mut now = [AWAY; ACTORS.len()];
        let mut rows: Vec<String> = ACTORS.iter().map(|(name, priority)| format!("{name:>8} {priority:>3}  ")).collect();
        let (mut waits, mut picture) = (None, Picture { rows: Vec::new(), waited: Duration::ZERO, steps: 0 });
        for Happened { who, what, at } in happened.iter().copied() {
            match what {
                What::Comes => now[who] = READY,
                What::Ends => now[who] = AWAY,
                What::Waits => {
                    now[who] = signs.waits;
                    waits = waits.or((who == HIGH).then_some(at));
                }
                What::Gets => {
                    now[who] = READY;
                    if let Some(from) = waits.take_if(|_| who == HIGH) {
                        picture.waited = at.duration_since(from);
                    }
                }
                What::Runs { holds } => {
                    picture.steps += usize::from(waits.is_some());
                    for (other, row) in rows.iter_mut().enumerate() {
                        row.push(match (other == who, holds) {
                            (true, true) => signs.holds,
                            (true, false) => signs.runs,
                            (false, _) => now[other],
                        });
                    }
                }
            }
        }
        picture.rows = rows;
        picture
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(f, "{}", row.trim_end())?;
        }
        writeln!(f, "{:>8} waits for {} steps, {} ms", ACTORS[HIGH].0, self.steps, self.waited.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_locale_says_which_signs() {
        let runs = |variables: &[(&str, &str)]| {
            let of = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
            Signs::of_locale(of).runs
        };
        assert_eq!([runs(&[]), runs(&[("LANG", "C")]), runs(&[("LC_ALL", ""), ("LC_CTYPE", "POSIX"), ("LANG", "en_GB.UTF-8")])], ['#'; 3]);
        assert_eq!([runs(&[("LANG", "C.UTF-8")]), runs(&[("LC_ALL", "de_DE.utf8"), ("LANG", "C")])], ['█'; 2]);
    }

    #[test]
    fn each_step_is_a_column_and_waiting_is_counted() {
        let start = Instant::now();
        let low = ACTORS.len() - 1;
        let holds = What::Runs { holds: true };
        let story = [
            (low, What::Comes, 0),
            (low, holds, 0),
            (1, What::Comes, 10),
            (HIGH, What::Comes, 10),
            (HIGH, What::Waits, 10),
            (1, What::Runs { holds: false }, 10),
            (1, What::Ends, 20),
            (low, holds, 20),
            (HIGH, What::Gets, 30),
            (HIGH, holds, 30),
            (HIGH, What::Ends, 40),
            (low, What::Runs { holds: false }, 40),
        ];
        let happened = story.map(|(who, what, after)| Happened { who, what, at: start + Duration::from_millis(after) });
        let drawn = Picture::of(&happened, BLOCKS).to_string();
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "     bus  10   ··▓");
        assert_eq!(lines[1], "   comms   5   █");
        assert_eq!(lines[4], "   meteo   1  ▓-▓-█");
        assert_eq!(lines[5], "     bus waits for 2 steps, 20 ms");
    }
}

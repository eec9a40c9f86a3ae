//! What the commands of a soak wrote, in the order in which they wrote it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// One line of it.
struct Line {
    word: String,
    name: String,
    fence: u64,
    is_shared: bool,
    run: u64,
}

pub(crate) struct Record {
    lines: Vec<Line>,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

impl Record {
    pub(crate) fn read(file: &Path) -> Record {
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<Line> = text.lines().map(parse).collect();
        let count = |word: &str| lines.iter().filter(|line| line.word == word).count() as u64;
        Record { begun: count("begin"), ended: count("end"), lines }
    }

    /// Each of these has said that it ended, but for those whose command became another program.
    pub(crate) fn assert_done(&self, runs: &[u64], stories: &BTreeMap<u64, String>) {
        let ended: HashSet<u64> = self.lines.iter().filter(|line| line.word == "end").map(|line| line.run).collect();
        for run in runs {
            let story = stories.get(run).map_or("", String::as_str);
            assert!(ended.contains(run) || story.contains("exec $THREADS"), "it has not ended: {story}");
        }
    }

    /// Nobody found another's tree alive, nobody began between another's begin and end, and fences only grow.
    pub(crate) fn assert_nothing_overlaps(&self, stories: &BTreeMap<u64, String>) {
        // Of each name, who began last: more than one only of those that share.
        let mut last: HashMap<&str, Vec<&Line>> = HashMap::new();
        for line in &self.lines {
            let Line { word, name, fence, is_shared, run } = line;
            let now = last.entry(name).or_default();
            match word.as_str() {
                "begin" => {
                    let before = now.iter().map(|other| other.fence).max().unwrap_or(0);
                    // Those who share come in together, with one fence, in any order.
                    let is_beside = *is_shared && now.iter().all(|other| other.is_shared);
                    assert!(*fence > before || (is_beside && *fence == before), "{name}: {fence} began after {before}");
                    if *fence != before {
                        now.clear();
                    }
                    now.push(line);
                }
                // Who ends is of those who began last: nobody who excludes it has begun since.
                "end" => assert!(
                    now.iter().any(|other| (other.fence, other.run) == (*fence, *run)),
                    "{name}: {fence} ended after another's begin"
                ),
                _ => {
                    let of_name = self.lines.iter().filter(|line| line.name == *name && line.fence <= *fence);
                    let told = of_name
                        .rev()
                        .take(6)
                        .map(|line| format!("{} {} {}", line.word, line.fence, stories.get(&line.run).map_or("", String::as_str)));
                    panic!("{name}: with fence {fence} a command found another's alive, after {:#?}", told.collect::<Vec<_>>())
                }
            }
        }
    }
}

fn parse(line: &str) -> Line {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let (word, name, fence, how, run) =
        (next().to_owned(), next().to_owned(), next().parse().unwrap(), next(), next().parse().unwrap_or(0));
    Line { word, name, fence, is_shared: how == "s", run }
}

#[test]
fn what_overlaps_is_found() {
    let judge = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record");
        std::fs::write(&file, text).unwrap();
        std::panic::catch_unwind(|| Record::read(&file).assert_nothing_overlaps(&BTreeMap::new())).is_ok()
    };
    assert!(judge("begin a 1 x 7\nend a 1 x 7\nbegin a 2 x 8\nbegin b 1 x 9\nbegin a 3 x 9\nend a 3 x 9\n"), "the second of a was killed");
    assert!(judge("begin a 1 s 7\nbegin a 1 s 8\nend a 1 s 7\nend a 1 s 8\n"), "they share");
    assert!(!judge("begin a 1 x 7\nbegin a 2 x 8\nend a 1 x 7\n"));
    assert!(!judge("begin a 1 s 7\nbegin a 2 x 8\nend a 1 s 7\n"));
    assert!(!judge("begin a 2 x 7\nbegin a 1 x 8\n"));
    assert!(!judge("begin a 1 x 7\nbegin a 1 x 8\n"));
    assert!(!judge("begin a 1 x 7\noverlap a 2 x\n"));
}

//! What docs/cli.md shows is what happens: its consoles are run, and print what they show but for numbers and names.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fmt::Write;
use std::process::Command;

use common::Place;

/// The consoles of the page: what is typed, and what is shown, without what depends on the machine.
fn consoles(page: &str) -> Vec<(Vec<&str>, Vec<String>)> {
    let blocks = page.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks
        .map(|block| {
            let (typed, shown): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with("$ "));
            (typed.iter().map(|line| &line[2..]).collect(), shown.into_iter().filter_map(without_numbers).collect())
        })
        .collect()
}

/// A line without numbers, names and room between words; none for a line on the file system, which may be any.
fn without_numbers(line: &str) -> Option<String> {
    let words = line.split_whitespace().map(|word| {
        if word.contains('@') {
            return "WHO".to_owned();
        }
        let mut plain = String::new();
        for c in word.chars() {
            match c {
                '0'..='9' | '.' if plain.ends_with('N') => {}
                '0'..='9' => plain.push('N'),
                c => plain.push(c),
            }
        }
        plain
    });
    let line = words.collect::<Vec<_>>().join(" ");
    (!line.contains(" filesystem ")).then_some(line)
}

#[test]
fn the_consoles_of_the_guide_show_what_happens() {
    let place = Place::new();
    let folder = place.folder.path().to_str().unwrap();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_heirlock")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let page = include_str!("../../../docs/cli.md");
    let consoles = consoles(page);
    assert!(consoles.len() >= 7 && consoles.iter().all(|(typed, _)| !typed.is_empty()));
    for (typed, shown) in consoles {
        let mut script = String::from("exec 2>&1\n");
        let mut started = 0;
        for line in typed {
            let line = line.replace("/srv", folder);
            match line.strip_suffix(" &") {
                // Its own output would come at any time, and the store is not there before its first moment.
                Some(line) => {
                    started += 1;
                    let there = "heirlock ls 2>/dev/null | grep -cE 'held by|waits'";
                    writeln!(script, "{line} >/dev/null 2>&1 &\nuntil [ $({there}) -ge {started} ]; do sleep 0.02; done").unwrap();
                }
                None => writeln!(script, "{line}").unwrap(),
            }
        }
        script += "kill $(jobs -p) 2>/dev/null; wait\n";
        let mut bash = Command::new("timeout");
        bash.args(["60", "bash", "-c", &script]).current_dir(folder).env("PATH", &path).env("HEIRLOCK_STORE", place.store());
        let output = bash.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = text.replace(folder, "/srv").lines().filter_map(without_numbers).collect();
        assert_eq!(lines, shown, "{script}\n{text}");
    }
}
